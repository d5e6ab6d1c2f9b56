//! Groups: one message to many connections, on any loop.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_buffer::{ENTRY_BYTES, Pool, Slice, WaterMarks};
use tidegate_codec::framing::{LengthField, Lines, Payload};
use tidegate_codec::{Broadcast, Encoded, Over, Pipeline};
use tidegate_engine::{
    Channel, ChannelError, Context, Event, EventLoop, Group, GroupFull, Handler, Limits, Outcome, PublishError, Remote,
    Room, RoomEvent, RoomLimits, Rooms, Server, ServerHandle, Slow, Visit,
};
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{Address, Socket};
use tidegate_testkit::filters::ToyTls;

const PATIENCE: Duration = Duration::from_secs(120);

/// Joins at once, and follows commands.
struct Joins<C: Broadcast>(Group<C>);

impl<C: Broadcast + Pipeline<In = Slice, Out = Payload>> Handler<C> for Joins<C> {
    type Post = &'static str;

    fn open(&mut self, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        cx.join(&self.0);
        Outcome::Continue
    }

    fn message(&mut self, message: Slice, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        match &*message {
            b"join" => cx.join(&self.0),
            b"leave" => cx.leave(&self.0),
            b"binary" => return Outcome::switch(|_| (LengthField::new(2), Binary)),
            b"send others" => {
                let said = Encoded::of("others\n".into());
                self.0.send_except(&said, &cx.member()).expect("there is room");
            }
            _ => {}
        }
        cx.send(message.into()).into()
    }

    fn event(&mut self, event: Event<&'static str>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        match event {
            Event::Posted(post) => cx.send(post.into()).into(),
            other => other.by_default(cx),
        }
    }
}

/// Sends frames back.
struct Binary;

impl Handler<LengthField> for Binary {
    type Post = ();

    fn message(&mut self, frame: Slice, cx: &mut Context<'_, LengthField>) -> Outcome<LengthField> {
        cx.send(frame.into()).into()
    }
}

fn handlers(group: &Group<Lines>, loops: usize, limits: Limits) -> ServerHandle {
    let group = group.clone();
    let server = Server::bind("127.0.0.1:0").unwrap().loops(loops).limits(limits);
    server.start(move || (Lines::new(), Joins(group.clone()))).unwrap()
}

