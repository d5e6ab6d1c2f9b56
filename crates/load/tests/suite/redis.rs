//! Loads of Redis commands: on a server of `tidegate::redis`, on redis-server where it is installed, and on servers that
//! answer wrongly.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use tidegate::redis::{
    Answer, CallContext, Channels, Command as RedisCommand, Handler, HandlerConfig, OutgoingReply, ServerCodec, Service,
};
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tidegate::{Address, Over, Server, ServerHandle};

use crate::support::{PATIENCE, ScriptedServer, load, load_until, refused};

/// Keeps strings, and counts.
#[derive(Clone, Default)]
struct Strings(Rc<RefCell<BTreeMap<Vec<u8>, Vec<u8>>>>);

impl Service for Strings {
    fn call(&mut self, command: &RedisCommand, _: &CallContext) -> Answer {
        let argument = |index| command.argument(index).unwrap_or_default().to_vec();
        let reply =
            |value: Option<Vec<u8>>| value.map_or(OutgoingReply::Null, |value| OutgoingReply::Bulk(value.into()));
        let mut strings = self.0.borrow_mut();
        match command.name() {
            b"GET" => reply(strings.get(&argument(1)).cloned()).into(),
            b"SET" => {
                strings.insert(argument(1), argument(2));
                OutgoingReply::Simple("OK".into()).into()
            }
            b"INCR" => OutgoingReply::Error("WRONGTYPE this server does not count".into()).into(),
            _ => Answer::Unknown,
        }
    }
}

fn server() -> ServerHandle {
    let (channels, config) = (Channels::new(), Arc::new(HandlerConfig::default()));
    let server = Server::bind("127.0.0.1:0").expect("a free port").loops(1);
    let started = server.start_each(move |_| {
        let (strings, config, channels) = (Strings::default(), config.clone(), channels.clone());
        move |_: &Address| (ServerCodec::default(), Handler::with(strings.clone(), config.clone(), channels.clone()))
    });
    started.expect("it starts")
}

fn url(server: &ServerHandle) -> String {
    format!("redis://{}/", server.address())
}

fn stop(server: &ServerHandle) {
    server.drain(std::time::Duration::from_millis(100));
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no count: {value}"))
}

/// The kinds of errors with their counts, without zeros.
fn errors(figures: &Value) -> Vec<(&str, u64)> {
    let errors = figures["errors"].as_object().expect("errors by kind").iter();
    errors.map(|(kind, number)| (kind.as_str(), count(number))).filter(|(_, count)| *count > 0).collect()
}

fn any_error(figures: &Value) -> bool {
    !errors(figures).is_empty()
}

fn any_response(figures: &Value) -> bool {
    count(&figures["requests"]) > 0
}

#[test]
fn commands_are_counted_by_kind_and_none_fails() {
    let server = server();
    let url = url(&server);
    for arguments in [
        &["-c", "4", "--pipeline", "16"][..],
        &["-c", "3", "-t", "1", "--keys", "10", "--value-bytes", "20000", "--pipeline", "3"],
        &["-c", "2", "--rate", "2000"],
        &["-c", "2", "--commands", "get:1,set:1,ping:2", "--commands", "SET mine '__value__ __key__' :3"],
    ] {
        let (is_good, figures) = load_until(&[arguments, &[&url]].concat(), any_response);
        assert!(is_good && errors(&figures).is_empty() && figures["protocol"] == "redis", "{arguments:?}: {figures}");
        let commands = figures["redis"]["commands"].as_array().expect("commands");
        let replies: u64 = commands.iter().map(|command| count(&command["replies"])).sum();
        assert!(replies > 0 && replies == count(&figures["requests"]), "{arguments:?}: {figures}");
        assert_eq!(count(&figures["good"]), replies);
        assert!(count(&figures["redis"]["resp3"]) > 0 && figures["redis"]["resp2"] == 0, "{figures}");
    }
    stop(&server);
}

#[test]
fn exactly_as_many_commands_are_sent_as_are_asked_for() {
    let server = server();
    for (total, connections, depth) in [(1000, "7", "16"), (1, "1", "64"), (64, "64", "3"), (333, "10", "1")] {
        let arguments = ["-n", &total.to_string(), "-c", connections, "--pipeline", depth, &url(&server)];
        let (is_good, figures) = load(&arguments);
        assert!(is_good && figures["requests"] == total, "{arguments:?}: {figures}");
        assert_eq!(figures["unanswered"], 0, "{figures}");
    }
    stop(&server);
}

