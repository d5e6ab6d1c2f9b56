//! Zero-downtime restart: `--takeover`, and listeners from the environment.
//!
//! wrk generates the load. If it is missing, its tests are skipped with a message, unless `TIDEGATE_TOOLS_REQUIRED=1`
//! is in the environment.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::http3;
use crate::support::peer::Peer;
use crate::support::program::{Directory, Program, ending_with_the_test, tidegate, until};

/// A running wrk.
pub(crate) struct Load(Child);

impl Load {
    /// `None` if wrk is not installed.
    pub(crate) fn start(program: &Program, connections: u32, depth: u32) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/load.lua");
        let mut command = ending_with_the_test("wrk");
        command.args(["-t", "1", "-c", &connections.to_string(), "-d", "1h", "--timeout", "10s", "-s"]).arg(script);
        command.arg(format!("http://{}", program.ip())).args(["--", &depth.to_string()]);
        match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
                assert!(!required, "wrk is required: {error}");
                println!("skipped: there is no wrk here: {error}");
                None
            }
        }
    }

    /// Ends wrk with a signal, and returns the summary line of its script.
    pub(crate) fn end(mut self) -> String {
        rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().expect("it is piped"), &mut text).unwrap();
        assert!(self.0.wait().unwrap().success(), "{text}");
        text.lines().find_map(|line| line.strip_prefix("load-result ")).expect("the script says").to_owned()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Restarts the program `count` times under load, alternating the number of loops. Each server runs for `work`.
fn restart(count: usize, connections: u32, depth: u32, work: Duration) {
    restart_as(Program::serve, count, connections, depth, work);
}

/// The same with a program that `start_with` starts with flags.
pub(crate) fn restart_as(
    start_with: impl Fn(&[&str]) -> Program,
    count: usize,
    connections: u32,
    depth: u32,
    work: Duration,
) {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let start = |loops: &str| start_with(&["--loops", loops, "--takeover", &path]);
    let mut program = start("2");
    let address = program.ip();
    let Some(load) = Load::start(&program, connections, depth) else { return };
    until("wrk to begin", || program.ticks() > 5);
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    for number in 0..count {
        std::thread::sleep(work);
        let began = Instant::now();
        let next = start(["1", "2", "3"][number % 3]);
        assert_eq!(next.ip(), address);
        assert_eq!(program.until_ended().code(), Some(0));
        program.until_logged("handing over", 1);
        next.until_logged("took over", 1);
        let others = program.log().into_iter().chain(next.log()).filter(|line| line.contains("closed")).count();
        assert_eq!(others, 0, "{:?} {:?}", program.log(), next.log());
        slowest = slowest.max(began.elapsed());
        program = next;
    }
    let (took, result) = (begun.elapsed(), load.end());
    println!(
        "{count} restarts in {took:.1?} with {connections} connections, the slowest in {slowest:.1?}; {depth} deep: {result}"
    );
    for error in ["connect", "read", "write", "timeout", "status"] {
        assert!(result.contains(&format!("\"{error}\": 0")), "{result}");
    }
    assert!(!result.contains("\"requests\": 0"), "{result}");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    assert!(!Path::new(&path).exists(), "nothing is left behind");
}

#[test]
fn restarts_under_load_fail_no_request() {
    for depth in [1, 16] {
        restart(5, 32, depth, Duration::from_millis(50));
    }
}

/// Restarts without a pause: many connections live through more than one restart.
#[test]
fn a_hundred_restarts_under_load_fail_no_request() {
    restart(100, 64, 1, Duration::ZERO);
}

/// Three times by default; `cargo xtask long` sets a hundred.
#[test]
fn restarts_of_running_servers_under_load_fail_no_request() {
    let times = std::env::var("TIDEGATE_RESTARTS").map_or(3, |times| times.parse().expect("a number of restarts"));
    for (connections, depth) in [(256, 1), (64, 16)] {
        restart(times, connections, depth, Duration::from_millis(500));
    }
}

#[test]
fn after_a_takeover_old_connections_finish_and_new_ones_go_to_the_new_server() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let mut old = Program::serve(&["--loops", "1", "--takeover", &path]);
    let mut busy = Peer::narrow(&old);
    busy.send(crate::support::peer::request("GET", "/bytes/3000000"));
    busy.head();
    let mut idle = Peer::connect(&old);
    assert_eq!(idle.get("/plaintext").status, 200);

    // The new server listens on the address of the old one, whatever --listen names.
    let new = Program::serve(&["--loops", "1", "--takeover", &path]);
    assert_eq!(new.ip(), old.ip());
    // The idle connection had a request in flight.
    let reply = idle.get("/plaintext");
    assert_eq!(reply.status, 200);
    assert_eq!(Peer::connect(&new).get("/plaintext").status, 200);
    crate::support::peer::assert_same(&busy.take(3_000_000), &crate::support::peer::letters(3_000_000));
    drop((busy, idle));
    assert_eq!(old.until_ended().code(), Some(0));
    assert_eq!(Peer::connect(&new).get("/plaintext").status, 200);
}