/// Channels that join and send lines back.
fn channels(group: &Group<Lines>, loops: usize) -> ServerHandle {
    async fn member(mut channel: Channel<Lines>, group: Group<Lines>) -> Result<(), ChannelError> {
        channel.join(&group)?;
        channel.join(&group)?;
        while let Some(line) = channel.recv().await? {
            match &*line {
                b"leave" => channel.leave(&group)?,
                b"send others" => {
                    let said = Encoded::of("others\n".into());
                    group.send_except(&said, &channel.member()?).expect("there is room");
                }
                b"split" => {
                    let (reader, mut writer) = channel.split();
                    writer.leave(&group)?;
                    writer.join(&group)?;
                    channel = reader.reunite(writer).expect("they are twins");
                }
                _ => {}
            }
            channel.send(line.into()).expect("there is room");
        }
        Ok(())
    }
    let group = group.clone();
    let server = Server::bind("127.0.0.1:0").unwrap().loops(loops);
    server.serve(Lines::new, move |channel| member(channel, group.clone())).unwrap()
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(server: &ServerHandle) -> Self {
        let stream = TcpStream::connect(server.address().ip().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    fn many(server: &ServerHandle, count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new(server)).collect()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server says something");
        line.trim_end().to_owned()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").expect("the server reads");
    }
}

fn publish(group: &Group<Lines>, line: impl Into<String>) {
    group.publish(&mut Lines::new(), line.into().into()).expect("there is room");
}

/// Bytes of all loops. They include a driver's receive buffer, which exists from the first receive on.
fn held(server: &ServerHandle) -> u64 {
    server.counts().iter().map(|counts| counts.memory_bytes).sum()
}

/// [`held`] when each of these, all clients of the server, has sent a line and received it back.
fn held_at_rest(server: &ServerHandle, clients: &mut [Client]) -> u64 {
    for client in &mut *clients {
        client.say("hello");
        assert_eq!(client.line(), "hello");
    }
    // A loop publishes its counts at the end of the turn.
    let messages = || server.counts().iter().map(|counts| counts.messages).sum::<u64>();
    until("all lines are counted", || messages() == clients.len() as u64);
    held(server)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A loop that is turned by hand, and members of a group on it.
struct ByHand {
    event_loop: EventLoop,
    pool: Pool,
    peers: Vec<BufReader<UnixStream>>,
    remotes: Vec<Remote<&'static str>>,
}

impl ByHand {
    fn new(group: &Group<Lines>, members: usize) -> Self {
        let pool = Pool::new();
        let event_loop = EventLoop::new(Box::new(Readiness::new(&pool).unwrap()), pool.clone());
        let mut by_hand = Self { event_loop, pool, peers: Vec::new(), remotes: Vec::new() };
        by_hand.join(group, members);
        by_hand
    }

    fn join(&mut self, group: &Group<Lines>, members: usize) {
        for _ in 0..members {
            let (peer, ours) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let (socket, peer_address) = (Socket::from_stream(ours).unwrap(), Address::Unix(PathBuf::new()));
            let handler = Joins(group.clone());
            let remote = self.event_loop.adopt(socket, &peer_address, Limits::default(), Lines::new(), handler);
            self.remotes.push(remote.unwrap());
            self.peers.push(BufReader::new(peer));
        }
    }

    fn turn(&mut self) {
        self.event_loop.turn(Some(Duration::ZERO)).unwrap();
    }

    /// The bytes that a peer has received so far.
    fn read(&mut self, peer: usize) -> String {
        let mut text = String::new();
        match self.peers[peer].read_to_string(&mut text) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
        text
    }
}

#[test]
fn handlers_and_channels_on_all_loops_get_every_message_in_one_order() {
    let group = Group::new(Slow::Shed);
    let servers = [handlers(&group, 2, Limits::default()), channels(&group, 2)];
    let mut clients: Vec<_> = servers.iter().flat_map(|server| Client::many(server, 12)).collect();
    until("all have joined", || group.len() == 24);
    let at_rest: Vec<_> =
        servers.iter().zip(clients.chunks_mut(12)).map(|(server, clients)| held_at_rest(server, clients)).collect();
    let senders: Vec<_> = ["a", "b"]
        .map(|name| {
            let group = group.clone();
            thread::spawn(move || (0..500).for_each(|number| publish(&group, format!("{name}{number}"))))
        })
        .into();
    let seen: Vec<Vec<String>> = clients.iter_mut().map(|client| (0..1000).map(|_| client.line()).collect()).collect();
    for sender in senders {
        sender.join().unwrap();
    }
    for name in ["a", "b"] {
        let of_one: Vec<_> = seen[0].iter().filter(|line| line.starts_with(name)).cloned().collect();
        assert_eq!(of_one, (0..500).map(|number| format!("{name}{number}")).collect::<Vec<_>>());
    }
    assert!(seen.iter().all(|lines| *lines == seen[0]), "all see the two senders in the same order");
    assert_eq!(group.skipped(), 0);
    for (server, at_rest) in servers.iter().zip(at_rest) {
        let counts = server.counts();
        assert!(counts.iter().all(|counts| counts.connections > 0), "both loops have members");
        until("all memory is freed", || held(server) <= at_rest);
    }
}

#[test]
fn messages_and_posts_of_one_thread_arrive_in_order() {
    let group = Group::new(Slow::Skip);
    let mut by_hand = ByHand::new(&group, 2);
    let mut expected = String::new();
    for number in 0..50 {
        publish(&group, format!("{number}"));
        by_hand.remotes[0].post("post").unwrap();
        expected += &format!("{number}\npost\n");
    }
    // A turn delivers messages for a limited time only.
    while by_hand.event_loop.is_busy() {
        by_hand.turn();
    }
    assert_eq!(by_hand.read(0), expected);
    assert_eq!(by_hand.read(1).lines().count(), 50);
}

#[test]
fn members_that_read_at_once_miss_no_message_of_one_turn() {
    for slow in [Slow::Skip, Slow::Shed] {
        let group = Group::new(slow);
        let mut by_hand = ByHand::new(&group, 2);
        // 640 KiB: more than the cap of a queue, which is 256 KiB, and than the kernel takes of a socket that is not read.
        let message = "x".repeat(8 * 1024 - 1);
        for _ in 0..80 {
            publish(&group, message.clone());
        }
        let mut read = [0; 2];
        while by_hand.event_loop.is_busy() || read[0] < 80 * 8 * 1024 && group.skipped() == 0 && group.len() == 2 {
            by_hand.turn();
            for (peer, bytes) in read.iter_mut().enumerate() {
                *bytes += by_hand.read(peer).len();
            }
        }
        assert_eq!((read, group.skipped(), group.len()), ([80 * 8 * 1024; 2], 0, 2), "{slow:?}");
    }
}

#[test]
fn a_member_that_reads_nothing_misses_messages_and_holds_up_no_other() {
    let group = Group::new(Slow::Skip);
    let mut by_hand = ByHand::new(&group, 2);
    let message = "x".repeat(8 * 1024 - 1);
    let mut read = 0;
    for _ in 0..200 {
        publish(&group, message.clone());
        while by_hand.event_loop.is_busy() {
            by_hand.turn();
            read += by_hand.read(1).len();
        }
        by_hand.turn();
        read += by_hand.read(1).len();
    }
    assert_eq!(read, 200 * 8 * 1024);
    assert!((1..200).contains(&group.skipped()), "{} messages skipped", group.skipped());
}

/// Enters a room, and stays.
struct Resident(Room<Lines>, Option<Visit<Lines>>);

impl Handler<Lines> for Resident {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.1 = self.0.enter(&cx.member(), (), |_| None).ok();
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        Outcome::Continue
    }
}

#[test]
fn a_member_of_a_room_that_has_missed_messages_gets_a_gap_before_the_next_one() {
    let encode = |event: RoomEvent<'_>| match event {
        RoomEvent::Message { bytes, .. } => Some(Encoded::of([bytes, &b"\n"[..]].concat().into())),
        RoomEvent::Gap { .. } => Some(Encoded::of("gap\n".into())),
        _ => None,
    };
    let room = Rooms::new(Slow::Skip, RoomLimits::default()).encoding(encode).room("tides").expect("there is room");
    let mut by_hand = ByHand::new(&Group::new(Slow::Skip), 0);
    let (peer, ours) = UnixStream::pair().unwrap();
    peer.set_nonblocking(true).unwrap();
    let (socket, address) = (Socket::from_stream(ours).unwrap(), Address::Unix(PathBuf::new()));
    let handler = Resident(room.clone(), None);
    by_hand.event_loop.adopt(socket, &address, Limits::default(), Lines::new(), handler).unwrap();
    by_hand.peers.push(BufReader::new(peer));
    by_hand.turn();
    let mut text = String::new();
    for number in 0..300 {
        room.publish(&format!("{number} {}", "x".repeat(8 * 1024)).into()).expect("there is room");
        by_hand.turn();
        // It reads nothing for a while, then all.
        let mut reads = number % 100 > 90;
        while reads {
            let before = text.len();
            by_hand.turn();
            text += &by_hand.read(0);
            reads = by_hand.event_loop.is_busy() || text.len() > before;
        }
    }
    let (mut next, mut gaps, mut is_behind_gap) = (0, 0, false);
    for line in text.lines() {
        match line.split_once(' ') {
            Some((number, _)) => {
                let number: u32 = number.parse().expect("a number");
                assert!(number == next || is_behind_gap, "{number} in the place of {next}, without a gap");
                (next, is_behind_gap) = (number + 1, false);
            }
            None => (gaps, is_behind_gap) = (gaps + 1, true),
        }
    }
    assert_eq!(next, 300, "a member that reads again gets the messages again");
    assert!((3..10).contains(&gaps), "{gaps} gaps");
}