#[test]
fn error_replies_are_counted_by_their_first_word() {
    let server = server();
    let arguments =
        ["-n", "300", "-c", "2", "--commands", "incr:2,get:1", "--commands", "NOSUCH __key__", &url(&server)];
    let (is_good, figures) = load(&arguments);
    let (redis, replies) = (&figures["redis"], |index: usize| count(&figures["redis"]["commands"][index]["replies"]));
    assert!(!is_good && figures["requests"] == 300, "{figures}");
    assert_eq!(count(&redis["error_replies"]["WRONGTYPE"]), replies(0), "{figures}");
    assert_eq!(count(&redis["error_replies"]["ERR"]), replies(2), "{figures}");
    assert_eq!(redis["commands"][1]["nil"], redis["commands"][1]["replies"], "nothing was set: {figures}");
    assert_eq!(errors(&figures), [("reply", replies(0) + replies(2))]);
    assert_eq!(count(&figures["good"]), replies(1));
    stop(&server);
}

#[test]
fn published_messages_are_delivered_to_every_subscriber() {
    let server = server();
    for arguments in [
        &["--subscribers", "5", "--publish", "200"][..],
        &["--subscribers", "3", "-c", "2", "-t", "2", "--message-bytes", "5000"],
    ] {
        let (is_good, figures) = load_until(&[arguments, &[&url(&server)]].concat(), any_response);
        let receivers = count(&figures["redis"]["receivers"]);
        assert!(is_good && errors(&figures).is_empty(), "{arguments:?}: {figures}");
        assert!(receivers > 0 && count(&figures["requests"]) > 0, "{arguments:?}: {figures}");
        let published = count(&figures["redis"]["commands"][0]["replies"]);
        // No thread's subscribers leave before all threads have stopped publishing.
        assert_eq!(receivers, published * count(&figures["redis"]["subscribers"]), "{arguments:?}: {figures}");
    }
    stop(&server);
}

#[test]
fn commands_are_sent_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let provider = Provider::aws_lc_rs();
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("a certificate");
    let config = ServerConfig::builder(&provider, certificates).build().expect("it is complete");
    let server = Server::bind("127.0.0.1:0").expect("a free port").loops(1);
    let started = server.start_each(move |_| {
        let (strings, config) = (Strings::default(), config.clone());
        move |_: &Address| {
            let handler = Handler::with(strings.clone(), Arc::default(), Channels::new());
            (Over::new(config.accept(), ServerCodec::default()), handler)
        }
    });
    let server = started.expect("it starts");
    let url = format!("rediss://{}/", server.address());
    let (is_good, figures) = load(&["-n", "200", "-c", "3", "--pipeline", "4", "--insecure", &url]);
    assert!(is_good && figures["requests"] == 200, "{figures}");
    // Without --insecure the certificate is refused.
    let (is_good, figures) = load(&["-n", "5", "-c", "1", "-d", "300ms", &url]);
    assert!(!is_good && figures["requests"] == 0, "{figures}");
    stop(&server);
}

#[test]
fn a_server_without_hello_is_spoken_to_in_resp2() {
    let server = ScriptedServer::answering("-ERR unknown command 'HELLO'\r\n", "+OK\r\n");
    let url = format!("redis://{}/", server.address);
    let (is_good, figures) = load(&["-n", "20", "-c", "2", &url]);
    assert!(is_good && figures["requests"] == 20, "{figures}");
    // One connection may have sent all before the other one is there.
    assert!(count(&figures["redis"]["resp2"]) > 0 && figures["redis"]["resp3"] == 0, "{figures}");
}

