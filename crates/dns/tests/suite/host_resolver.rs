//! `HostResolver` against our own server: the hosts file and `resolv.conf` as they change, services, clients, loops.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_dns::server::{DnsServer, Responder, Response};
use tidegate_dns::{HostResolver, NameServer, Question, Rdata, Record, RecordType, ResponseCode, Zone};
use tidegate_engine::{
    Backend, Client, ConnectError, EventLoop, Resolve as _, ResolvedServer, Server, ServerHandle, task,
};

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-dns-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Replaces a file, as an editor does.
    fn write(&self, name: &str, content: &str) {
        let new = self.0.join(format!("{name}.new"));
        fs::write(&new, content).expect("it is written");
        fs::rename(new, self.0.join(name)).expect("it is replaced");
    }

    fn resolver(&self, server: &ServerHandle) -> HostResolver {
        HostResolver::of_files(self.0.join("resolv.conf"), self.0.join("hosts")).port(address(server).port())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ZONE: &str = "$ORIGIN tides.example.\n$TTL 300\n@ SOA ns root 1 2 3 4 60\nwww A 192.0.2.1\nwww AAAA 2001:db8::1\n\
    short 7 A 192.0.2.2\nlocal A 127.0.0.1\n\
    _http._tcp SRV 10 3 8080 www\n_http._tcp SRV 10 1 8081 short\n_http._tcp SRV 20 0 8082 nowhere\n\
    _none._tcp SRV 0 0 0 .\n";

fn server() -> ServerHandle {
    let zone = Arc::new(Zone::parse(ZONE, None).expect("it is valid"));
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1);
    server.start(move |_| zone.clone()).expect("it starts")
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("an IP address")
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut event_loop = EventLoop::on(Backend::Epoll).expect("a loop");
    let result = event_loop.block_on(async { task::timeout(Duration::from_secs(120), future).await });
    result.expect("the loop runs").expect("the test does not hang")
}

fn texts(found: std::io::Result<Vec<SocketAddr>>) -> Vec<String> {
    found.expect("addresses").iter().map(ToString::to_string).collect()
}

#[test]
fn the_servers_and_the_search_list_are_those_of_the_file() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\nsearch tides.example\n");
    let resolver = folder.resolver(&server);
    run(async move {
        assert_eq!(texts(resolver.resolve("www", 80).await), ["[2001:db8::1]:80", "192.0.2.1:80"]);
        assert_eq!(texts(resolver.resolve("192.0.2.9", 81).await), ["192.0.2.9:81"]);
        assert_eq!(texts(resolver.resolve("a.localhost", 82).await), ["[::1]:82", "127.0.0.1:82"]);
        for reserved in ["name.invalid", "name.Invalid.", "abc.onion"] {
            let none = resolver.resolve(reserved, 80).await.expect_err("no server knows it");
            assert_eq!(none.kind(), std::io::ErrorKind::NotFound, "{reserved}");
        }
        assert_eq!(resolver.of_this_loop().await.counts().datagrams, 2, "those of `www`");
        let none = resolver.resolve("none.tides.example.", 80).await.expect_err("there is no such name");
        assert_eq!(none.kind(), std::io::ErrorKind::NotFound);
        let bad = resolver.resolve("a..b", 80).await.expect_err("it is no name");
        assert_eq!(bad.kind(), std::io::ErrorKind::InvalidInput);
    });
}

#[test]
fn files_that_change_are_read_again() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\n");
    let resolver = folder.resolver(&server);
    run(async move {
        assert!(resolver.resolve("www", 80).await.is_err());
        folder.write("resolv.conf", "nameserver 127.0.0.1\nsearch tides.example\n");
        folder.write("hosts", "192.0.2.77 mole\n");
        // They are compared once a second. In real time: threads read the files, and virtual time would run ahead of them.
        task::sleep(Duration::from_millis(1_001)).await;
        assert_eq!(texts(resolver.resolve("mole", 1).await), ["192.0.2.77:1"]);
        assert_eq!(texts(resolver.resolve("www", 80).await).len(), 2);
        folder.write("hosts", "192.0.2.78 mole\n");
        task::sleep(Duration::from_millis(1_001)).await;
        assert_eq!(texts(resolver.resolve("mole", 1).await), ["192.0.2.78:1"]);
        fs::remove_file(folder.0.join("hosts")).expect("it is there");
        task::sleep(Duration::from_millis(1_001)).await;
        assert!(resolver.resolve("mole", 1).await.is_err(), "a file that is gone is empty");
    });
}