#[test]
fn a_member_that_joined_twice_gets_a_message_once_and_none_after_leaving() {
    let group = Group::new(Slow::Skip);
    for server in [handlers(&group, 1, Limits::default()), channels(&group, 1)] {
        let mut client = Client::new(&server);
        for line in ["join", "split"] {
            client.say(line);
            assert_eq!(client.line(), line);
        }
        publish(&group, "once");
        assert_eq!(client.line(), "once");
        client.say("leave");
        assert_eq!(client.line(), "leave", "nothing came twice");
        assert!(group.is_empty());
        publish(&group, "missed");
        client.say("still here");
        assert_eq!(client.line(), "still here");
    }
    assert_eq!(group.skipped(), 0);
}

#[test]
fn send_except_skips_only_the_given_member() {
    let group = Group::new(Slow::Skip);
    let servers = [handlers(&group, 2, Limits::default()), channels(&group, 2)];
    let mut clients: Vec<_> = servers.iter().flat_map(|server| Client::many(server, 6)).collect();
    until("all have joined", || group.len() == 12);
    for sender in 0..clients.len() {
        clients[sender].say("send others");
        for (member, client) in clients.iter_mut().enumerate() {
            let expected = if member == sender { "send others" } else { "others" };
            assert_eq!(client.line(), expected);
        }
    }
    publish(&group, "end");
    assert!(clients.iter_mut().all(|client| client.line() == "end"));
}

