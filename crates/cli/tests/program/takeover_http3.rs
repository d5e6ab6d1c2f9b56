//! Restarts of servers with `--http3`: requests over QUIC go on at their process, whose datagrams the next one sends on.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tidegate::engine::{SessionEndpoint, SessionLimits, SessionStreams};
use tidegate::http1::Request;
use tidegate::http1::client::Incoming;
use tidegate::quic::{self, ConnectionError, Direction};
use tidegate::sys::DatagramOptions;
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Backend, Channel, EventLoop, http3, task};

use crate::configuration::Files;
use crate::load::errors;
use crate::support::peer::letters;
use crate::support::program::{Directory, Program, tidegate, until};

type Client = http3::Endpoint<quic::Endpoint>;

/// Runs clients that are connected with a server, each from a port of its own.
fn connected<const N: usize>(
    server: SocketAddr,
    act: impl AsyncFnOnce([quic::Connection<Client>; N], Arc<http3::Config>),
) {
    let tls = ClientConfig::dangerous_builder_without_verification(&Provider::aws_lc_rs()).alpn(["h3"]);
    let config = quic::ClientConfig::new(&tls.build().unwrap(), quic::TransportLimits::default()).unwrap();
    let clients = async move {
        let of_http3 = Arc::new(http3::Config::default());
        let mut connections = Vec::new();
        for _ in 0..N {
            let endpoint = http3::Endpoint::client(of_http3.clone(), config.endpoint());
            let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
            let local = "127.0.0.1:0".parse().unwrap();
            let services = |_| SessionStreams::default();
            let socket = SessionEndpoint::bind(local, &options, limits, endpoint, services).unwrap();
            connections.push(quic::Connector::new(socket, &config).connect(server, "localhost").await.unwrap());
        }
        act(connections.try_into().unwrap(), of_http3).await;
    };
    EventLoop::on(Backend::Epoll).unwrap().block_on(clients).unwrap();
}

/// Sends a request, and returns the channel of its response.
async fn ask(
    connection: &quic::Connection<Client>,
    config: &Arc<http3::Config>,
    path: &str,
) -> Channel<http3::ClientStream> {
    let codec = http3::client_stream(config, Arc::default(), false);
    let mut channel = connection.open_when_allowed(Direction::Bidirectional, codec).await.unwrap();
    channel.send(Request::get(path).unwrap().host("localhost").unwrap().into()).unwrap();
    channel
}

/// A load over HTTP/3 that goes on until it is ended.
struct Http3Load(std::process::Child);

impl Http3Load {
    fn start(server: SocketAddr, target: &str) -> Self {
        let url = format!("https://{server}/{target}");
        let arguments = ["load", "--json", "-", "--http3", "--insecure", "-c", "4", "-m", "8", "-d", "1h", &url];
        Self(tidegate(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Ends it, and returns its figures. It has failed if it had errors.
    fn end(mut self) -> Value {
        rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().expect("it is piped"), &mut text).unwrap();
        let status = self.0.wait().unwrap();
        let figures: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
        assert_eq!(status.code(), Some(i32::from(!errors(&figures).is_empty())), "{figures}");
        figures
    }
}

impl Drop for Http3Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Restarts a program so many times under load, with other numbers of loops.
fn restart(start: impl Fn(&str) -> Program, count: usize, target: &str) {
    let mut program = start("2");
    let address = program.ip();
    let load = Http3Load::start(address, target);
    until("the load to begin", || program.ticks() > 5);
    for number in 0..count {
        let next = start(["1", "3", "2"][number % 3]);
        assert_eq!(next.ip(), address);
        assert_eq!(program.until_ended().code(), Some(0));
        program.until_logged("handing over", 1);
        let before = next.ticks();
        until("the load to go on", || next.ticks() > before + 2);
        program = next;
    }
    let figures = load.end();
    let [requests, goaways, refused] = ["requests", "goaways", "refused"].map(|key| figures[key].as_u64().expect(key));
    println!("{count} restarts: {requests} requests, {goaways} GOAWAY, {refused} refused, {:?}", errors(&figures));
    // On a busy machine a client reads the first GOAWAY later than the server sends the second one. The server rejects the requests
    // between them without processing them (RFC 9114 §5.2), and the load sends them again.
    assert_eq!(errors(&figures), [], "{figures}");
    assert!(goaways + refused >= count as u64, "{figures}");
}

/// Four times by default; `cargo xtask long` sets a hundred.
fn times() -> usize {
    std::env::var("TIDEGATE_RESTARTS").map_or(4, |times| times.parse().expect("a number of restarts"))
}

#[test]
fn restarts_of_a_server_under_load_over_http3_fail_no_request() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let flags = ["--tls-self-signed", "--http3", "--takeover", &path, "--loops"];
    restart(|loops| Program::serve(&[&flags[..], &[loops]].concat()), times(), "bytes/3000");
}

#[test]
fn restarts_of_a_proxy_under_load_over_http3_fail_no_request() {
    let (directory, upstream) = (Directory::new(), Program::serve(&["--loops", "1"]));
    let (path, url) = (directory.path("takeover"), format!("http://{}", upstream.ip()));
    let flags = ["--upstream", &url, "--tls-self-signed", "--http3", "--takeover", &path, "--loops"];
    restart(|loops| Program::proxy(&[&flags[..], &[loops]].concat()), times(), "bytes/3000");
}

#[test]
fn a_long_response_outlasts_a_takeover_and_the_client_learns_of_it() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let flags = ["--tls-self-signed", "--http3", "--takeover", &path, "--loops"];
    let start = |loops: &str| Program::serve(&[&flags[..], &[loops]].concat());
    let mut old = start("2");
    connected(old.ip(), async |[connection], config| {
        let mut response = ask(&connection, &config, "/bytes/20000000").await;
        assert!(matches!(response.recv().await.unwrap(), Some(Incoming::Head(head)) if head.status().code() == 200));
        let new = start("1");
        old.until_logged("handing over", 1);
        let mut body = Vec::new();
        while let Some(Incoming::Data(data)) = response.recv().await.unwrap() {
            body.extend_from_slice(&data);
        }
        assert!(body == letters(20_000_000), "the whole body came");
        // The connection is without a request: it gets GOAWAY, and ends.
        assert!(matches!(connection.closed().await, ConnectionError::ClosedByPeer { .. }));
        assert_eq!(old.until_ended().code(), Some(0));
        drop(response);
        connected(new.ip(), async |[next], config| {
            assert!(matches!(ask(&next, &config, "/bytes/3").await.recv().await.unwrap(), Some(Incoming::Head(_))));
        });
    });
}

