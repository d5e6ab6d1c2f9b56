//! The proxy in front of the toy, through sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::ServerHandle;

use crate::{start, toy_upstream};

/// A proxy and its upstream.
struct Pair {
    upstream: Option<ServerHandle>,
    proxy: Option<ServerHandle>,
}

impl Pair {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(password: Option<&str>) -> Self {
        let upstream = toy_upstream::start_with(password).expect("the upstream starts");
        let target = upstream.address().to_string();
        let proxy =
            start("127.0.0.1:0", &target, password.map(str::to_owned), CLIENT_BYTES_MAX).expect("the proxy starts");
        Self { upstream: Some(upstream), proxy: Some(proxy) }
    }

    fn client(&self) -> TcpStream {
        let proxy = self.proxy.as_ref().expect("the proxy runs");
        let stream = TcpStream::connect(proxy.address().ip().expect("an IP address")).expect("the proxy accepts");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    fn stop_upstream(&mut self) {
        self.upstream.take().expect("it runs").drain(Duration::ZERO);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for server in [self.proxy.take(), self.upstream.take()].into_iter().flatten() {
            server.drain(Duration::ZERO);
        }
    }
}

/// Sends commands, one a line, and reads replies of a length.
fn talk(stream: &mut TcpStream, commands: &str, wanted: &str) {
    stream.write_all(commands.replace('\n', "\r\n").as_bytes()).expect("the commands are sent");
    read(stream, wanted);
}

fn read(stream: &mut TcpStream, wanted: &str) {
    let wanted = wanted.replace(' ', "\r\n");
    let mut replies = vec![0; wanted.len()];
    stream.read_exact(&mut replies).unwrap_or_else(|error| panic!("instead of {wanted:?}: {error}"));
    assert_eq!(String::from_utf8_lossy(&replies), wanted);
}

/// The reply to one command, a line.
fn line(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("the command is sent");
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

#[test]
fn many_clients_share_one_connection() {
    let pair = Pair::new();
    let mut clients: Vec<_> = (0..50).map(|_| pair.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client
            .write_all(format!("SET k{number} {number}\r\nGET k{number}\r\nPING\r\n").as_bytes())
            .expect("it is sent");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let number = number.to_string();
        read(client, &format!("+OK ${} {number} +PONG ", number.len()));
    }
    assert_eq!(line(&mut clients[0], "CONNECTIONS"), ":1");
}

#[test]
fn each_version_has_replies_in_its_form() {
    let pair = Pair::new();
    let (mut old, mut new) = (pair.client(), pair.client());
    new.write_all(b"HELLO 3\r\nCLIENT GETNAME\r\n").expect("it is sent");
    let mut hello = Vec::new();
    while !hello.ends_with(b"*0\r\n_\r\n") {
        let mut byte = [0];
        new.read_exact(&mut byte).expect("a reply");
        hello.push(byte[0]);
    }
    assert!(hello.starts_with(b"%7\r\n"), "{}", hello.escape_ascii());
    talk(&mut new, "MAP\n", "%1 $5 level ,4.5 ");
    talk(&mut old, "MAP\nCLIENT GETNAME\n", "*2 $5 level $3 4.5 $-1 ");
    talk(&mut new, "RESET\nMAP\n", "+RESET *2 $5 level $3 4.5 ");
}

#[test]
fn transactions_of_several_clients_do_not_mix() {
    let pair = Pair::new();
    let (mut one, mut other) = (pair.client(), pair.client());
    talk(&mut one, "SET a 1\nWATCH a\nMULTI\nINCR a\n", "+OK +OK +OK +QUEUED ");
    talk(&mut other, "MULTI\nINCR b\nINCR b\nEXEC\n", "+OK +QUEUED +QUEUED *2 :1 :2 ");
    talk(&mut one, "EXEC\nGET a\n", "*1 :2 $1 2 ");
    talk(&mut one, "WATCH a\n", "+OK ");
    talk(&mut other, "SET a 5\n", "+OK ");
    talk(&mut one, "MULTI\nINCR a\nEXEC\nGET a\n", "+OK +QUEUED *-1 $1 5 ");
    // The shared one, and a pool of two.
    let connections = line(&mut one, "CONNECTIONS");
    assert!([":2", ":3"].contains(&&*connections), "{connections}");
}

#[test]
fn a_command_that_the_proxy_cannot_pass_on_breaks_a_transaction() {
    let pair = Pair::new();
    let mut client = pair.client();
    talk(&mut client, "MULTI\n", "+OK ");
    let refused = line(&mut client, "SELECT 0");
    assert!(refused.starts_with("-ERR unknown command 'SELECT-within-a-transaction"), "{refused}");
    assert!(line(&mut client, "EXEC").starts_with("-EXECABORT"));
}

#[test]
fn commands_that_would_lose_what_is_watched_stay_on_its_connection_or_are_refused() {
    let pair = Pair::new();
    let (mut one, mut other) = (pair.client(), pair.client());
    for change in ["SELECT 0", "HELLO 2"] {
        talk(&mut one, "WATCH a\n", "+OK ");
        one.write_all(format!("{change}\r\nPING\r\n").as_bytes()).expect("it is sent");
        let mut seen = Vec::new();
        while !seen.ends_with(b"+PONG\r\n") {
            let mut byte = [0];
            one.read_exact(&mut byte).expect("a reply");
            seen.push(byte[0]);
        }
        assert!(!seen.starts_with(b"-"), "{}", seen.escape_ascii());
        talk(&mut other, "SET a 5\n", "+OK ");
        talk(&mut one, "MULTI\nINCR a\nEXEC\nGET a\n", "+OK +QUEUED *-1 $1 5 ");
    }
    talk(&mut one, "WATCH a\n", "+OK ");
    for refused in ["CLIENT TRACKING ON", "SUBSCRIBE tide", "SCRIPT DEBUG YES"] {
        let error = line(&mut one, refused);
        assert!(error.starts_with("-ERR proxy: the command needs another connection than WATCH"), "{error}");
    }
    assert!(line(&mut one, "SELECT 9").starts_with("-ERR DB index"));
    talk(&mut other, "SET a 6\n", "+OK ");
    talk(&mut one, "MULTI\nINCR a\nEXEC\n", "+OK +QUEUED *-1 ");
}

/// A page can make a browser send HTTP requests to this port.
#[test]
fn lines_of_http_close_the_connection() {
    let pair = Pair::new();
    for wire in ["POST / HTTP/1.1\r\nSET a 1\r\n", "Host: a\r\nSET a 1\r\n", "MULTI\r\npost a\r\nSET a 1\r\n"] {
        let mut client = pair.client();
        client.write_all(wire.as_bytes()).expect("it is sent");
        let mut seen = Vec::new();
        match client.read_to_end(&mut seen) {
            Ok(_) => {}
            Err(error) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset), "{error}"),
        }
        assert!(!seen.starts_with(b"-") && !seen.ends_with(b"QUEUED\r\n"), "{}", seen.escape_ascii());
    }
    talk(&mut pair.client(), "GET a\n", "$-1 ");
}

