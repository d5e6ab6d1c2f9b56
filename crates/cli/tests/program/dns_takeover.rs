//! A DNS forwarder, and a gateway for datagrams, that are restarted while clients ask: no datagram is lost.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use crate::configuration::Files;
use crate::support::program::{Directory, PATIENCE, Program, tidegate, until};

/// A server that knows no name.
fn nameless() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            // A response: NXDOMAIN.
            buffer[2] |= 0x80;
            buffer[3] = 0x83;
            let _ = socket.send_to(&buffer[..length], source);
        }
    });
    address
}

/// A query for a name of its own.
fn query(number: u16) -> Vec<u8> {
    let mut query = [&number.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in [format!("n{number}"), "tides".into(), "test".into()] {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

fn client(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn exchange(socket: &UdpSocket, bytes: &[u8]) -> Vec<u8> {
    socket.send(bytes).unwrap();
    let mut buffer = [0; 2_048];
    let length = socket.recv(&mut buffer).expect("no datagram is lost");
    buffer[..length].to_vec()
}

/// A client that calls `ask` again and again, with numbers.
struct Asking {
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    client: thread::JoinHandle<()>,
}

impl Asking {
    fn start(mut ask: impl FnMut(u16) + Send + 'static) -> Self {
        let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, counted) = (over.clone(), count.clone());
        let client = thread::spawn(move || {
            for number in (0..=u16::MAX).cycle() {
                if is_over.load(Relaxed) {
                    return;
                }
                ask(number);
                counted.fetch_add(1, Relaxed);
            }
        });
        Self { over, count, client }
    }

    fn go_on(&self) {
        let before = self.count.load(Relaxed);
        until("the client to go on", || self.count.load(Relaxed) > before + 200 || self.client.is_finished());
    }

    fn end(self) {
        self.over.store(true, Relaxed);
        self.client.join().expect("each response came");
    }
}

#[test]
fn no_query_is_lost_while_one_forwarder_after_the_other_takes_over() {
    let (directory, upstream) = (Directory::new(), nameless().to_string());
    let path = directory.path("takeover");
    let start = |listen: &str, loops: &str| {
        let flags = ["--listen", listen, "--upstream", &upstream, "--takeover", &path, "--loops", loops];
        Program::start(tidegate(&[&["dns"][..], &flags[..]].concat())).unwrap()
    };
    let mut program = start("127.0.0.1:0", "2");
    let address = program.ip();
    let asking = Asking::start({
        let socket = client(address);
        move |number| {
            let response = exchange(&socket, &query(number));
            assert_eq!((&response[..2], response[3] & 15), (&number.to_be_bytes()[..], 3), "{response:?}");
        }
    });
    for loops in ["1", "3", "2"] {
        asking.go_on();
        let next = start(&address.to_string(), loops);
        assert_eq!(program.until_ended().code(), Some(0));
        asking.go_on();
        program = next;
    }
    asking.end();
}

#[test]
fn each_new_flow_has_its_response_while_one_gateway_after_the_other_takes_over() {
    let (files, directory) = (Files::new(), Directory::new());
    let path = directory.path("takeover");
    let file = |listen: &str, upstream: SocketAddr| {
        format!(
            "[[listen]]\naddress = \"{listen}\"\nprotocol = \"udp\"\nupstream = \"dns\"\n\
             [[upstream]]\nname = \"dns\"\nservers = [\"udp://{upstream}\"]\n"
        )
    };
    let upstream = nameless();
    files.write("gateway.toml", &file("127.0.0.1:0", upstream));
    let mut program = files.start("gateway.toml", &["--takeover", &path]);
    let line = |line: &String| line.split("listening on udp://").nth(1)?.split(' ').next()?.parse().ok();
    let address: SocketAddr = program.output().iter().find_map(line).expect("an address");
    let asking = Asking::start(move |number| {
        let response = exchange(&client(address), &query(number));
        assert_eq!(response[..2], number.to_be_bytes());
    });
    files.write("gateway.toml", &file(&address.to_string(), upstream));
    for _ in 0..3 {
        asking.go_on();
        let next = files.start("gateway.toml", &["--takeover", &path]);
        assert_eq!(program.until_ended().code(), Some(0));
        asking.go_on();
        program = next;
    }
    asking.end();
}