#[test]
fn a_closed_member_is_removed_with_the_next_message() {
    let group = Group::new(Slow::Skip);
    let server = handlers(&group, 2, Limits::default());
    let mut clients = Client::many(&server, 10);
    // A member joins before the loop publishes its counts at the end of the turn.
    let connections = || server.counts().iter().map(|counts| counts.connections).sum::<u64>();
    until("all have joined", || group.len() == 10 && connections() == 10);
    clients.truncate(3);
    until("seven are gone", || connections() == 3);
    publish(&group, "ebb");
    assert!(clients.iter_mut().all(|client| client.line() == "ebb"));
    until("they are forgotten", || group.len() == 3);
    drop(clients);
    until("all are gone", || server.counts().iter().all(|counts| counts.connections == 0));
    publish(&group, "ebb");
    until("all are forgotten", || group.is_empty());
    let mut again = Client::new(&server);
    until("one has joined", || group.len() == 1);
    publish(&group, "flow");
    assert_eq!(again.line(), "flow");
}

#[test]
fn an_idle_group_does_not_keep_closed_members() {
    let group = Group::new(Slow::Skip);
    let mut by_hand = ByHand::new(&group, 63);
    by_hand.peers.truncate(3);
    by_hand.turn();
    while by_hand.event_loop.counts().connections > 3 {
        by_hand.turn();
    }
    assert_eq!(group.len(), 63, "no sweep has run");
    by_hand.join(&group, 1);
    assert_eq!(group.len(), 4);
}

#[test]
fn a_loop_that_has_ended_is_removed_with_its_members() {
    let group = Group::new(Slow::Skip);
    let ended = ByHand::new(&group, 3);
    let mut lives = ByHand::new(&group, 2);
    assert_eq!(group.len(), 5);
    drop(ended);
    assert_eq!(group.len(), 2);
    publish(&group, "ebb");
    lives.turn();
    assert_eq!((lives.read(0), lives.read(1)), ("ebb\n".into(), "ebb\n".into()));
}

#[test]
fn a_broadcast_to_many_is_continued_in_the_next_turns_and_keeps_order() {
    let group = Group::new(Slow::Shed);
    let mut by_hand = ByHand::new(&group, 100);
    let messages: Vec<_> = (0..1_500).map(|number| format!("{number}\n")).collect();
    for message in &messages {
        group.send(&Encoded::of(message.clone().into_bytes().into())).unwrap();
    }
    by_hand.remotes[50].post("behind").unwrap();
    let mut read = [0, 99, 50].map(|peer| (peer, String::new()));
    let mut turns = 0;
    while turns == 0 || by_hand.event_loop.is_busy() {
        by_hand.turn();
        turns += 1;
        for (peer, lines) in &mut read {
            lines.push_str(&by_hand.read(*peer));
        }
        // 65,536 deliveries are 655 messages to all members, and one to 36 of them. A turn makes fewer if its time is
        // up.
        assert!(turns > 1 || read[0].1.lines().count() <= 656, "one turn has delivered too much");
    }
    assert!(turns >= 3, "all was delivered in {turns} turns");
    assert_eq!(read[0].1, messages.concat());
    assert_eq!(read[1].1, messages.concat());
    assert_eq!(read[2].1, messages.concat() + "behind\n");
    assert_eq!(by_hand.pool.ledger().used(), 0);
}

