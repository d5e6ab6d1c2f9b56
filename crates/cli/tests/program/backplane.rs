//! `--backplane`: rooms of /chat that span processes, on a real redis-server and nats-server where they are installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::admin::{admin_address, get};
use crate::chat::Guest;
use crate::support::program::{Program, run, until};

/// A redis-server on the loopback address. It ends when it is dropped.
struct RedisProcess {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl RedisProcess {
    /// `None`, with a line, if there is no redis-server.
    fn start(name: &str, port: u16) -> Option<Self> {
        Self::start_with(name, port, &[])
    }

    /// A cluster of one master, which has all slots.
    fn start_cluster(name: &str) -> Option<Self> {
        let bus = free_port().to_string();
        let redis = Self::start_with(name, free_port(), &["--cluster-enabled", "yes", "--cluster-port", &bus])?;
        until("the slots of the cluster", || redis.command("CLUSTER ADDSLOTSRANGE 0 16383") == "+OK");
        until("the cluster", || redis.command("GET tides") == "$-1");
        Some(redis)
    }

    fn start_with(name: &str, port: u16, arguments: &[&str]) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("tidegate-backplane-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]);
        match command.arg(&directory).args(arguments).stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Self { child, directory, port }),
            Err(error) => {
                println!("skipped: there is no redis-server: {error}");
                None
            }
        }
    }

    /// The first line of the reply to a command; none if the server does not listen yet.
    fn command(&self, command: &str) -> String {
        let mut line = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            stream.write_all(format!("{command}\r\n").as_bytes()).expect("it is sent");
            BufReader::new(stream).read_line(&mut line).expect("a reply");
        }
        line.trim_end().to_owned()
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The texts of the next messages.
fn texts(guest: &mut Guest, count: usize) -> Vec<String> {
    (0..count).map(|_| guest.event_of("message")["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn members_of_two_processes_read_the_same_messages_in_the_same_order() {
    let Some(redis) = RedisProcess::start("order", free_port()) else { return };
    let nodes = [(); 2].map(|()| Program::serve(&["--backplane", &redis.url(), "--chat-rate", "100000"]));
    let mut guests: Vec<_> = [0, 1, 0, 1]
        .into_iter()
        .enumerate()
        .map(|(number, node): (_, usize)| Guest::enter(nodes[node].ip(), "tides", &format!("g{number}")))
        .collect();
    // All rooms are open once everyone has everyone's first message: four are fewer than the history has.
    guests.iter_mut().for_each(|guest| guest.say("hello"));
    guests.iter_mut().for_each(|guest| assert_eq!(texts(guest, 4), ["hello"; 4]));
    for number in 0..50 {
        for (place, guest) in guests.iter_mut().enumerate() {
            guest.say(&format!("{place} says {number}"));
        }
    }
    let read: Vec<_> = guests.iter_mut().map(|guest| texts(guest, 200)).collect();
    for (place, texts) in read.iter().enumerate() {
        assert_eq!(texts, &read[0], "guest {place}");
    }
    // Each guest's own messages are in its order.
    let own: Vec<_> = read[0].iter().filter(|text| text.starts_with("2 says")).cloned().collect();
    assert_eq!(own, (0..50).map(|number| format!("2 says {number}")).collect::<Vec<_>>());
    // A newcomer gets the end of it, on a node that has just started, too.
    let third = Program::serve(&["--backplane", &redis.url()]);
    let mut newcomer = Guest::enter(third.ip(), "tides", "late");
    assert_eq!(texts(&mut newcomer, 20), read[0][180..]);
}

#[test]
fn members_of_two_processes_read_the_same_messages_over_a_cluster() {
    let Some(redis) = RedisProcess::start_cluster("cluster") else { return };
    // A server of the cluster that does not listen is left out.
    let several = format!("redis://127.0.0.1:{},127.0.0.1:{}", free_port(), redis.port);
    let one = format!("redis+cluster://127.0.0.1:{}", redis.port);
    let nodes = [&several, &one].map(|url| Program::serve(&["--backplane", url, "--chat-rate", "100000"]));
    let mut guests = [0, 1].map(|node: usize| Guest::enter(nodes[node].ip(), "tides", &format!("g{node}")));
    guests.iter_mut().for_each(|guest| guest.say("hello"));
    guests.iter_mut().for_each(|guest| assert_eq!(texts(guest, 2), ["hello"; 2]));
    for number in 0..50 {
        for (place, guest) in guests.iter_mut().enumerate() {
            guest.say(&format!("{place} says {number}"));
        }
    }
    let read = guests.each_mut().map(|guest| texts(guest, 100));
    assert_eq!(read[0], read[1]);
}

#[test]
fn members_of_two_processes_read_the_same_messages_over_nats() {
    let Some((_nats, url)) = nats() else { return };
    let nodes = [(); 2].map(|()| Program::serve(&["--backplane", &url, "--chat-rate", "100000"]));
    let mut guests = [0, 1].map(|node: usize| Guest::enter(nodes[node].ip(), "tides", &format!("g{node}")));
    guests.iter_mut().for_each(|guest| guest.say("hello"));
    guests.iter_mut().for_each(|guest| assert_eq!(texts(guest, 2), ["hello"; 2]));
    for number in 0..50 {
        for (place, guest) in guests.iter_mut().enumerate() {
            guest.say(&format!("{place} says {number}"));
        }
    }
    let read = guests.each_mut().map(|guest| texts(guest, 100));
    assert_eq!(read[0], read[1]);
    let third = Program::serve(&["--backplane", &url]);
    let mut newcomer = Guest::enter(third.ip(), "tides", "late");
    assert_eq!(texts(&mut newcomer, 20), read[0][80..]);
}

/// A process that ends when it is dropped, and its folder with it.
struct NatsProcess(Child, PathBuf);

impl Drop for NatsProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
        drop(std::fs::remove_dir_all(&self.1));
    }
}

