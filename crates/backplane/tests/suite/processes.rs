//! Processes of redis-server and nats-server, where they are installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::members::until;

/// A broker on the loopback address. It ends when it is dropped, and its folder with it.
pub(crate) struct BrokerProcess {
    kind: Kind,
    child: Child,
    folder: PathBuf,
    pub(crate) port: u16,
    arguments: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Redis,
    Nats,
}

impl BrokerProcess {
    /// `None`, with a line, if the program is not installed.
    pub(crate) fn start(kind: Kind, arguments: &[&str]) -> Option<Self> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        // Another program may take the port before the server does.
        for _ in 0..PORTS_MAX {
            let (folder, port) = (new_folder(), free_port());
            match spawn(kind, &folder, port, &arguments) {
                Ok(child) => {
                    let mut process = Self { kind, child, folder, port, arguments: arguments.clone() };
                    if process.gets_ready() {
                        return Some(process);
                    }
                }
                Err(error) => {
                    assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "{kind:?} is missing: {error}");
                    println!("skipped: {kind:?} is not installed: {error}");
                    return None;
                }
            }
        }
        panic!("{kind:?} has ended {PORTS_MAX} times");
    }

    /// Three masters of a Redis cluster, which have all slots.
    pub(crate) fn start_redis_cluster() -> Option<Vec<Self>> {
        let start = |_| {
            let bus = free_port().to_string();
            Self::start(Kind::Redis, &["--cluster-enabled", "yes", "--cluster-port", &bus])
                .map(|process| (process, bus))
        };
        let masters = (0..3).map(start).collect::<Option<Vec<_>>>()?;
        for (number, (first, last)) in [(0, 5460), (5461, 10_922), (10_923, 16_383)].into_iter().enumerate() {
            let master = &masters[number].0;
            assert_eq!(master.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)), "+OK");
            assert_eq!(master.command(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), "+OK");
        }
        // A server that has met another takes no epoch any more, and they meet from both sides.
        for (master, _) in &masters {
            for (other, bus) in &masters {
                assert_eq!(master.command(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port)), "+OK");
            }
        }
        let masters: Vec<_> = masters.into_iter().map(|(master, _)| master).collect();
        // One that knows all slots has as many ranges.
        until("the cluster is whole", || {
            masters.iter().all(|master| master.command("CLUSTER SLOTS") == "*3" && master.has_ok_state())
        });
        Some(masters)
    }

    /// Three servers of a NATS cluster, which place streams among them.
    pub(crate) fn start_nats_cluster() -> Option<Vec<Self>> {
        let routes = [free_port(), free_port(), free_port()].map(|port| format!("nats://127.0.0.1:{port}"));
        let all = routes.join(",");
        let start = |(number, route): (usize, &String)| {
            let name = format!("server{number}");
            Self::start(Kind::Nats, &["-n", &name, "--cluster_name", "tides", "--cluster", route, "--routes", &all])
        };
        routes.iter().enumerate().map(start).collect()
    }

    /// Whether the server takes its cluster for whole.
    fn has_ok_state(&self) -> bool {
        // A key of any slot is found, or is elsewhere.
        let reply = self.command("GET tides");
        reply == "$-1" || reply.starts_with("-MOVED")
    }

    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Redis => format!("redis://127.0.0.1:{}", self.port),
            Kind::Nats => format!("nats://127.0.0.1:{}", self.port),
        }
    }

    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Starts it again at its port, with the data that are in its folder.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.kind, &self.folder, self.port, &self.arguments).expect("it has started before");
        self.wait_until_ready();
    }

    pub(crate) fn remove_data(&self) {
        std::fs::remove_dir_all(&self.folder).expect("its folder");
        std::fs::create_dir_all(&self.folder).expect("a folder");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// The first line of the reply to a Redis command.
    pub(crate) fn command(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("it is sent");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    /// Publishes a message with these bytes as its headers, as a client of another author.
    pub(crate) fn publish_to_nats(&self, subject: &str, headers: &str, payload: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let (head, all) = (headers.len(), headers.len() + payload.len());
        let message = format!("HPUB {subject} {head} {all}\r\n{headers}{payload}\r\n");
        let wire = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\n{message}PING\r\n");
        stream.write_all(wire.as_bytes()).expect("it is sent");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a reply"));
        assert!(lines.any(|line| line == "PONG"));
    }

    fn wait_until_ready(&mut self) {
        assert!(self.gets_ready(), "{:?} has ended", self.kind);
    }

    /// Waits until the server takes connections. Returns `false` if it has ended.
    fn gets_ready(&mut self) -> bool {
        loop {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let is_ready = match self.kind {
                    Kind::Redis => {
                        stream.write_all(b"PING\r\n").is_ok() && {
                            let mut reply = [0; 5];
                            stream.read_exact(&mut reply).is_ok() && &reply == b"+PONG"
                        }
                    }
                    // INFO says it once JetStream has read its data.
                    Kind::Nats => {
                        let mut line = String::new();
                        BufReader::new(stream).read_line(&mut line).is_ok() && line.contains("\"jetstream\":true")
                    }
                };
                if is_ready {
                    return true;
                }
            }
            if self.child.try_wait().expect("it is ours").is_some() {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn spawn(kind: Kind, folder: &PathBuf, port: u16, arguments: &[String]) -> std::io::Result<Child> {
    let port = port.to_string();
    let mut command = match kind {
        Kind::Redis => {
            let mut command = Command::new("redis-server");
            command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port, "--dir"]);
            command.arg(folder);
            command
        }
        Kind::Nats => {
            let mut command = Command::new("nats-server");
            command.args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd"]).arg(folder);
            command
        }
    };
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-plane-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Ports that a server tries.
const PORTS_MAX: usize = 5;
