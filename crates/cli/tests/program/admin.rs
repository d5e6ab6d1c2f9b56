//! `--admin` of both servers: metrics, health and readiness through a drain, a takeover and want; and `tidegate top`.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;

use tidegate_testkit::ClosedPort;

use crate::support::peer::{LAST, Peer, Reply};
use crate::support::program::{Directory, Program, backend, ending_with_the_test, refused, run, tidegate, until};

/// A server with an administrative server on a free port.
fn serve(arguments: &[&str]) -> (Program, SocketAddr) {
    let program = Program::serve(&[&["--loops", "1", "--admin", "127.0.0.1:0"], arguments].concat());
    let address = admin_address(&program);
    (program, address)
}

/// The address of its administrative server.
pub(super) fn admin_address(program: &Program) -> SocketAddr {
    let line = || {
        program.output().into_iter().find_map(|line| Some(line.strip_prefix("tidegate: admin at http://")?.to_owned()))
    };
    until("the line of the admin", || line().is_some());
    let line = line().expect("it was just seen");
    line.split(' ').next().and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address in {line}"))
}

pub(super) fn get(address: SocketAddr, path: &str) -> Reply {
    let mut peer = Peer::to(&address.into());
    peer.exchange(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

fn metric(address: SocketAddr, name: &str) -> u64 {
    let reply = get(address, "/metrics");
    let line = reply.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {}", reply.text())).parse().unwrap()
}

#[test]
fn the_requests_of_the_site_are_counted_on_the_admin_alone() {
    let (program, admin) = serve(&[]);
    let mut peer = Peer::connect(&program);
    for path in ["/plaintext", "/plaintext", "/json", "/bytes/7", "/nowhere", "/metrics"] {
        peer.get(path);
    }
    assert_eq!(peer.get("/dashboard").status, 404);
    let of = |route: &str, status: &str| {
        let name = format!("tidegate_http_requests_total{{route=\"{route}\",method=\"GET\",status=\"{status}\"}}");
        metric(admin, &name)
    };
    assert_eq!(
        [of("/plaintext", "2xx"), of("/json", "2xx"), of("/bytes/{length}", "2xx"), of("", "4xx")],
        [2, 1, 1, 3]
    );
    assert_eq!((get(admin, "/health").status, get(admin, "/ready").status), (200, 200));
    assert_eq!(get(admin, "/plaintext").status, 404);
    assert!(get(admin, "/dashboard").text().contains("<title>Tidegate</title>"));
}

#[test]
fn handshakes_of_websocket_and_refusals_are_counted() {
    let (program, admin) = serve(&[]);
    let handshake = "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    for path in ["/ws", "/chat/ws?name=a&room=b"] {
        let mut peer = Peer::connect(&program);
        peer.send(format!("GET {path} HTTP/1.1\r\n{handshake}"));
        assert!(peer.head().starts_with("HTTP/1.1 101 "), "{path}");
    }
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.get("/ws").status, 426);
    assert_eq!((peer.get("/echo").status, peer.get("/sum").status, peer.get("/chat").status), (405, 405, 200));
    for (route, status) in
        [("/ws", "1xx"), ("/ws", "4xx"), ("/chat/ws", "1xx"), ("/echo", "4xx"), ("/sum", "4xx"), ("/chat", "2xx")]
    {
        let name = format!("tidegate_http_requests_total{{route=\"{route}\",method=\"GET\",status=\"{status}\"}}");
        assert_eq!(metric(admin, &name), 1, "{name}");
    }
    assert!(!get(admin, "/metrics").text().contains("route=\"/echo\",method=\"GET\",status=\"2xx\""));
}

#[test]
fn requests_that_the_codec_refuses_are_counted_once() {
    let (program, admin) = serve(&[]);
    let chunked = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    let without_host = "GET / HTTP/1.1\r\n\r\n".to_owned();
    for request in [without_host, chunked("/sum"), format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000))] {
        let mut peer = Peer::connect(&program);
        let status = peer.exchange(request.clone()).status;
        assert!((400..500).contains(&status), "{request}: {status}");
    }
    let mut peer = Peer::connect(&program);
    let body = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nebb";
    assert_eq!(peer.exchange(body).status, 200);
    assert_eq!(metric(admin, "tidegate_http_requests_total{route=\"\",method=\"other\",status=\"4xx\"}"), 3);
    assert_eq!(metric(admin, "tidegate_http_requests_total{route=\"/sum\",method=\"POST\",status=\"2xx\"}"), 1);
}

#[test]
fn a_proxy_has_an_admin_as_well() {
    let upstream = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}", upstream.ip());
    let proxy = Program::proxy(&["--loops", "1", "--admin", "127.0.0.1:0", "--upstream", &url]);
    assert_eq!(Peer::connect(&proxy).get("/plaintext").status, 200);
    let admin = admin_address(&proxy);
    assert_eq!(metric(admin, "tidegate_http_requests_total{route=\"*\",method=\"GET\",status=\"2xx\"}"), 1);
    let listed: Value = serde_json::from_slice(&get(admin, "/dashboard/connections").body).expect("JSON");
    let ours = listed["rows"].as_array().expect("rows").iter().filter(|row| row["is_accepted"] == false).count();
    assert_eq!(ours, 1, "the connection to the upstream is listed: {listed}");
}