#[test]
fn databases_that_were_chosen_while_the_upstream_is_down_leave_nothing() {
    let mut event_loop = tidegate::EventLoop::on(tidegate::Backend::Auto).expect("a loop");
    // Nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let test = async move {
        let upstream = crate::upstream::Upstream::new(&format!("127.0.0.1:{port}"), None, CLIENT_BYTES_MAX);
        let key = |database| crate::upstream::ConnectionKey { version: tidegate::redis::Version::Resp2, database };
        upstream.shared(key(0)).expect("an address");
        upstream.check_database_within(key(0), Duration::from_millis(1)).await.expect_err("it is down");
        for database in 1..20 {
            upstream.check_database_within(key(database), Duration::from_millis(1)).await.expect_err("it is down");
        }
        upstream.connections()
    };
    assert_eq!(event_loop.block_on(test).expect("the loop runs"), 1);
}

#[test]
fn a_blocking_command_delays_no_other_client_and_ends_with_its_client() {
    let pair = Pair::new();
    let (mut blocked, mut other) = (pair.client(), pair.client());
    blocked.write_all(b"SET x 1\r\nBLPOP jobs 0\r\nGET x\r\n").expect("it is sent");
    read(&mut blocked, "+OK ");
    while line(&mut other, "BLOCKED") != ":1" {}
    talk(&mut other, "SET jobs job\n", "+OK ");
    read(&mut blocked, "*2 $4 jobs $3 job $1 1 ");
    blocked.write_all(b"BLPOP jobs 0\r\n").expect("it is sent");
    while line(&mut other, "BLOCKED") != ":1" {}
    drop(blocked);
    while line(&mut other, "BLOCKED") != ":0" {}
    // The job is not lost to a client that is gone.
    talk(&mut other, "SET jobs job\nGET jobs\n", "+OK $3 job ");
}

