//! The server beside redis-server, and with programs of other authors. A test that misses its program prints `skipped:`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::redis::{ClientCodec, CommandBuffer, IncomingReply, OwnedValue};
use tidegate_testkit::{CodecHarness, Random, seed};

use crate::{MEMORY_BYTES_MAX, start};

/// A client that sends commands in batches and waits for their replies.
struct Client {
    stream: TcpStream,
    codec: CodecHarness<ClientCodec>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self { stream, codec: CodecHarness::new(ClientCodec::default()) }
    }

    fn talk(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<OwnedValue> {
        for command in commands {
            let buffer = command[1..].iter().fold(CommandBuffer::new(&command[0]), CommandBuffer::arg);
            self.codec.encode(buffer.into()).unwrap();
        }
        self.codec.flush().unwrap();
        self.stream.write_all(&self.codec.take_sent()).unwrap();
        let (mut replies, mut bytes) = (Vec::new(), [0; 16 << 10]);
        while replies.len() < commands.len() {
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the server has closed the connection after {} replies to {commands:?}", replies.len());
            for message in self.codec.decode(&bytes[..length]).unwrap() {
                let IncomingReply::Reply(reply) = message else { panic!("{message:?}") };
                replies.push(OwnedValue::from(reply.value()));
            }
        }
        replies
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A redis-server at a free port, ended when it is dropped.
struct RedisServer(Child, SocketAddr);

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The command of a program; `None`, with a message, if it is not installed.
fn installed(program: &str, version: &str) -> Option<Command> {
    match Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
            assert!(!required, "{program} is required");
            println!("skipped: {program} is not installed");
            None
        }
        _ => Some(Command::new(program)),
    }
}

fn redis_server() -> Option<RedisServer> {
    let mut command = installed("redis-server", "--version")?;
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--databases", "1"];
    let child = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
    let server = RedisServer(child, address);
    let until = Instant::now() + Duration::from_secs(120);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}

/// A random command, mostly one that is right.
fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let key = |random: &mut Random| format!("k{}", random.below(8)).into_bytes();
    let number = |random: &mut Random| {
        let usual = random.below(2_000) as i64 - 1_000;
        let picked = *random.pick(&[usual, usual, usual, i64::MAX, i64::MIN, 0]);
        picked.to_string().into_bytes()
    };
    let value = |random: &mut Random| match random.below(6) {
        0 => b"\r\n\0$".to_vec(),
        1 => vec![b'x'; random.below(3_000)],
        2 => (*random.pick(&["", "01", "+1", "-0", " 1", "1.5", "9223372036854775808"])).as_bytes().to_vec(),
        _ => number(random),
    };
    // Far from the time of the test, or in the past. Equal times are compared with the time that has passed: they are rare.
    let time = |random: &mut Random| match random.below(8) {
        0 => (*random.pick(&["-1", "0", "x", "9223372036854775807"])).as_bytes().to_vec(),
        _ => ((1 + random.below(1_000_000)) * 1_000_000).to_string().into_bytes(),
    };
    let templates: Vec<_> = TEMPLATES.split(';').map(str::trim).collect();
    let mut command = words(random.pick::<&str>(&templates));
    for word in &mut command {
        match &word[..] {
            b"K" => *word = key(random),
            b"V" => *word = value(random),
            b"N" => *word = number(random),
            b"T" => *word = time(random),
            _ => {}
        }
    }
    command
}

/// Commands with places: K for a key, V for a value, N for a number, T for a time to live.
const TEMPLATES: &str = "
    GET K; GET K; SET K V; SET K V; SET K V NX; SET K V XX; SET K V GET; SET K V EX T; SET K V PX T;
    SET K V KEEPTTL; SET K V NX GET; SET K V XX GET EX T; SET K V NX XX; SET K V EX T PX T; SET K V EX;
    SET K V KEEPTTL EX T; set K V xx keepttl get; SET K V WRONG; DEL K; DEL K K K; INCR K; INCRBY K N; DECR K;
    DECRBY K N; INCRBY K V; EXPIRE K T; PEXPIRE K T; EXPIRE K T NX; EXPIRE K T XX; EXPIRE K T GT; EXPIRE K T LT;
    PEXPIRE K T XX GT; EXPIRE K T NX XX; EXPIRE K T GT LT; EXPIRE K T AT; TTL K; PTTL K; PERSIST K; EXISTS K;
    EXISTS K K; MGET K K K; MSET K V K V; MSET K V K; APPEND K V; STRLEN K; TYPE K; KEYS *; KEYS k[1-4];
    KEYS ?[^5]; SCAN 0 COUNT 1000; SCAN 0 MATCH k? COUNT 1000; SCAN x; SCAN 0 COUNT 0; SCAN 0 COUNT;
    SCAN 0 COUNT 1000 TYPE string; DBSIZE; FLUSHALL; FLUSHALL WRONG; PUBLISH K V; PING; PING V; ECHO V; ECHO;
    SELECT 0; SELECT 1000; SELECT V; MULTI; MULTI; EXEC; EXEC; EXEC; DISCARD; WATCH K; UNWATCH; GET; GET K K;
    INCR; NONE; NONE V K; STRLEN; TTL K K; DBSIZE K; PING V V; MULTI x; EXEC x; DISCARD x; CLIENT GETNAME;
    CLIENT SETNAME K; PUBSUB NUMPAT; PUBSUB NUMSUB K; PUBSUB CHANNELS; AUTH; AUTH a b; AUTH a b c; HELLO 5; HELLO x;
    HELLO 2 WRONG; INFO none; CONFIG GET none; RESET; RESET x; ECHO V V; PUBLISH K; SUBSCRIBE; WATCH;
    CLIENT NO-EVICT on; CLIENT NO-EVICT x; COMMAND INFO none";

