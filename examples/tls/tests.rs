//! Copies are counted; ends, errors, fragments, and a foreign client.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, ServerConfig};
use tidegate::framing::Raw;
use tidegate::{Address, Backend, Channel, Client, EventLoop, Limits, Over, Server, task};
use tidegate_testkit::network::{FaultRates, Network};
use tidegate_testkit::{Embedded, seeds};

use crate::filter::Tls;
use crate::{WATER, client_codec, configurations, download, serve, server_codec};

type Configurations = (Arc<ServerConfig>, Arc<ClientConfig>);

fn usual() -> Configurations {
    configurations(ring::default_provider()).unwrap()
}

/// A server and a client, each on a loop of its own, with the test as the wire between them.
struct Pair {
    server: Embedded<Infallible>,
    client: Embedded<Infallible>,
    /// How many downloads are complete.
    done: Rc<Cell<usize>>,
    failure: Rc<RefCell<Option<String>>>,
}

impl Pair {
    /// The client downloads so many bytes each time, and waits for a second after each.
    fn new((server, client): &Configurations, sizes: &'static [usize]) -> Self {
        let (done, failure) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
        let (counter, reason) = (done.clone(), failure.clone());
        let downloads = async move |mut channel: Channel<Over<Tls, Raw>>| {
            for size in sizes {
                if let Err(error) = download(&mut channel, *size).await {
                    *reason.borrow_mut() = Some(error.to_string());
                    return Ok(());
                }
                counter.set(counter.get() + 1);
                task::sleep(Duration::from_secs(1)).await;
            }
            channel.close().await
        };
        Self {
            server: Embedded::serving(server_codec(server, Raw), serve),
            client: Embedded::serving(client_codec(client, Raw), downloads),
            done,
            failure,
        }
    }

    /// Carries bytes, in pieces of at most `piece`, until none are left.
    fn exchange(&mut self, piece: usize) {
        loop {
            let (to_client, to_server) = (self.server.take_written(), self.client.take_written());
            if to_client.is_empty() && to_server.is_empty() {
                return;
            }
            to_client.chunks(piece).for_each(|piece| self.client.receive(piece));
            to_server.chunks(piece).for_each(|piece| self.server.receive(piece));
        }
    }

    /// A second passes for the client.
    fn advance(&mut self) {
        self.client.advance(Duration::from_secs(1));
    }

    /// How many bytes either side has copied.
    fn copied(&self) -> [u64; 2] {
        let copied = |pipe: &Embedded<Infallible>| pipe.pool().ledger().copied_bytes();
        [copied(&self.server), copied(&self.client)].map(|bytes| bytes.expect("tests have debug assertions"))
    }

    /// How many bytes of memory either side uses.
    fn used(&self) -> [usize; 2] {
        [&self.server, &self.client].map(|pipe| pipe.pool().ledger().used())
    }
}

#[test]
fn a_bulk_download_copies_no_byte() {
    let mut pair = Pair::new(&usual(), &[100_000, BULK_BYTES, BULK_BYTES]);
    let idle = pair.used();
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 1);
    // By now the client knows the length of a record.
    for round in 2..=3 {
        let before = pair.copied();
        pair.advance();
        pair.exchange(usize::MAX);
        assert_eq!(pair.done.get(), round, "{:?}", pair.failure);
        let copied = [0, 1].map(|side| pair.copied()[side] - before[side]);
        println!("{copied:?} bytes of {BULK_BYTES} copied by the server and by the client");
        // The request: a record of 31 bytes.
        assert!(copied.iter().all(|bytes| *bytes <= 31), "{copied:?} bytes copied by the server and by the client");
    }
    pair.client.pool().trim();
    assert!(pair.used().iter().zip(idle).all(|(now, idle)| *now <= idle + SCRATCH_BYTES), "{:?}", pair.used());
}

#[test]
fn every_suite_decrypts_in_place() {
    // The certificate has an elliptic key; the suites for RSA keys use the same ciphers.
    for suite in ring::ALL_CIPHER_SUITES.iter().filter(|suite| !format!("{suite:?}").contains("_RSA_")) {
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![*suite];
        let provider = Arc::new(provider);
        let (server, client) = with_versions(provider, suite.version());
        let mut pair = Pair::new(&(server, client), &[100_000, 1 << 20]);
        pair.exchange(usize::MAX);
        let before = pair.copied();
        pair.advance();
        pair.exchange(usize::MAX);
        assert_eq!(pair.done.get(), 2, "{suite:?}: {:?}", pair.failure);
        let copied = pair.copied()[1] - before[1];
        assert!(copied < 100, "{suite:?}: {copied} bytes copied");
    }
}

#[test]
fn records_and_handshakes_survive_every_fragmentation() {
    for (fragment, piece) in [(None, 1), (None, 1_000), (Some(64), 1), (Some(64), 7), (Some(64), usize::MAX)] {
        let (server, client) = usual();
        let (mut server, mut client) = ((*server).clone(), (*client).clone());
        (server.max_fragment_size, client.max_fragment_size) = (fragment, fragment);
        let mut pair = Pair::new(&(Arc::new(server), Arc::new(client)), &[1, 30_000]);
        pair.exchange(piece);
        pair.advance();
        pair.exchange(piece);
        assert_eq!(pair.done.get(), 2, "{fragment:?}, {piece}: {:?}", pair.failure);
        pair.advance();
        pair.exchange(piece);
        assert!(pair.client.is_write_closed() && pair.client.counts().connections == 1);
    }
}