#[test]
fn other_servers_have_an_empty_cache_and_the_same_ones_keep_it() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\n");
    let resolver = folder.resolver(&server);
    run(async move {
        let hits = |stub: &tidegate_dns::StubResolver| stub.counts().cache_hits;
        assert!(resolver.resolve("www.tides.example", 80).await.is_ok());
        folder.write("resolv.conf", "# the same\nnameserver 127.0.0.1\n");
        task::sleep(Duration::from_millis(1_001)).await;
        let stub = resolver.of_this_loop().await;
        assert!(stub.addresses("www.tides.example").await.is_ok());
        assert_eq!((hits(&stub), stub.counts().datagrams), (2, 0));
        folder.write("resolv.conf", "nameserver 127.0.0.1\nnameserver 127.0.0.1\n");
        task::sleep(Duration::from_millis(1_001)).await;
        let stub = resolver.of_this_loop().await;
        assert!(stub.addresses("www.tides.example").await.is_ok());
        assert_eq!((hits(&stub), stub.counts().datagrams), (0, 2));
    });
}

#[test]
fn a_service_has_ports_priorities_weights_and_a_time() {
    let (folder, server) = (Folder::new(), server());
    let resolver = folder.resolver(&server).servers(vec![NameServer::at(address(&server))]);
    run(async move {
        let found = resolver.resolve_service("_http._tcp.tides.example").await.expect("servers");
        let server = |text: &str, priority, weight| ResolvedServer {
            address: text.parse().expect("an address"),
            priority,
            weight,
        };
        let expected =
            [server("192.0.2.2:8081", 10, 1), server("[2001:db8::1]:8080", 10, 3), server("192.0.2.1:8080", 10, 3)];
        assert_eq!(found.servers.len(), expected.len(), "{found:?}");
        assert!(expected.iter().all(|server| found.servers.contains(server)), "{found:?}");
        assert_eq!(found.ttl, Some(Duration::from_secs(7)), "that of the shortest record");
        assert!(resolver.resolve_service("_none._tcp.tides.example").await.expect("an answer").servers.is_empty());
        let nothing = resolver.resolve_service("_nothing._tcp.tides.example").await.expect("an answer");
        assert_eq!((nothing.servers.len(), nothing.ttl), (0, Some(Duration::from_secs(60))));
        let host = resolver.resolve_servers("short.tides.example", 80).await.expect("servers");
        // The cache has had it for a while.
        assert!(host.servers.len() == 1 && host.ttl.is_some_and(|ttl| ttl <= Duration::from_secs(7)), "{host:?}");
        assert!(resolver.resolve_service("a..b").await.is_err());
    });
}

#[test]
fn a_loop_after_another_one_on_a_thread_has_a_resolver_of_its_own() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\n");
    let resolver = folder.resolver(&server);
    for name in ["www.tides.example", "short.tides.example", "local.tides.example"] {
        let resolver = resolver.clone();
        run(async move { assert!(resolver.resolve(name, 80).await.is_ok(), "{name}") });
    }
}

#[test]
fn a_client_connects_to_a_name_by_the_resolver_of_its_own() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\n");
    let resolver = folder.resolver(&server);
    let echo = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let echo = echo.serve(tidegate_codec::framing::Lines::new, async |mut channel| {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into())?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    let echo = echo.expect("it starts");
    let port = address(&echo).port();
    run(async move {
        let client = |name: &str| Client::to(&format!("{name}:{port}")).expect("a target").resolver(resolver.clone());
        let lines = tidegate_codec::framing::Lines::new;
        let mut channel = client("local.tides.example").connect(lines()).await.expect("it connects");
        channel.send("ebb".into()).expect("it is open");
        assert_eq!(&*channel.recv().await.expect("it is open").expect("a line"), b"ebb");
        let failed = client("none.tides.example").connect(lines()).await.expect_err("there is no such name");
        assert!(matches!(failed, ConnectError::Name(..)), "{failed}");
    });
}

