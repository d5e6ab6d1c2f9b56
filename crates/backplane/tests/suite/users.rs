//! Users on several nodes: messages to a user wherever the connections are, and kicks.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use tidegate::framing::Lines;
use tidegate::{
    Context, Encoded, Handler, Outcome, RoomEvent, RoomLimits, Rooms, Server, ServerHandle, Slice, Slow, UserLimits,
    Users, Visit,
};
use tidegate_backplane::{Backplane, MemoryBroker};

use crate::brokers::with_each_broker;
use crate::members::until;

fn encoded(event: RoomEvent<'_>) -> Option<Encoded<Lines>> {
    let line = match event {
        RoomEvent::Message { bytes, .. } => format!("{}\n", String::from_utf8_lossy(bytes)),
        RoomEvent::Kicked(kick) => format!("kicked {} {}\n", kick.code, kick.reason),
        _ => return None,
    };
    Some(Encoded::of(line.into()))
}

/// A connection whose first line is the name of its user.
struct Connection {
    users: Users<Lines>,
    visit: Option<Visit<Lines>>,
}

impl Handler<Lines> for Connection {
    type Post = ();

    fn message(&mut self, name: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let user = String::from_utf8_lossy(&name).into_owned();
        let Some(room) = self.users.room(&user) else { return Outcome::Close };
        match room.enter(&cx.member(), (), |_| None) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => return Outcome::fail(error),
        }
        Outcome::Continue
    }
}

/// A node with its users.
struct Node {
    users: Users<Lines>,
    server: ServerHandle,
    backplane: Backplane,
}

impl Node {
    fn start(backplane: Backplane, history_max: usize) -> Self {
        Self::with_connections_max(backplane, history_max, UserLimits::default().connections_max)
    }

    fn with_connections_max(backplane: Backplane, history_max: usize, connections_max: usize) -> Self {
        let rooms = Rooms::new(Slow::Skip, RoomLimits::default()).encoding(encoded).with(&backplane);
        let mut limits = UserLimits::default();
        (limits.history_max, limits.connections_max) = (history_max, connections_max);
        let users = Users::new(&rooms, &limits);
        let of_server = users.clone();
        let server = Server::bind("127.0.0.1:0").expect("an address").loops(2);
        let handler = move || (Lines::new(), Connection { users: of_server.clone(), visit: None });
        Self { users, server: server.start(handler).expect("loops"), backplane }
    }

    fn connect(&self, user: &str) -> Client {
        let mut stream = TcpStream::connect(self.server.address().ip().expect("an address")).expect("a connection");
        // Against hanging only.
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        writeln!(stream, "{user}").expect("it is sent");
        Client(BufReader::new(stream))
    }

    fn publish(&self, user: &str, text: &'static str) {
        self.users.publish(user, &Bytes::from_static(text.as_bytes())).expect("there is room");
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// The next line; empty once the connection has ended.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Reads until this line has come.
    fn until(&mut self, wanted: &str) {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the connection has ended before {wanted:?}");
            if line == wanted {
                return;
            }
        }
    }
}

#[test]
fn a_message_to_a_user_reaches_all_connections_on_all_nodes_and_no_other_user() {
    with_each_broker(|nodes| {
        let [north, south, none] = [(); 3].map(|()| Node::start(nodes.start(), 10));
        let mut ada = [north.connect("ada"), north.connect("ada"), south.connect("ada")];
        let mut grace = south.connect("grace");
        // The node without connections sends, too. Its message is in the history for those that are late.
        none.publish("ada", "from elsewhere");
        ada.iter_mut().for_each(|client| assert_eq!(client.line(), "from elsewhere"));
        south.publish("grace", "for grace");
        assert_eq!(grace.line(), "for grace");
        north.publish("ada", "one");
        let encoded = Encoded::of("two\n".into());
        north.users.send("ada", &encoded).expect("there is room");
        ada.iter_mut().for_each(|client| assert_eq!((client.line(), client.line()), ("one".into(), "two".into())));
        south.publish("grace", "last");
        assert_eq!(grace.line(), "last");
    });
}

#[test]
fn a_kick_closes_all_connections_of_a_user_on_all_nodes() {
    with_each_broker(|nodes| {
        let [north, south, none] = [(); 3].map(|()| Node::start(nodes.start(), 10));
        for from in [&north, &none] {
            // The kick of the first round is older than the delay of a reply when its users return.
            std::thread::sleep(Duration::from_millis(100));
            let mut ada = [north.connect("ada"), north.connect("ada"), south.connect("ada")];
            let mut grace = south.connect("grace");
            // The messages show that the connections are in their rooms.
            none.publish("ada", "hello");
            ada.iter_mut().for_each(|client| client.until("hello"));
            none.publish("grace", "hello");
            grace.until("hello");
            from.users.kick("ada", 4001, "signed out").expect("there is room");
            for client in &mut ada {
                // The second round has the first one's message in its history.
                let line = loop {
                    match client.line() {
                        line if line == "hello" => {}
                        line => break line,
                    }
                };
                assert_eq!((line, client.line()), ("kicked 4001 signed out".into(), String::new()));
            }
            none.publish("grace", "still here");
            grace.until("still here");
        }
        assert!([&north, &south, &none].iter().all(|node| node.backplane.counts().foreign == 0));
    });
}

#[test]
fn a_node_does_not_kick_those_that_came_back_with_its_own_kick() {
    let broker = MemoryBroker::new();
    let [north, south] = [(); 2].map(|()| Node::start(Backplane::memory(&broker).spawn().expect("a thread"), 10));
    let mut before = north.connect("ada");
    north.publish("ada", "hello");
    assert_eq!(before.line(), "hello");
    north.users.kick("ada", 4001, "").expect("there is room");
    let mut again = north.connect("ada");
    assert_eq!(before.line(), "kicked 4001");
    assert_eq!(again.line(), "hello");
    // The kick has passed the broker before this message has.
    south.publish("ada", "welcome back");
    north.publish("ada", "good");
    let mut lines = [again.line(), again.line()];
    lines.sort_unstable();
    assert_eq!(lines, ["good", "welcome back"]);
}

#[test]
fn connections_of_a_user_on_a_node_are_bounded() {
    let backplane = Backplane::memory(&MemoryBroker::new()).spawn().expect("a thread");
    let node = Node::with_connections_max(backplane, 10, 3);
    let mut three = [(); 3].map(|()| node.connect("ada"));
    node.publish("ada", "hello");
    three.iter_mut().for_each(|client| assert_eq!(client.line(), "hello"));
    assert_eq!(node.connect("ada").line(), "", "it is the fourth");
    let mut other = node.connect("grace");
    node.publish("grace", "hello");
    assert_eq!(other.line(), "hello");
}

#[test]
fn a_kick_without_a_backplane_closes_those_of_this_process() {
    let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).encoding(encoded);
    let users = Users::new(&rooms, &UserLimits::default());
    let of_server = users.clone();
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let handler = move || (Lines::new(), Connection { users: of_server.clone(), visit: None });
    let server = server.start(handler).expect("loops");
    let mut stream = TcpStream::connect(server.address().ip().expect("an address")).expect("a connection");
    writeln!(stream, "ada").expect("it is sent");
    let mut client = Client(BufReader::new(stream));
    let room = users.room("ada").expect("there is room");
    until("the user is in its room", || !room.is_empty());
    users.kick("nobody", 4001, "not here").expect("there is room");
    let long = format!("{}ü", "x".repeat(122));
    users.kick("ada", 1008, &long).expect("there is room");
    assert_eq!((client.line(), client.line()), (format!("kicked 1008 {}", "x".repeat(122)), String::new()));
}