#[test]
fn an_address_that_other_machines_reach_needs_a_flag() {
    let command = |arguments: &[&str]| tidegate(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
    let (code, errors) = refused(command(&["--admin", "0.0.0.0:0"]));
    assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
    assert!(errors[0].contains("--admin-open") && errors[0].contains("loopback"), "{errors:?}");
    let (code, errors) = refused(command(&["--admin-open"]));
    assert!(code == Some(2) && errors[0].contains("--admin"), "{errors:?}");
    let open = Program::serve(&["--loops", "1", "--admin", "0.0.0.0:0", "--admin-open", "--admin-host", "ops.example"]);
    let port = admin_address(&open).port();
    let mut peer = Peer::to(&SocketAddr::from(([127, 0, 0, 1], port)).into());
    assert_eq!(peer.exchange("GET /health HTTP/1.1\r\nHost: ops.example\r\n\r\n").status, 200);
    assert_eq!(peer.exchange("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
}

#[test]
fn an_address_in_use_is_an_error_and_nothing_is_served() {
    let (_program, admin) = serve(&[]);
    let address = admin.to_string();
    let (code, errors) = refused(tidegate(&["serve", "--listen", "127.0.0.1:0", "--admin", &address]));
    assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
    assert!(errors[0].contains(&address), "{errors:?}");
}

#[test]
fn readiness_ends_with_sigterm_and_the_admin_responds_until_the_end() {
    let (mut program, admin) = serve(&[]);
    let mut busy = Peer::connect(&program);
    // A request that is not complete keeps the server until the drain's deadline.
    busy.send("GET /plaintext HTTP/1.1\r\n");
    until("the connection is open", || metric(admin, "tidegate_connections{loop=\"0\"}") == 1);
    program.signal(Signal::TERM);
    until("readiness ends", || get(admin, "/ready").status == 503);
    until("the metrics show the drain", || metric(admin, "tidegate_draining") == 1);
    assert_eq!(get(admin, "/health").status, 200);
    assert!(program.is_running());
    busy.send("Host: a\r\n\r\n");
    assert_eq!(busy.reply().status, 200);
    assert!(program.until_ended().success());
}

#[test]
fn a_successor_has_the_admin_at_the_same_address() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let (mut old, admin) = serve(&["--takeover", &path]);
    let address = admin.to_string();
    let new = Program::serve(&["--loops", "1", "--takeover", &path, "--admin", &address]);
    assert!(old.until_ended().success());
    assert_eq!(get(admin, "/ready").status, 200);
    assert_eq!(Peer::connect(&new).exchange(LAST).status, 200);
    assert_eq!(metric(admin, "tidegate_http_requests_total{route=\"/plaintext\",method=\"GET\",status=\"2xx\"}"), 1);
}

#[test]
fn sixty_four_descriptors_are_enough_for_both() {
    let program = Program::with_descriptors(64, &["--loops", "1", "--admin", "127.0.0.1:0"]);
    let admin = admin_address(&program);
    let peers: Vec<_> = (0..60).map(|_| Peer::connect(&program)).collect();
    // The server accepts 32 connections, so descriptors are left for a probe, beside those that wait.
    assert_eq!(get(admin, "/health").status, 200);
    assert!(metric(admin, "tidegate_connections{loop=\"0\"}") <= 32);
    drop(peers);
    assert_eq!(Peer::connect(&program).exchange(LAST).status, 200);
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let mut command = ending_with_the_test("sh");
    command.args(["-c", "exec \"$@\" 2>/dev/full", "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"]);
    command.args(["--listen", "127.0.0.1:0", "--loops", "1", "--admin", "127.0.0.1:0", "--backend", backend()]);
    let program = Program::start(command).expect("it starts");
    let admin = admin_address(&program);
    for _ in 0..20 {
        // Each of these would be a line.
        Peer::connect(&program).send("BAD\r\n\r\n");
    }
    until("they are counted", || metric(admin, "tidegate_closed_total{loop=\"0\",cause=\"protocol\"}") == 20);
    assert_eq!(Peer::connect(&program).exchange(LAST).status, 200);
}

#[test]
fn a_full_disk_under_standard_error_changes_no_exit_code() {
    for arguments in [&["--no-such-flag"][..], &["--listen", "127.0.0.1:0", "--root", "/nowhere/at/all"]] {
        let mut command = ending_with_the_test("sh");
        command.args(["-c", "exec \"$@\" 2>/dev/full", "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"]).args(arguments);
        assert_eq!(command.status().expect("it starts").code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_socket_of_the_administrative_server_is_for_its_own_user() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Directory::new();
    let path = folder.path("admin.sock");
    let program = Program::serve(&["--admin", &format!("unix:{path}")]);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, lines, _) = run(&["top", "--once", &format!("unix:{path}")]);
    assert_eq!(code, Some(0), "{lines:?}");
    drop(program);
}

#[test]
fn top_prints_the_figures_of_a_running_server() {
    let (program, admin) = serve(&[]);
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.get("/json").status, 200);
    let (code, lines, errors) = run(&["top", "--once", &admin.to_string()]);
    assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
    let text = lines.join("\n");
    assert!(
        text.contains(&program.ip().to_string()) && text.contains("requests/s") && text.contains("/json"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no codes where there is no terminal: {text}");
    // A server that has no figures, and none.
    let closed = ClosedPort::tcp();
    for address in [program.ip().to_string(), closed.address().to_string(), "unix:/nowhere/at/all".to_owned()] {
        let (code, _, errors) = run(&["top", "--once", &address]);
        assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
        assert!(errors[0].contains(&address), "{errors:?}");
    }
}