#[test]
fn a_killed_server_is_replaced() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let old = Program::serve(&["--loops", "1", "--takeover", &path]);
    old.signal(Signal::KILL);
    drop(old);
    assert!(Path::new(&path).exists());
    let new = Program::serve(&["--loops", "1", "--takeover", &path]);
    assert_eq!(Peer::connect(&new).get("/plaintext").status, 200);
    assert_eq!(new.log(), Vec::<String>::new());
}

/// Two servers start at once with no predecessor: one remains, and the next takes over from it.
#[test]
fn of_two_simultaneous_first_starts_one_remains() {
    for _ in 0..10 {
        let directory = Directory::new();
        let path = directory.path("takeover");
        let serve = || tidegate(&["serve", "--listen", "127.0.0.1:0", "--loops", "1", "--takeover", &path]);
        let mut both = [(); 2].map(|()| Program::spawn(serve().stdin(Stdio::null())));
        both.iter_mut().for_each(Program::until_started);
        until("one of them to end", || both.iter_mut().any(|program| !program.is_running()));
        let left = usize::from(!both[0].is_running());
        assert_eq!(both[1 - left].until_ended().code(), Some(0));
        assert_eq!(Peer::connect(&both[left]).get("/plaintext").status, 200);
        let next = Program::start(serve()).expect("it starts");
        assert_eq!(next.ip(), both[left].ip());
        assert_eq!(both[left].until_ended().code(), Some(0));
        drop(next);
    }
}

/// The program with a listener as descriptor 3, as a service manager starts it.
fn activated(descriptor: OwnedFd, count: &str, arguments: &[&str]) -> Command {
    let mut command = ending_with_the_test("sh");
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_tidegate"), "serve", "--loops", "2"]).args(arguments);
    command.env("LISTEN_FDS", count).stdin(descriptor);
    command
}

#[test]
fn a_listener_passed_by_the_environment_is_used() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Before the server starts: the connection waits in the backlog.
    let mut early = Peer::to(&address.into());
    early.send(crate::support::peer::request("GET", "/plaintext"));
    let mut command = activated(listener.into(), "1", &["--listen", "192.0.2.1:80"]);
    let mut program = Program::start_with_input(&mut command).unwrap();
    assert_eq!(program.ip(), address);
    assert_eq!(early.reply().status, 200);
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    drop(early);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

/// The program with two listeners as descriptors 3 and 4.
fn activated_twice(first: OwnedFd, second: &OwnedFd, arguments: &[&str]) -> Command {
    // The child gets it by its number.
    rustix::io::fcntl_setfd(second, rustix::io::FdFlags::empty()).unwrap();
    let mut command = ending_with_the_test("bash");
    let script = format!(
        "exec 4<&{} 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$@\"",
        std::os::fd::AsRawFd::as_raw_fd(second)
    );
    command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_tidegate"), "serve", "--loops", "2"]).args(arguments);
    command.stdin(first);
    command
}