#[test]
fn an_idle_connection_gets_goaway_when_another_server_takes_over() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let flags = ["--tls-self-signed", "--http3", "--takeover", &path, "--loops", "2"];
    let mut old = Program::serve(&flags);
    connected(old.ip(), async |[connection], config| {
        let mut response = ask(&connection, &config, "/bytes/3").await;
        while response.recv().await.unwrap().is_some() {}
        drop(response);
        let session = connection.number();
        let goaway = || connection.with(|endpoint, _| endpoint.peer_goaway(session));
        assert_eq!(goaway().unwrap(), None);
        let _new = Program::serve(&flags);
        let mut seen = None;
        while let Ok(now) = goaway() {
            seen = now.or(seen);
            if seen.is_some() && connection.with(|endpoint, _| endpoint.may_request(session)).is_ok_and(|may| !may) {
                break;
            }
            task::sleep(Duration::from_millis(1)).await;
        }
        assert!(seen.is_some(), "the connection has got GOAWAY");
        assert!(matches!(connection.closed().await, ConnectionError::ClosedByPeer { .. }));
        assert_eq!(old.until_ended().code(), Some(0));
    });
}

#[test]
fn connections_of_a_server_that_was_killed_get_a_reset_of_its_successor() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let flags = ["--tls-self-signed", "--http3", "--takeover", &path, "--loops", "2"];
    let mut old = Program::serve(&flags);
    connected(old.ip(), async |[connection], config| {
        // It is not read to its end, so the old server waits.
        let mut response = ask(&connection, &config, "/bytes/20000000").await;
        response.recv().await.unwrap();
        let _new = Program::serve(&flags);
        old.until_logged("handing over", 1);
        old.signal(Signal::KILL);
        old.until_ended();
        // Acknowledgements and credit of this side cause the reset.
        while response.recv().await.is_ok_and(|message| message.is_some()) {}
        assert_eq!(connection.closed().await, ConnectionError::Reset);
    });
}

/// A reload that changes a listener starts another server in the process.
#[test]
fn connections_are_ended_in_good_order_when_a_file_is_reloaded() {
    let files = Files::new();
    let file = |text: &str, second: &str| {
        let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nself-signed = true\nhttp3 = true\n";
        format!("{listen}{second}[[route]]\nrespond = {{ body = \"{text}\" }}\n")
    };
    let path = files.path("takeover");
    for flags in [&[][..], &["--takeover", &path]] {
        reload(&files, &file, flags);
    }
}

fn reload(files: &Files, file: &dyn Fn(&str, &str) -> String, flags: &[&str]) {
    files.write("gateway.toml", &file("one", ""));
    let program = files.start("gateway.toml", flags);
    connected(program.ip(), async |connections: [_; 6], config| {
        for connection in &connections {
            assert_eq!(get(connection, &config).await, b"one");
        }
        files.write("gateway.toml", &file("two", "[[listen]]\naddress = \"127.0.0.1:0\"\n"));
        program.signal(Signal::HUP);
        program.until_logged("configuration reloaded", 1);
        for connection in connections {
            assert!(matches!(connection.closed().await, ConnectionError::ClosedByPeer { .. }));
        }
    });
    connected(program.ip(), async |[connection], config| assert_eq!(get(&connection, &config).await, b"two"));
}

/// The body of the response to a GET.
async fn get(connection: &quic::Connection<Client>, config: &Arc<http3::Config>) -> Vec<u8> {
    let (mut response, mut body) = (ask(connection, config, "/").await, Vec::new());
    while let Some(message) = response.recv().await.unwrap() {
        if let Incoming::Data(data) = message {
            body.extend_from_slice(&data);
        }
    }
    body
}