/// Whether two replies are the same, apart from the order of keys, and from times that have passed.
fn is_same(ours: &OwnedValue, theirs: &OwnedValue, name: &[u8]) -> bool {
    match (ours, theirs) {
        (OwnedValue::Aggregate(kind, ours), OwnedValue::Aggregate(other, theirs)) => {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            // An array within the one of EXEC is that of a command with keys, or of values.
            for values in [&mut ours, &mut theirs] {
                if matches!(name, b"KEYS" | b"SCAN" | b"within EXEC") {
                    values.sort_by_key(|value| format!("{value:?}"));
                }
            }
            let name = if name == b"EXEC" { b"within EXEC" } else { name };
            let mut pairs = ours.iter().zip(&theirs);
            kind == other && ours.len() == theirs.len() && pairs.all(|(ours, theirs)| is_same(ours, theirs, name))
        }
        (OwnedValue::Integer(ours), OwnedValue::Integer(theirs))
            if matches!(name, b"TTL" | b"PTTL" | b"within EXEC") =>
        {
            let are_times = *ours > 900 && *theirs > 900;
            let may_differ = if *ours > 900_000 { 60_000 } else { 60 };
            ours == theirs || are_times && ours.abs_diff(*theirs) <= may_differ
        }
        (ours, theirs) => ours == theirs,
    }
}

#[test]
fn ten_thousand_random_commands_get_the_replies_of_redis() {
    let Some(redis) = redis_server() else { return };
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 1).unwrap();
    // The same commands in each run, unless the environment has another seed.
    let seed = std::env::var_os("TIDEGATE_SEED").map_or(1, |_| seed());
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut clients = [Client::new(redis.1), Client::new(server.address().ip().unwrap())];
    for round in 0..500 {
        if random.once_in(20) {
            // HELLO is refused in a transaction.
            let hello = vec![words("DISCARD"), words(random.pick::<&str>(&["HELLO 2", "HELLO 3"]))];
            for client in &mut clients {
                client.talk(&hello);
            }
        }
        let commands: Vec<_> = (0..20).map(|_| command(&mut random)).collect();
        let [theirs, ours] = clients.each_mut().map(|client| client.talk(&commands));
        for ((theirs, ours), command) in theirs.into_iter().zip(ours).zip(&commands) {
            let shown: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
            let is_same = is_same(&ours, &theirs, &command[0]);
            assert!(is_same, "{shown:?} in round {round} of seed {seed}: {ours:?}, and redis-server: {theirs:?}");
        }
    }
    drop(redis);
    server.drain(Duration::from_secs(5));
}

#[test]
fn redis_cli_and_redis_benchmark_work() {
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 2).unwrap();
    let port = server.address().ip().unwrap().port().to_string();
    let output = |mut command: Command, arguments: &[&str]| {
        let output = command.args(["-p", &port]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let Some(cli) = installed("redis-cli", "--version") else { return };
    assert_eq!(output(cli, &["SET", "brest", "a b", "EX", "100"]), "OK\n");
    for version in ["-2", "-3"] {
        assert_eq!(output(Command::new("redis-cli"), &[version, "MGET", "brest", "none"]), "a b\n\n");
    }
    let Some(benchmark) = installed("redis-benchmark", "--version") else { return };
    let tests = ["-t", "ping_inline,ping_mbulk,set,get,incr,mset", "-n", "2000", "-c", "10", "-P", "8", "-q"];
    let text = output(benchmark, &tests);
    for name in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(!text.contains("Error"), "{text}");
    server.drain(Duration::from_secs(5));
}

#[test]
fn redis_py_works_in_both_versions() {
    // That of `cargo xtask ci`, or the system's.
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/redis/bin/python3");
    let python = if std::path::Path::new(own).exists() { own } else { "python3" };
    let module = Command::new(python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
    if !module.is_ok_and(|status| status.success()) {
        let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
        assert!(!required, "redis-py is required");
        println!("skipped: redis-py is not installed");
        return;
    }
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 2).unwrap();
    let port = server.address().ip().unwrap().port().to_string();
    let output = Command::new(python).args(["-c", REDIS_PY, &port]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "done 2\ndone 3\n");
    server.drain(Duration::from_secs(5));
}

const REDIS_PY: &str = r#"
import redis, sys
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, client_name="test", socket_timeout=120)
    r.flushall()
    assert r.set("a", b"\r\n", ex=100) and r.get("a") == b"\r\n" and r.ttl("a") == 100
    assert r.set("a", 1, nx=True) is None and r.mget("a", "b") == [b"\r\n", None]
    assert r.incrby("n", 5) == 5 and sorted(r.scan_iter()) == [b"a", b"n"] and r.dbsize() == 2
    with r.pipeline(transaction=True) as p:
        p.watch("n"); p.multi(); p.incr("n"); p.get("a")
        assert p.execute() == [6, b"\r\n"]
    with r.pipeline(transaction=True) as p:
        p.watch("n"); r.incr("n"); p.multi(); p.incr("n")
        try:
            p.execute(); raise SystemExit("no conflict")
        except redis.WatchError:
            pass
    s = r.pubsub()
    s.subscribe("tide"); s.psubscribe("t*")
    kinds = [s.get_message(timeout=120)["type"] for _ in range(2)]
    assert kinds == ["subscribe", "psubscribe"], kinds
    assert r.publish("tide", "in") == 2
    messages = [s.get_message(timeout=120) for _ in range(2)]
    assert [m["type"] for m in messages] == ["message", "pmessage"] and messages[0]["data"] == b"in", messages
    s.unsubscribe(); s.punsubscribe()
    try:
        r.execute_command("NONE"); raise SystemExit("no error")
    except redis.ResponseError as e:
        assert "unknown command" in str(e)
    assert r.ping() and r.echo("x") == b"x" and r.client_getname() in (b"test", "test")
    s.close(); r.close()
    print("done", protocol)