/// Each passed socket serves the `[[listen]]` with its address, before and after a reload that changes the listeners.
#[test]
fn passed_sockets_go_to_the_listeners_with_their_addresses() {
    let directory = Directory::new();
    let [plain, limited] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = [&plain, &limited].map(|listener| listener.local_addr().unwrap());
    std::fs::create_dir(directory.path("www")).unwrap();
    std::fs::write(directory.path("www/page"), vec![b'x'; 100]).unwrap();
    let (path, www) = (directory.path("tidegate.toml"), directory.path("www"));
    let write = |listens: String| {
        std::fs::write(&path, format!("{listens}\n[[route]]\nfolder = \"{www}\"\n")).unwrap();
    };
    let listen = |address| format!("[[listen]]\naddress = \"{address}\"\n");
    let (http, https) = (listen(first), listen(second) + "protocol = \"https\"\nself-signed = true\n");
    write(format!("{http}{https}{}", listen("127.0.0.2:0".parse().unwrap())));
    // In the other order than in the file.
    let second_descriptor: OwnedFd = plain.into();
    let mut command = activated_twice(limited.into(), &second_descriptor, &["--config", &path]);
    let mut program = Program::start_with_input(&mut command).unwrap();
    drop(second_descriptor);
    let status = || Peer::to(&first.into()).get("/page").status;
    assert_eq!(status(), 200);
    // The other one speaks TLS: a request without it gets an alert, or nothing.
    let mut plain = std::net::TcpStream::connect(second).unwrap();
    std::io::Write::write_all(&mut plain, b"GET /page HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut received = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut received);
    assert!(!received.starts_with(b"HTTP/"), "{received:?}");
    program.until_logged("no passed socket is bound to it", 1);

    // Without the listener of a socket, which stays open for it.
    write(http.clone() + "limits = { idle-timeout = 30 }\n" + &listen("127.0.0.2:0".parse().unwrap()));
    program.signal(Signal::HUP);
    let unserved = program.until_logged("no listener has the address of a passed socket", 1);
    assert!(unserved[0].contains(" WARN ") && unserved[0].contains(&second.to_string()), "{unserved:?}");
    program.until_logged("configuration reloaded", 1);
    assert_eq!(status(), 200);
    write(format!("{http}{https}"));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 2);
    assert_eq!(status(), 200);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

/// A socket for TCP and one for UDP at its port: no loop but one has the latter, and that stays so through a reload.
#[test]
fn a_passed_datagram_socket_serves_http3_beside_the_stream_socket_of_its_port() {
    let directory = Directory::new();
    let (stream, datagram, address) = loop {
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = stream.local_addr().unwrap();
        // Another program may have the port for datagrams.
        if let Ok(datagram) = UdpSocket::bind(address) {
            break (stream, datagram, address);
        }
    };
    std::fs::write(directory.path("page"), "ebb").unwrap();
    let path = directory.path("tidegate.toml");
    let write = |more: &str| {
        let listen = "protocol = \"https\"\nself-signed = true";
        let text = format!(
            "[[listen]]\naddress = \"{address}\"\n{listen}\n{more}\n[[route]]\nfolder = \"{}\"\n",
            directory.path("")
        );
        std::fs::write(&path, text).unwrap();
    };
    write("http3 = true");
    let datagram: OwnedFd = datagram.into();
    let mut command = activated_twice(stream.into(), &datagram, &["--config", &path]);
    let mut program = Program::start_with_input(&mut command).unwrap();
    drop(datagram);
    let serves = || {
        let (status, _, body) = http3::get(address, "/page").expect("a response");
        assert_eq!((status, &body[..]), (200, &b"ebb"[..]));
    };
    serves();
    write("http3 = true\nlimits = { idle-timeout = 30 }");
    program.signal(Signal::HUP);
    program.until_logged("listeners changed", 1);
    serves();
    let warnings: Vec<_> = program.log().into_iter().filter(|line| line.contains("passed socket")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    // Without HTTP/3 nothing serves the socket.
    write("");
    program.signal(Signal::HUP);
    program.until_logged("no listener has the address of a passed socket", 1);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

/// The unit decides which versions of IP a passed socket accepts, and a listener that wants others does not start.
#[test]
fn ipv6_only_on_a_passed_socket_of_both_versions_names_the_key_of_the_unit() {
    let Ok(listener) = TcpListener::bind("[::]:0") else { return };
    let address = listener.local_addr().unwrap().to_string();
    let directory = Directory::new();
    let path = directory.path("tidegate.toml");
    let file =
        format!("[[listen]]\naddress = \"{address}\"\nipv6-only = true\n[[route]]\nrespond = {{ body = \"up\" }}\n");
    std::fs::write(&path, file).unwrap();
    for arguments in [&["--config", &path][..], &["--listen", &address, "--ipv6-only"]] {
        let mut command = activated(listener.try_clone().unwrap().into(), "1", arguments);
        let errors = Program::start_with_input(&mut command).err().expect("it does not start");
        assert_eq!(errors.len(), 1, "{errors:?}");
        let expected = format!("the passed socket {address} accepts IPv4 too");
        assert!(
            errors[0].contains(&expected) && errors[0].contains("BindIPv6Only=ipv6-only in the unit"),
            "{errors:?}"
        );
    }
}

#[test]
fn invalid_listen_variables_are_one_error_line_and_exit_code_2() {
    let listener = || -> OwnedFd { TcpListener::bind("127.0.0.1:0").unwrap().into() };
    let file = std::fs::File::open("/dev/null").unwrap();
    for (descriptor, count) in [(listener(), "many"), (listener(), "9"), (listener(), "4000"), (file.into(), "1")] {
        let output = activated(descriptor, count, &["--listen", "127.0.0.1:0"]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with("tidegate: ") && errors.contains("LISTEN_FDS"), "{errors}");
    }
    // LISTEN_PID names another process.
    let mut command = tidegate(&["serve", "--listen", "127.0.0.1:0", "--loops", "1"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let program = Program::start(command).unwrap();
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
}