#[test]
fn all_queues_of_a_loop_share_one_copy() {
    let group = Group::new(Slow::Skip);
    let mut by_hand = ByHand::new(&group, 50);
    // Fill the kernel's buffers for a peer, so that the next messages wait.
    while group.skipped() == 0 {
        group.send(&Encoded::of([vec![b'x'; 60_000], b"\n".to_vec()].concat().into())).unwrap();
        by_hand.turn();
    }
    let used = by_hand.pool.ledger().used();
    // At most two of those messages wait on each queue, with their segments, which are shared.
    assert!(used < 3 * 61_000 + 50 * 3 * ENTRY_BYTES, "{used} bytes are in use");
    for peer in 0..50 {
        while !by_hand.read(peer).is_empty() {
            by_hand.turn();
        }
    }
    assert_eq!(by_hand.pool.ledger().used(), 0);
}

#[test]
fn a_mailbox_that_is_full_is_an_error_and_other_loops_get_the_message() {
    let group = Group::new(Slow::Skip);
    let mut busy = ByHand::new(&group, 1);
    let mut idle = ByHand::new(&group, 1);
    while busy.remotes[0].post("x").is_ok() {}
    let sent = group.publish(&mut Lines::new(), "ebb".into());
    let Err(PublishError::Full(full)) = sent else { panic!("{sent:?}") };
    assert_eq!(full.loops, 1);
    assert_eq!(full.to_string(), "too many messages wait for 1 of the group's event loops");
    idle.turn();
    assert_eq!(idle.read(0), "ebb\n");
    busy.turn();
}

#[test]
fn a_message_that_cannot_be_encoded_is_sent_to_no_member() {
    let group = Group::new(Slow::Skip);
    let mut by_hand = ByHand::new(&group, 1);
    let published = group.publish(&mut Lines::new(), "a\nb".into());
    assert!(matches!(published, Err(PublishError::Encode(_))), "{published:?}");
    by_hand.turn();
    assert_eq!(by_hand.read(0), "");
}

/// Water marks that a connection reaches soon after the kernel's buffers are full.
fn tight() -> Limits {
    Limits { water: WaterMarks::new(16 * 1024, 8 * 1024), ..Limits::default() }
}

#[test]
fn a_slow_member_is_skipped_and_gets_later_messages() {
    let group = Group::new(Slow::Skip);
    let server = handlers(&group, 1, tight());
    let mut clients = [Client::new(&server), Client::new(&server)];
    until("both have joined", || group.len() == 2);
    let at_rest = held_at_rest(&server, &mut clients);
    let [mut slow, mut quick] = clients;
    let body = "x".repeat(8000);
    let mut sent = 0;
    while group.skipped() < 10 {
        publish(&group, format!("{sent} {body}"));
        assert!(quick.line().starts_with(&format!("{sent} ")));
        sent += 1;
        assert!(sent < 100_000);
    }
    let missed = group.skipped();
    let mut last = -1;
    for _ in 0..sent - missed {
        let line = slow.line();
        let number = line.split(' ').next().unwrap().parse().unwrap();
        assert!(number > last && line.ends_with(&body), "in order and whole");
        last = number;
    }
    assert_eq!(group.skipped(), missed);
    // Its queue may still be being written.
    until("all memory is freed", || held(&server) <= at_rest);
    publish(&group, "end");
    assert_eq!((slow.line(), quick.line()), ("end".into(), "end".into()));
}

#[test]
fn a_slow_member_of_a_group_that_sheds_is_cut_off_and_the_others_get_all() {
    let group = Group::new(Slow::Shed);
    let server = handlers(&group, 1, tight());
    let mut clients = [Client::new(&server), Client::new(&server)];
    until("both have joined", || group.len() == 2);
    let at_rest = held_at_rest(&server, &mut clients);
    let [mut slow, mut quick] = clients;
    let body = "x".repeat(8000);
    let mut sent = 0;
    while server.counts()[0].closed_too_slow == 0 {
        publish(&group, format!("{sent} {body}"));
        assert!(quick.line().starts_with(&format!("{sent} ")));
        sent += 1;
        assert!(sent < 100_000);
    }
    assert_eq!((group.skipped(), group.len()), (0, 1));
    let end = slow.0.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    publish(&group, "end");
    assert_eq!(quick.line(), "end");
    until("all memory is freed", || held(&server) <= at_rest);
    assert_eq!(server.counts()[0].closed_too_slow, 1);
}

