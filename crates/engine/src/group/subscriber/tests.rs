use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use tidegate_codec::framing::Lines;

use super::*;
use crate::group::backplane::{BackplaneRoom as _, MessageForm, NodeId, RoomDelivery, RoomMessage};
use crate::group::rooms::Rooms;

fn room(slow: Slow, history_max: usize, waiting_max: usize) -> Room<Lines> {
    let limits = RoomLimits { history_max, waiting_messages_max: waiting_max, ..RoomLimits::default() };
    let rooms = Rooms::new(slow, limits).encoding(|_| None);
    rooms.room("tides").expect("there is room")
}

fn publish(room: &Room<Lines>, text: &str) {
    room.publish(&Bytes::copy_from_slice(text.as_bytes())).expect("there is room");
}

fn next(subscriber: &mut RoomSubscriber<Lines>) -> Option<RoomNotice> {
    match subscriber.poll_recv(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(notice) => notice,
        Poll::Pending => panic!("nothing waits"),
    }
}

/// The events that wait, as text.
fn texts(subscriber: &mut RoomSubscriber<Lines>) -> Vec<String> {
    let mut texts = Vec::new();
    while let Poll::Ready(notice) = subscriber.poll_recv(&mut Context::from_waker(Waker::noop())) {
        match notice {
            Some(RoomNotice::Message { bytes, .. }) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
            Some(RoomNotice::Gap { position }) => {
                texts.push(format!("gap {}", position.map_or(0, |position| position.offset)));
            }
            Some(other) => texts.push(format!("{other:?}")),
            None => {
                texts.push("end".to_owned());
                break;
            }
        }
    }
    texts
}