#[test]
fn small_writes_share_a_record() {
    let lines = async |mut channel: Channel<Over<Tls, Raw>>| {
        while channel.recv().await?.is_some() {
            for _ in 0..100 {
                channel.send("ebb\n".into())?;
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let (server, client) = usual();
    let mut pair = Pair::new(&(server.clone(), client.clone()), &[]);
    pair.server = Embedded::serving(server_codec(&server, Raw), lines);
    pair.client = Embedded::serving(client_codec(&client, Raw), async |mut channel: Channel<Over<Tls, Raw>>| {
        task::sleep(Duration::from_secs(1)).await;
        channel.send("go\n".into())?;
        while channel.recv().await?.is_some() {}
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    pair.exchange(usize::MAX);
    pair.advance();
    let request = pair.client.take_written();
    pair.server.receive(&request);
    let answer = pair.server.take_written();
    let length = 5 + usize::from(u16::from_be_bytes([answer[3], answer[4]]));
    assert_eq!((answer.len(), length), (422, 422), "one record with four hundred bytes");
}

#[test]
fn an_end_without_close_notify_is_an_error_and_one_with_it_is_not() {
    let mut pair = Pair::new(&usual(), &[1_000, 1_000_000]);
    pair.exchange(usize::MAX);
    pair.advance();
    // The download is under way when the wire breaks.
    let request = pair.client.take_written();
    pair.server.receive(&request);
    let bulk = pair.server.take_written();
    pair.client.receive(&bulk[..500_000]);
    pair.client.receive_fin();
    let failure = pair.failure.borrow().clone();
    assert!(failure.as_ref().is_some_and(|reason| reason.contains("without a close_notify")), "{failure:?}");

    let mut pair = Pair::new(&usual(), &[1_000]);
    pair.exchange(usize::MAX);
    pair.advance();
    // The client closes: the server sees the end, and says goodbye as well.
    let goodbye = pair.client.take_written();
    assert!(!goodbye.is_empty() && pair.client.is_write_closed());
    pair.server.receive(&goodbye);
    let answer = pair.server.take_written();
    assert!(!answer.is_empty() && pair.server.is_write_closed());
    pair.client.receive(&answer);
    pair.client.receive_fin();
    pair.server.receive_fin();
    assert!(pair.client.is_closed() && pair.server.is_closed());
    assert!(pair.failure.borrow().is_none(), "{:?}", pair.failure);
}

#[test]
fn bytes_that_are_no_tls_get_an_alert_and_the_end() {
    let mut server = Embedded::serving(server_codec(&usual().0, Raw), serve);
    server.receive(b"GET / HTTP/1.1\r\n\r\n");
    let alert = server.take_written();
    assert_eq!(alert.first(), Some(&21), "{alert:?}");
    assert!(server.is_write_closed());
}

#[test]
fn a_changed_byte_is_noticed() {
    let mut pair = Pair::new(&usual(), &[1_000, 100_000]);
    pair.exchange(usize::MAX);
    pair.advance();
    let request = pair.client.take_written();
    pair.server.receive(&request);
    let mut bulk = pair.server.take_written();
    bulk[40_000] ^= 1;
    pair.client.receive(&bulk);
    assert!(pair.failure.borrow().is_some() && pair.done.get() == 1);
    assert!(!pair.client.take_written().is_empty(), "the client sends an alert");
}

#[test]
fn a_download_over_loopback_is_complete() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else {
            println!("skipped: there is no {backend:?} here");
            continue;
        };
        let (server_config, client_config) = usual();
        let codec = move || server_codec(&server_config, Raw);
        let server = Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1).serve(codec, serve).unwrap();
        let address = server.address().clone();
        let client = async move { task::spawn(fetch(address, client_config, 2 * BULK_BYTES)).await };
        event_loop.block_on(client).unwrap().unwrap();
        server.drain(Duration::from_secs(1));
    }
}

async fn fetch(address: Address, config: Arc<ClientConfig>, bytes: usize) {
    let mut channel = Client::at(address).connect(client_codec(&config, Raw)).await.unwrap();
    download(&mut channel, bytes).await.unwrap();
    channel.close().await.unwrap();
}

#[test]
fn downloads_on_a_simulated_network_are_complete_whatever_its_faults() {
    for seed in seeds(20) {
        let (server_config, client_config) = usual();
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign());
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let codec = move || server_codec(&server_config, Raw);
        let address = server.serve(443, Limits::default(), codec, serve).unwrap();
        let done = client.spawn(fetch(address, client_config, 1 << 20));
        network.run_task(Duration::from_secs(1_000), done);
    }
}

#[test]
fn openssl_downloads_over_both_versions() {
    let (server_config, _) = usual();
    let codec = move || server_codec(&server_config, Raw);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(codec, serve).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let address = server.address().to_string();
        let client = Command::new("openssl")
            .args(["s_client", "-quiet", version, "-connect", &address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut client = match client {
            Ok(client) => client,
            Err(error) => {
                let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
                assert!(!required, "openssl is required: {error}");
                return println!("skipped: there is no openssl here: {error}");
            }
        };
        let (mut stdin, mut stdout) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        let mut received = vec![0; 1 << 20];
        let done = stdin.write_all(b"1048576\n").and_then(|()| stdout.read_exact(&mut received));
        client.kill().unwrap();
        client.wait().unwrap();
        done.unwrap();
        assert!(received.chunks(WATER.len()).all(|piece| piece == WATER), "{version}");
    }
    server.drain(Duration::from_secs(1));
}

/// Configurations with one version.
fn with_versions(
    provider: Arc<rustls::crypto::CryptoProvider>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Configurations {
    crate::configurations_with(provider, &[version]).unwrap()
}

/// As the server's queue is not limited here, all of it waits on the wire at a time.
const BULK_BYTES: usize = 16 << 20;

/// The memory that a loop receives into.
const SCRATCH_BYTES: usize = 84 * 1024;