#[test]
fn a_member_that_switched_to_another_codec_gets_nothing() {
    let group = Group::new(Slow::Skip);
    let server = handlers(&group, 1, Limits::default());
    let (mut binary, mut text) = (Client::new(&server), Client::new(&server));
    until("both have joined", || group.len() == 2);
    binary.0.get_mut().write_all(b"binary\n\x00\x03ebb").unwrap();
    let mut frame = [0; 5];
    binary.0.read_exact(&mut frame).unwrap();
    publish(&group, "ebb");
    assert_eq!(text.line(), "ebb");
    binary.0.get_mut().write_all(b"\x00\x03ebb").unwrap();
    binary.0.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x00\x03ebb");
}

#[test]
fn a_group_that_closes_gives_each_member_a_last_message_and_ends_its_connection() {
    let group = Group::new(Slow::Skip);
    let servers = [handlers(&group, 2, Limits::default()), channels(&group, 2)];
    let mut clients: Vec<_> = servers.iter().flat_map(|server| Client::many(server, 4)).collect();
    until("all have joined", || group.len() == 8);
    publish(&group, "ebb");
    group.close(&Encoded::of("the harbour closes\n".into())).unwrap();
    publish(&group, "flood");
    for client in &mut clients {
        assert_eq!((client.line(), client.line()), ("ebb".into(), "the harbour closes".into()));
        assert_eq!(client.line(), "", "no message follows the last one");
    }
    until("none is a member", || group.is_empty());
    assert!(servers[0].counts().iter().all(|counts| counts.closed_too_slow == 0));
    // A connection that comes later stays, and one without a last message just ends.
    let mut late = Client::new(&servers[0]);
    until("it has joined", || group.len() == 1);
    publish(&group, "late");
    assert_eq!(late.line(), "late");
    group.close(&Encoded::of("".into())).unwrap();
    assert_eq!(late.line(), "");
}

#[test]
fn a_member_that_reads_slowly_or_has_another_codec_is_closed_too() {
    let group = Group::new(Slow::Skip);
    let server = handlers(&group, 1, tight());
    let (mut slow, mut binary) = (Client::new(&server), Client::new(&server));
    until("both have joined", || group.len() == 2);
    binary.0.get_mut().write_all(b"binary\n\x00\x03ebb").unwrap();
    let mut frame = [0; 5];
    binary.0.read_exact(&mut frame).unwrap();
    let long = "x".repeat(8000);
    for sent in 0.. {
        publish(&group, long.clone());
        if group.skipped() > 0 {
            break;
        }
        assert!(sent < 100_000);
    }
    group.close(&Encoded::of("closed\n".into())).unwrap();
    assert_eq!(binary.0.read(&mut frame).unwrap(), 0, "its codec knows no such message");
    loop {
        match &*slow.line() {
            "closed" => break,
            line => assert_eq!(line.len(), long.len()),
        }
    }
    assert_eq!(slow.line(), "");
}

#[test]
fn broadcasts_over_a_filter_wait_for_the_handshake() {
    const KEY: u8 = 0xa5;
    let group: Group<Over<ToyTls, Lines>> = Group::new(Slow::Skip);
    let joins = group.clone();
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let server = server.start(move || (Over::new(ToyTls::server(KEY), Lines::new()), Joins(joins.clone()))).unwrap();
    let mut clients = Client::many(&server, 3);
    until("all have joined", || group.len() == 3);
    let news = Encoded::new(&mut Lines::new(), "high water at noon".into()).unwrap();
    group.send(&news.over()).unwrap();
    for client in &mut clients {
        client.0.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(client.0.read(&mut [0]).is_err(), "no byte may come before the handshake");
        client.0.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        client.0.get_mut().write_all(&ToyTls::client_wire(KEY, b"hello\n", 5)).unwrap();
        client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        client.0.read_to_end(&mut seen).unwrap();
        assert_eq!(ToyTls::decode_wire(KEY, &seen), (b"high water at noon\nhello\n".to_vec(), true));
    }
}