/// A nats-server with JetStream on the loopback address, and its URL. `None`, with a line, if there is none.
fn nats() -> Option<(NatsProcess, String)> {
    let directory = std::env::temp_dir().join(format!("tidegate-backplane-nats-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let port = free_port();
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(&directory);
    match command.stderr(Stdio::null()).spawn() {
        Ok(child) => Some((NatsProcess(child, directory), format!("nats://127.0.0.1:{port}"))),
        Err(error) => {
            println!("skipped: there is no nats-server: {error}");
            None
        }
    }
}

#[test]
fn guests_of_all_processes_are_counted() {
    let Some(redis) = RedisProcess::start("presence", free_port()) else { return };
    let nodes = [(); 2].map(|()| Program::serve(&["--backplane", &redis.url()]));
    let mut gull = Guest::enter(nodes[0].ip(), "tides", "gull");
    gull.event_of("present");
    // The other node learns of the gull within the window of presence.
    loop {
        let mut tern = Guest::enter(nodes[1].ip(), "tides", "tern");
        let present = tern.event_of("present");
        if present["names"].as_array().is_some_and(|names| names.iter().any(|name| name == "gull")) {
            assert!(present["count"].as_u64() >= Some(2));
            break;
        }
    }
}

#[test]
fn a_broker_that_comes_back_empty_is_a_gap_and_readiness_follows_it() {
    let port = free_port();
    let Some(mut redis) = RedisProcess::start("restart", port) else { return };
    let node = Program::serve(&["--backplane", &redis.url(), "--admin", "127.0.0.1:0"]);
    let admin = admin_address(&node);
    let until_ready = |wanted: &str| while !get(admin, "/ready").text().starts_with(wanted) {};
    until_ready("ready\n");
    let mut gull = Guest::enter(node.ip(), "tides", "gull");
    gull.say("one");
    assert_eq!(texts(&mut gull, 1), ["one"]);
    assert_eq!(redis.command("REPLICAOF 127.0.0.1 1"), "+OK");
    gull.say("refused");
    until_ready("backplane: the broker refuses messages: the server answers: READONLY");
    assert_eq!(redis.command("REPLICAOF NO ONE"), "+OK");
    until_ready("ready\n");
    redis.kill();
    gull.event_of("offline");
    until_ready("backplane: the broker is not connected: ");
    drop(redis);
    let Some(_redis) = RedisProcess::start("restart-2", port) else { return };
    gull.event_of("gap");
    gull.event_of("online");
    gull.say("two");
    assert_eq!(texts(&mut gull, 1), ["two"]);
    until_ready("ready\n");
    let metrics = get(admin, "/metrics");
    let metrics = metrics.text();
    assert!(metrics.contains("\ntidegate_backplane_gaps_total 1\n"), "{metrics}");
    assert!(metrics.contains("\ntidegate_backplane_up 1\n"), "{metrics}");
}

#[test]
fn an_address_that_is_none_is_refused_with_a_remedy() {
    for (url, remedy) in [
        ("127.0.0.1:6379", "begins with redis://"),
        ("redis://a b", "redis://HOST:PORT"),
        ("redis://127.0.0.1/x", "a number"),
        ("redis://127.0.0.1,127.0.0.2/1", "0 in a cluster"),
        ("redis://127.0.0.1,a b", "redis://HOST:PORT,HOST:PORT"),
        ("redis+cluster://", "redis://HOST:PORT"),
        ("nats://a b", "nats://HOST:PORT"),
        ("redis://ada:secret@127.0.0.1/x", "--backplane 127.0.0.1/x: "),
        ("nats://ada:secret@a b", "--backplane a b: "),
    ] {
        let (status, _, stderr) = run(&["serve", "--listen", "127.0.0.1:0", "--backplane", url]);
        assert_ne!(status, Some(0));
        assert!(stderr.iter().any(|line| line.contains(remedy)), "{url}: {stderr:?}");
        assert!(!stderr.iter().any(|line| line.contains("secret")), "{url}: {stderr:?}");
    }
}