"#;

/// Starts with so little memory that keys have to go, and checks that writes go on.
#[test]
fn a_full_cache_forgets_keys_and_goes_on() {
    let server = start("127.0.0.1:0", 200_000, 1).unwrap();
    let mut client = Client::new(server.address().ip().unwrap());
    let set = |key: usize| vec![b"SET".to_vec(), key.to_string().into_bytes(), vec![b'x'; 1_000]];
    for batch in 0..20 {
        let replies = client.talk(&(batch * 100..(batch + 1) * 100).map(set).collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| *reply == OwnedValue::Simple("OK".into())));
    }
    let replies = client.talk(&[words("DBSIZE"), words("GET 1999"), set(0), words("GET 1")]);
    let OwnedValue::Integer(count) = replies[0] else { panic!("{replies:?}") };
    assert!((100..200).contains(&count), "{count}");
    assert_eq!((&replies[1], &replies[3]), (&OwnedValue::Bulk(vec![b'x'; 1_000].into()), &OwnedValue::Null));
    let long = client.talk(&[vec![b"SET".to_vec(), b"a".to_vec(), vec![b'x'; 200_000]]]);
    assert!(format!("{long:?}").contains("OOM"), "{long:?}");
    server.drain(Duration::from_secs(5));
}

/// Values of megabytes, through one connection.
#[test]
fn a_value_of_8_mib_comes_back() {
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 1).unwrap();
    let address = server.address().ip().unwrap();
    let value = vec![b'\n'; 8 << 20];
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", value.len()).as_bytes()).unwrap();
    stream.write_all(&value).unwrap();
    stream.write_all(b"\r\nGET a\r\n").unwrap();
    let mut reply = vec![0; 5 + 10 + value.len() + 2];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply.starts_with(b"+OK\r\n$8388608\r\n\n") && reply.ends_with(b"\n\r\n"));
    server.drain(Duration::from_secs(5));
}

/// A subscriber that never reads is disconnected, and the others get every message.
#[test]
fn a_subscriber_that_never_reads_is_disconnected_and_the_others_miss_nothing() {
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 1).unwrap();
    let address = server.address().ip().unwrap();
    let subscribe = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(b"SUBSCRIBE tide\r\n").unwrap();
        let mut acknowledged = [0; "*3\r\n$9\r\nsubscribe\r\n$4\r\ntide\r\n:1\r\n".len()];
        stream.read_exact(&mut acknowledged).unwrap();
        stream
    };
    let silent = subscribe();
    let mut readers = [subscribe(), subscribe()];
    let mut publisher = Client::new(address);
    let body = vec![b'x'; 64 << 10];
    let push = [b"*3\r\n$7\r\nmessage\r\n$4\r\ntide\r\n$65536\r\n", &body[..], b"\r\n"].concat();
    let mut received = vec![0; push.len()];
    let mut counts = Vec::new();
    // More than the kernel and the server hold for one connection.
    for _ in 0..1_000 {
        let publish = vec![b"PUBLISH".to_vec(), b"tide".to_vec(), body.clone()];
        counts.extend(publisher.talk(&[publish]));
        for reader in &mut readers {
            reader.read_exact(&mut received).unwrap();
            assert!(received == push);
        }
    }
    assert_eq!((&counts[0], counts.last()), (&OwnedValue::Integer(3), Some(&OwnedValue::Integer(2))));
    drop(silent);
    server.drain(Duration::from_secs(5));
}
