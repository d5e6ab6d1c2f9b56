//! Members that are no connections, on several nodes: a stream of events, or a task.

use bytes::Bytes;
use tidegate::framing::Lines;
use tidegate::{Backend, EventLoop, Position, Room, RoomLimits, RoomNotice, RoomSubscriber, Rooms, Slow};
use tidegate_backplane::Backplane;

use crate::brokers::with_each_broker;
use crate::processes::{BrokerProcess, Kind};

fn room(backplane: &Backplane, history_max: usize) -> Room<Lines> {
    let mut limits = RoomLimits::default();
    limits.history_max = history_max;
    let rooms = Rooms::<Lines>::new(Slow::Skip, limits).encoding(|_| None).with(backplane);
    rooms.room("tides").expect("there is room")
}

fn publish(room: &Room<Lines>, text: &str) {
    room.publish(&Bytes::copy_from_slice(text.as_bytes())).expect("there is room");
}

/// The texts and positions up to the messages with these texts, in any order, without the events of the connection.
async fn until(subscriber: &mut RoomSubscriber<Lines>, last: &[&str]) -> Vec<(String, Option<Position>)> {
    let mut seen: Vec<(String, Option<Position>)> = Vec::new();
    loop {
        match subscriber.recv().await.expect("it goes on") {
            RoomNotice::Message { bytes, position } => {
                seen.push((String::from_utf8_lossy(&bytes).into_owned(), position));
                if last.iter().all(|last| seen.iter().any(|(text, _)| text == last)) {
                    return seen;
                }
            }
            RoomNotice::Gap { position } => seen.push(("gap".to_owned(), position)),
            _ => {}
        }
    }
}

fn texts(seen: &[(String, Option<Position>)]) -> Vec<&str> {
    seen.iter().map(|(text, _)| &**text).collect()
}

fn block_on<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    EventLoop::on(Backend::Auto).expect("a loop").block_on(future).expect("it ends")
}

#[test]
fn subscribers_of_all_nodes_get_one_order_and_continue_on_another_node() {
    with_each_broker(|nodes| {
        let nodes = [(); 2].map(|()| nodes.start());
        let rooms = nodes.each_ref().map(|node| room(node, 100));
        block_on(async move {
            let mut subscribers = rooms.each_ref().map(|room| room.subscribe(None, ()).expect("there is room"));
            for number in 0..20 {
                publish(&rooms[number % 2], &number.to_string());
            }
            let ends = ["20", "21"];
            (0..2).for_each(|node| publish(&rooms[node], ends[node]));
            let mut logs = Vec::new();
            for subscriber in &mut subscribers {
                logs.push(until(subscriber, &ends).await);
            }
            let begin = logs.iter().map(Vec::len).min().unwrap_or_default();
            let [first, second] = [0, 1].map(|node| &logs[node][logs[node].len() - begin..]);
            assert_eq!(first, second);
            // A client of the first node comes back to the second, without three messages.
            let last = ["22", "23", "24"];
            last.iter().for_each(|text| publish(&rooms[0], text));
            for subscriber in &mut subscribers {
                assert_eq!(texts(&until(subscriber, &last[2..]).await), last);
            }
            let seen = first.last().and_then(|(_, position)| *position);
            let mut again = rooms[1].subscribe(seen, ()).expect("there is room");
            assert_eq!(texts(&until(&mut again, &last[2..]).await), last);
            // One from another epoch cannot be recovered.
            let other = seen.map(|seen| Position { epoch: seen.epoch.wrapping_add(1), ..seen });
            let mut other = rooms[1].subscribe(other, ()).expect("there is room");
            let seen = until(&mut other, &last[2..]).await;
            assert_eq!((texts(&seen)[0], seen.len()), ("gap", 26));
            rooms[1].kick(4001, "closed").expect("there is room");
            for subscriber in subscribers.iter_mut().chain([&mut again]) {
                let kicked = RoomNotice::Kicked { code: 4001, reason: "closed".into() };
                assert_eq!((subscriber.recv().await, subscriber.recv().await), (Some(kicked), None));
            }
        });
        drop(nodes);
    });
}

#[test]
fn a_subscriber_learns_of_a_broker_that_comes_back_empty() {
    let Some(mut redis) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let node = Backplane::at(&redis.url()).expect("an address").spawn().expect("a thread");
    let room = room(&node, 10);
    block_on(async move {
        let mut subscriber = room.subscribe(None, ()).expect("there is room");
        publish(&room, "before");
        until(&mut subscriber, &["before"]).await;
        redis.kill();
        while subscriber.recv().await != Some(RoomNotice::Down) {}
        redis.restart();
        let gap = subscriber.recv().await;
        assert!(matches!(gap, Some(RoomNotice::Gap { .. })), "{gap:?}");
        assert_eq!(subscriber.recv().await, Some(RoomNotice::Up));
        publish(&room, "after");
        assert_eq!(texts(&until(&mut subscriber, &["after"]).await), ["after"]);
    });
    drop(node);
}