#[test]
fn the_hosts_file_and_localhost_come_before_the_search_list() {
    let zone = "$ORIGIN corp.example.\n$TTL 300\n@ SOA ns root 1 2 3 4 60\n* A 192.0.2.66\n";
    let zone = Arc::new(Zone::parse(zone, None).expect("it is valid"));
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1);
    let server = server.start(move |_| zone.clone()).expect("it starts");
    let folder = Folder::new();
    folder.write("resolv.conf", "nameserver 127.0.0.1\nsearch lan.invalid corp.example\noptions no-aaaa\n");
    folder.write("hosts", "192.0.2.77 mole\n192.0.2.78 a.onion\n");
    let resolver = folder.resolver(&server);
    run(async move {
        assert_eq!(texts(resolver.resolve("localhost", 1).await), ["[::1]:1", "127.0.0.1:1"]);
        assert_eq!(texts(resolver.resolve("mole", 1).await), ["192.0.2.77:1"]);
        assert_eq!(texts(resolver.resolve("a.onion", 1).await), ["192.0.2.78:1"]);
        assert_eq!(resolver.of_this_loop().await.counts().datagrams, 0);
        assert_eq!(texts(resolver.resolve("quay", 1).await), ["192.0.2.66:1"]);
        assert_eq!(resolver.of_this_loop().await.counts().datagrams, 1, "no query for IPv6");
    });
}

/// Fails for A records. Of `six.example` it has an AAAA record, of other names none.
#[derive(Clone, Copy)]
struct Half;

impl Responder for Half {
    fn answer(&self, question: &Question) -> Response {
        if question.record_type == RecordType::A {
            return Response::of_code(ResponseCode::SERVFAIL);
        }
        let mut response = Response::of_code(ResponseCode::NOERROR);
        let mut add = |data| response.answers.push(Record::new(question.name.clone(), 300, data));
        let text = question.name.to_lowercase().to_string();
        match (question.record_type, &*text) {
            (RecordType::AAAA, "six.example.") => add(Rdata::aaaa([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into())),
            (RecordType::SRV, _) => ["six.example", "half.example"]
                .into_iter()
                .for_each(|host| add(Rdata::srv(1, 1, 80, &host.parse().expect("a name")))),
            _ => {}
        }
        response
    }
}

#[test]
fn a_family_that_fails_is_no_answer_without_addresses_and_a_part_with_some() {
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1);
    let server = server.start(|_| Half).expect("it starts");
    let folder = Folder::new();
    let resolver = folder.resolver(&server).servers(vec![NameServer::at(address(&server))]);
    run(async move {
        let failed = resolver.resolve("half.example", 80).await.expect_err("a server failed");
        assert_eq!(failed.kind(), std::io::ErrorKind::Other, "{failed}");
        assert!(resolver.resolve_servers("half.example", 80).await.is_err());
        assert_eq!(texts(resolver.resolve("six.example", 80).await), ["[2001:db8::1]:80"]);
        for found in [
            resolver.resolve_servers("six.example", 80).await.expect("servers"),
            resolver.resolve_service("_http._tcp.example").await.expect("servers"),
        ] {
            assert!(found.servers.len() == 1 && found.is_partial, "{found:?}");
        }
    });
}

#[test]
fn servers_of_a_set_are_asked_for_again_while_the_cache_has_them() {
    let (folder, server) = (Folder::new(), server());
    let resolver = folder.resolver(&server).servers(vec![NameServer::at(address(&server))]);
    run(async move {
        for datagrams in [2, 4] {
            assert_eq!(resolver.resolve_servers("www.tides.example", 80).await.expect("servers").servers.len(), 2);
            assert_eq!(resolver.of_this_loop().await.counts().datagrams, datagrams);
        }
    });
}

#[test]
fn a_hosts_file_that_cannot_be_read_leaves_the_content_of_the_other() {
    let (folder, server) = (Folder::new(), server());
    folder.write("resolv.conf", "nameserver 127.0.0.1\nsearch tides.example\n");
    // A folder cannot be read, by any user.
    fs::create_dir(folder.0.join("hosts")).expect("a folder");
    let resolver = folder.resolver(&server);
    run(async move {
        assert_eq!(texts(resolver.resolve("www", 80).await).len(), 2);
        let stub = resolver.of_this_loop().await;
        task::sleep(Duration::from_millis(1_001)).await;
        assert!(resolver.resolve("www", 80).await.is_ok());
        assert_eq!((stub.counts().cache_hits, stub.counts().datagrams), (2, 2), "the files are not read again");
    });
}