#[test]
fn a_subscriber_gets_the_history_and_then_each_message_and_its_task_is_woken() {
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let room = room(Slow::Skip, 2, 10);
    ["a", "b", "c"].iter().for_each(|text| publish(&room, text));
    let mut subscriber = room.subscribe(None, ()).expect("there is room");
    assert_eq!((texts(&mut subscriber), room.len()), (vec!["b".to_owned(), "c".into()], 1));
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    let waker = Waker::from(counts.clone());
    assert!(subscriber.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    publish(&room, "d");
    room.publish_announcement(&Bytes::from_static(b"announced")).expect("there is room");
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    let position = room.position();
    assert_eq!(position.map(|position| position.offset), Some(4));
    assert_eq!(next(&mut subscriber), Some(RoomNotice::Message { bytes: Bytes::from_static(b"d"), position }));
    assert_eq!(texts(&mut subscriber), ["announced"]);
    drop(subscriber);
    assert!(room.is_empty());
    assert!(room.shared.lock().subscribers.is_empty());
}

#[test]
fn a_client_that_returns_gets_what_follows_or_a_gap_and_the_whole_history() {
    let room = room(Slow::Skip, 3, 10);
    ["a", "b", "c", "d", "e"].iter().for_each(|text| publish(&room, text));
    let epoch = room.position().expect("it has messages").epoch;
    for (epoch, offset, expected) in [
        (epoch, 5, &[][..]),
        (epoch, 3, &["d", "e"]),
        (epoch, 2, &["c", "d", "e"]),
        (epoch, 1, &["gap 2", "c", "d", "e"]),
        (epoch, 6, &["gap 2", "c", "d", "e"]),
        (epoch.wrapping_add(1), 3, &["gap 2", "c", "d", "e"]),
        (0, 0, &["gap 2", "c", "d", "e"]),
    ] {
        let mut subscriber = room.subscribe(Some(Position { epoch, offset }), ()).expect("there is room");
        assert_eq!(texts(&mut subscriber), expected, "{offset}");
    }
}

#[test]
fn a_slow_subscriber_has_a_bound_and_continues_from_the_history() {
    let room = room(Slow::Skip, 8, 4);
    publish(&room, "first");
    let mut subscriber = room.subscribe(None, ()).expect("there is room");
    (0..7).for_each(|number| publish(&room, &number.to_string()));
    assert_eq!(subscriber.queue.lock().notices.len(), 4);
    assert_eq!(texts(&mut subscriber), ["first", "0", "1", "2", "3", "4", "5", "6"]);
    // More than the history has: the subscriber learns of it.
    (0..20).for_each(|number| publish(&room, &number.to_string()));
    let seen = texts(&mut subscriber);
    assert_eq!(seen, ["0", "1", "2", "3", "gap 20", "12", "13", "14", "15", "16", "17", "18", "19"]);
    publish(&room, "last");
    assert_eq!(texts(&mut subscriber), ["last"]);
}

#[test]
fn long_messages_are_bounded_by_their_bytes() {
    let limits = RoomLimits { waiting_bytes_max: 100, ..RoomLimits::default() };
    let room: Room<Lines> = Rooms::new(Slow::Skip, limits).encoding(|_| None).room("tides").expect("there is room");
    let mut subscriber = room.subscribe(None, ()).expect("there is room");
    (0..10).for_each(|_| publish(&room, &"x".repeat(30)));
    assert_eq!(subscriber.queue.lock().bytes, 90);
    // A room without history has nothing to continue from.
    assert_eq!(texts(&mut subscriber)[3..], ["gap 0"]);
    (0..3).for_each(|_| publish(&room, &"x".repeat(30)));
    assert_eq!(texts(&mut subscriber).len(), 3);
}

#[test]
fn a_slow_subscriber_of_a_room_that_sheds_ends_and_the_others_stay() {
    let room = room(Slow::Shed, 8, 4);
    let [mut slow, mut quick] = [(); 2].map(|()| room.subscribe(None, ()).expect("there is room"));
    for number in 0..5 {
        publish(&room, &number.to_string());
        assert_eq!(texts(&mut quick), [number.to_string()]);
    }
    assert_eq!(texts(&mut slow), ["end"]);
}

#[test]
fn a_kick_is_the_last_event_also_of_a_full_queue() {
    let room = room(Slow::Skip, 0, 2);
    let mut subscriber = room.subscribe(None, ()).expect("there is room");
    (0..5).for_each(|number| publish(&room, &number.to_string()));
    room.kick(4001, "out").expect("there is room");
    publish(&room, "late");
    assert_eq!(texts(&mut subscriber), ["0", "1", "Kicked { code: 4001, reason: \"out\" }", "end"]);
}

#[test]
fn a_room_of_a_backplane_gives_its_history_once_it_is_open() {
    let room = room(Slow::Skip, 8, 4);
    room.shared.lock().is_open = false;
    let at = |offset| Position { epoch: 7, offset };
    let delivery = |offset| RoomDelivery {
        position: Some(at(offset)),
        origin: NodeId([0; 16]),
        message: RoomMessage {
            bytes: Bytes::from(offset.to_string()),
            form: MessageForm::Plain,
            is_announcement: false,
        },
    };
    let mut newcomer = room.subscribe(None, ()).expect("there is room");
    let mut returns = room.subscribe(Some(at(3)), ()).expect("there is room");
    let mut late = room.subscribe(Some(at(1)), ()).expect("there is room");
    room.shared.connected(false);
    assert!(texts(&mut newcomer).is_empty());
    room.shared.opened(Some(at(4)), vec![delivery(3), delivery(4)]);
    room.shared.deliver(delivery(5));
    assert_eq!(texts(&mut newcomer), ["3", "4", "5"]);
    assert_eq!(texts(&mut returns), ["4", "5"]);
    assert_eq!(texts(&mut late), ["gap 2", "3", "4", "5"]);
    // Whether the broker is connected is not forgotten by a queue that is full.
    (6..12).for_each(|offset| assert!(room.shared.deliver(delivery(offset))));
    room.shared.connected(false);
    room.shared.gap(Some(at(20)));
    room.shared.connected(true);
    assert_eq!(texts(&mut late), ["6", "7", "8", "9", "gap 20", "Up"]);
}