#[test]
fn subscribers_have_connections_of_their_own() {
    let pair = Pair::new();
    let (mut subscriber, mut other) = (pair.client(), pair.client());
    talk(&mut subscriber, "PING\nSUBSCRIBE tide\n", "+PONG *3 $9 subscribe $4 tide :1 ");
    talk(&mut other, "PUBLISH tide in\n", ":1 ");
    read(&mut subscriber, "*3 $7 message $4 tide $2 in ");
    talk(&mut subscriber, "UNSUBSCRIBE\nSET a 1\nGET a\n", "*3 $11 unsubscribe $4 tide :0 +OK $1 1 ");
    drop(subscriber);
    while line(&mut other, "PUBLISH tide in") != ":0" {}
}

#[test]
fn databases_and_passwords_are_those_of_the_upstream() {
    let pair = Pair::with(Some("flow"));
    let mut client = pair.client();
    assert_eq!(line(&mut client, "GET a"), "-NOAUTH Authentication required.");
    assert!(line(&mut client, "HELLO 3").starts_with("-NOAUTH"));
    assert!(line(&mut client, "AUTH ebb").starts_with("-WRONGPASS"));
    talk(&mut client, "AUTH flow\nSELECT 0\nSET a 1\n", "+OK +OK +OK ");
    // The toy has one database.
    assert_eq!(line(&mut client, "SELECT 1"), "-ERR DB index is out of range");
    talk(&mut client, "GET a\nSUBSCRIBE tide\n", "$1 1 *3 $9 subscribe $4 tide :1 ");
}

#[test]
fn errors_say_whether_a_command_may_have_been_executed() {
    let mut pair = Pair::new();
    let mut client = pair.client();
    assert_eq!(line(&mut client, "PING"), "+PONG");
    pair.stop_upstream();
    let error = line(&mut client, "INCR a");
    assert!(error.starts_with("-ERR proxy: the command "), "{error}");
    assert!(error.contains("was not executed") || error.contains("may have been executed"), "{error}");
}

#[test]
fn a_long_value_passes_through_and_a_client_that_does_not_read_is_bounded() {
    let pair = Pair::new();
    let (mut writer, mut reader) = (pair.client(), pair.client());
    let value = "v".repeat(900_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{value}\r\n", value.len());
    writer.write_all(set.as_bytes()).expect("it is sent");
    read(&mut writer, "+OK ");
    reader.write_all(b"GET long\r\n").expect("it is sent");
    let mut received = vec![0; format!("${}\r\n", value.len()).len() + value.len() + 2];
    reader.read_exact(&mut received).expect("the value");
    assert!(received.ends_with(b"vv\r\n"));
    // 45 MB of replies that nothing reads, more than sockets and the proxy keep.
    let commands = 50;
    reader.write_all(&b"GET long\r\n".repeat(commands)).expect("it is sent");
    for _ in 0..100 {
        assert_eq!(line(&mut writer, "PING"), "+PONG", "others are served meanwhile");
    }
    let mut all = Vec::new();
    match reader.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset), "{error}"),
    }
    assert!(all.len() < commands * value.len());
}

const CLIENT_BYTES_MAX: usize = 8 << 20;