#[test]
fn a_server_that_answers_wrongly_is_an_error_of_its_kind() {
    const HELLO: &str = "%0\r\n";
    for (answers, kind) in [
        ((HELLO, "+OK\r\n+OK\r\n"), "invalid"),
        ((HELLO, "what\r\n"), "invalid"),
        ((HELLO, "$9223372036854775807\r\n"), "invalid"),
        ((HELLO, "$5\r\nebb"), "timeout"),
        ((HELLO, ""), "timeout"),
        (("", ""), "timeout"),
        (("-WRONGPASS invalid username-password pair\r\n", ""), "reply"),
    ] {
        let server = ScriptedServer::answering(answers.0, answers.1);
        let url = format!("redis://:secret@{}/", server.address);
        // Only where no answer comes.
        let timeout = if kind == "timeout" { "100ms" } else { "1h" };
        let (is_good, figures) = load_until(&["-c", "1", "-t", "1", "--timeout", timeout, &url], any_error);
        assert!(!is_good && errors(&figures).iter().all(|(found, _)| *found == kind), "{answers:?}: {figures}");
        assert!(!figures.to_string().contains("secret"), "{figures}");
    }
}

#[test]
fn a_server_that_closes_within_a_reply_is_an_error() {
    let server = ScriptedServer::start(|mut stream| {
        for answer in ["%0\r\n", "$5\r\nebb"] {
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer.as_bytes()));
        }
    });
    let (is_good, figures) = load_until(&["-c", "1", &format!("redis://{}/", server.address)], any_error);
    assert!(!is_good && errors(&figures).iter().all(|(kind, _)| *kind == "closed"), "{figures}");
}

#[test]
fn flags_that_do_not_fit_are_refused_before_the_start() {
    const REDIS: &str = "redis://127.0.0.1:1/";
    const HTTP: &str = "http://127.0.0.1:1/";
    for (arguments, part) in [
        (&[HTTP, "--commands", "get"][..], "--commands is for Redis"),
        (&[HTTP, "--keys", "5"], "--keys is for Redis"),
        (&[HTTP, "--subscribers", "5"], "--subscribers is for Redis"),
        (&[REDIS, "--http2"], "--http2 is not for Redis"),
        (&[REDIS, "-H", "A: b"], "--header is not for Redis"),
        (&[REDIS, "--never-read"], "--never-read is not for Redis"),
        (&[REDIS, "--message-bytes", "64"], "--subscribers"),
        (&[REDIS, "--subscribers", "2", "--message-bytes", "10"], "at least 42"),
        (&[REDIS, "--subscribers", "0"], "--subscribers 0"),
        (&[REDIS, "--publish", "5"], "--subscribers"),
        (&[REDIS, "--commands", "fetch"], "'fetch'"),
        (&[REDIS, "--commands", "GET 'a"], "does not end"),
        (&[REDIS, "--value-bytes", "60000000", "--pipeline", "16"], "pipeline fewer"),
        (&[REDIS, "-n", "5", "-c", "6"], "use -c 5 or fewer"),
        (&[REDIS, REDIS], "several URLs"),
        (&["redis://127.0.0.1:1/first"], "number of a database"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

/// redis-server, on a port of its own. It ends when this is dropped.
struct RedisServer {
    process: Child,
    port: u16,
}

impl RedisServer {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        // The port is free a moment later as well, as far as chance goes; the server has no port 0.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        let arguments = ["--bind", "127.0.0.1", "--save", "", "--requirepass", "secret", "--port", &port.to_string()];
        let process = Command::new("redis-server").args(arguments).stdout(Stdio::null()).spawn().ok()?;
        let server = Self { process, port };
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn redis_server_answers_every_known_command_without_an_error() {
    let Some(server) = RedisServer::start() else { return };
    let url = format!("redis://:secret@127.0.0.1:{}/3", server.port);
    let all = "get,set,incr,mget,lpush,hset,zadd,ping";
    let (is_good, figures) = load(&["-n", "4000", "-c", "4", "--pipeline", "8", "--commands", all, &url]);
    assert!(is_good && figures["requests"] == 4000, "{figures}");
    let (is_good, figures) = load_until(&["--subscribers", "3", "--publish", "100", &url], any_response);
    assert!(is_good && count(&figures["requests"]) > 0, "{figures}");
    let wrong = format!("redis://:wrong@127.0.0.1:{}/", server.port);
    let (is_good, figures) = load_until(&["-c", "1", &wrong], any_error);
    assert!(!is_good && count(&figures["redis"]["error_replies"]["WRONGPASS"]) > 0, "{figures}");
}