#[test]
fn a_group_is_send_even_if_its_codec_is_not() {
    fn shared<T: Clone + Send + Sync>() {}
    struct Bound(#[expect(dead_code, reason = "it binds the type to its thread")] std::rc::Rc<()>);
    shared::<Group<Bound>>();
    shared::<tidegate_engine::Member>();
    let empty: Result<(), GroupFull> = Group::<Lines>::new(Slow::Skip).send(&Encoded::of("ebb\n".into()));
    assert_eq!(empty, Ok(()));
}

/// Enters a room, and sends each line that it receives to it.
struct Enters {
    room: Room<Lines, u32>,
    number: u32,
    visit: Option<Visit<Lines, u32>>,
}

impl Handler<Lines> for Enters {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let greeting = |present: &mut dyn Iterator<Item = &u32>| {
            let present: Vec<_> = present.map(ToString::to_string).collect();
            Some(Encoded::of(format!("present {}\n", present.join(",")).into()))
        };
        match self.room.enter(&cx.member(), self.number, greeting) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => return Outcome::fail(error),
        }
        Outcome::Continue
    }

    fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.room.send(&Encoded::of([&line, &b"\n"[..]].concat().into())).into()
    }
}

/// A room with a history of eight messages, and a server of it.
fn serve_room(limits: RoomLimits, loops: usize) -> (Room<Lines, u32>, ServerHandle) {
    let room = Room::new(Slow::Shed, limits);
    let (of_server, numbers) = (room.clone(), std::sync::atomic::AtomicU32::new(0));
    let server = Server::bind("127.0.0.1:0").unwrap().loops(loops).start(move || {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        (Lines::new(), Enters { room: of_server.clone(), number, visit: None })
    });
    (room, server.unwrap())
}

fn limits(history: usize) -> RoomLimits {
    let mut limits = RoomLimits::default();
    limits.history_max = history;
    limits
}

fn connect(server: &ServerHandle) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn next_line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_newcomer_gets_every_message_once_in_its_history_or_afterwards() {
    let (room, server) = serve_room(limits(8), 3);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let numbers = scope.spawn(|| {
            let mut number = 0_u32;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                room.send(&Encoded::of(format!("{number}\n").into())).unwrap();
                number += 1;
                thread::sleep(Duration::from_micros(50));
            }
        });
        let guests: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mut guest = connect(&server);
                        assert!(next_line(&mut guest).starts_with("present "));
                        let first: u32 = next_line(&mut guest).parse().unwrap();
                        for expected in first + 1..first + 200 {
                            assert_eq!(next_line(&mut guest).parse(), Ok(expected));
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = guests.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        numbers.join().unwrap();
        assert!(ends.iter().all(Result::is_ok));
    });
    drop(server);
}

#[test]
fn a_room_knows_its_members_and_has_a_bound_on_them() {
    let mut limits = limits(0);
    limits.members_max = 2;
    let (room, server) = serve_room(limits, 1);
    let mut first = connect(&server);
    assert_eq!(next_line(&mut first), "present 0");
    let mut second = connect(&server);
    assert_eq!(next_line(&mut second), "present 0,1");
    assert_eq!(room.present(), [0, 1]);
    let mut third = connect(&server);
    assert_eq!(next_line(&mut third), "", "the room is full");
    second.get_mut().write_all(b"ahoy\n").unwrap();
    assert_eq!((next_line(&mut first), next_line(&mut second)), ("ahoy".into(), "ahoy".into()));
    drop(first);
    let begun = Instant::now();
    while room.len() == 2 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(room.present(), [1]);
    let mut fourth = connect(&server);
    assert_eq!(next_line(&mut fourth), "present 1,3");
}

#[test]
fn a_loop_that_newcomers_left_before_they_joined_gets_no_more_messages() {
    let group = Group::<Lines>::new(Slow::Skip);
    let mut by_hand = ByHand::new(&Group::new(Slow::Skip), 1);
    let member = by_hand.remotes[0].member();
    group.join_with(&member, &[Encoded::of("first\n".into())]).unwrap();
    group.send(&Encoded::of("second\n".into())).unwrap();
    by_hand.turn();
    assert_eq!((by_hand.read(0), group.len()), ("first\nsecond\n".into(), 1));
    // A connection that has ended joins nothing.
    drop(by_hand);
    group.join_with(&member, &[Encoded::of("first\n".into())]).unwrap();
    assert_eq!(group.len(), 0);
}
