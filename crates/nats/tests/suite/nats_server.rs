//! The client against nats-server, where it is installed: failures, credentials, TLS, JetStream.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate::Over;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{ClientBuilder, ClientConfig, Provider};
use tidegate_nats::{
    ApiError, Client, ClientCodec, ClientError, ClientEvent, Credentials, Failure, Headers, JetStreamError,
    OutgoingMessage, PublishOptions, ServerErrorKind, StartTls, StreamConfig, SubscriberEvent,
};

use crate::support::{client, next_message, run, wait_for};

/// A nats-server on the loopback address. It ends when it is dropped.
struct NatsProcess {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl NatsProcess {
    /// `None`, with a line, if there is no nats-server. `configuration` is the text of its file.
    fn start(name: &str, port: u16, configuration: &str) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("tidegate-nats-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        Self::start_in(directory, port, configuration)
    }

    fn start_in(directory: PathBuf, port: u16, configuration: &str) -> Option<Self> {
        let file = directory.join("nats.conf");
        let text = format!("listen: 127.0.0.1:{port}\n{configuration}\n");
        std::fs::write(&file, &text).expect("a file");
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(&file).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "nats-server is missing: {error}");
                println!("skipped: there is no nats-server: {error}");
                return None;
            }
        };
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Server is ready"));
        assert!(is_ready, "nats-server does not start with {text}");
        // It must not wait for a reader of its log.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, directory, port })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for NatsProcess {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn nats_server_and_the_client_understand_each_other() {
    let Some(server) = NatsProcess::start("plain", free_port(), "") else { return };
    let target = server.address();
    run(async move {
        let client = client(&target);
        let mut tides = client.subscribe("tides.*").expect("a filter");
        let mut work = client.subscribe_in_group("work", "workers").expect("a filter");
        wait_for(&mut tides, &SubscriberEvent::Up).await;
        for number in 0..1000 {
            client.publish("tides.brest", number.to_string()).expect("it is taken");
        }
        for number in 0..1000 {
            assert_eq!(next_message(&mut tides).await.payload, number.to_string());
        }
        let long = vec![b'x'; 1 << 20];
        client.publish("work", long.clone()).expect("it is taken");
        assert_eq!(next_message(&mut work).await.payload, long);
        assert_eq!(client.request("nothing", "").await, Err(ClientError::NoResponders));
        let too_long = ClientError::TooLong { bytes: (1 << 20) + 1, bytes_max: 1 << 20 };
        assert_eq!(client.publish("work", vec![0; (1 << 20) + 1]), Err(too_long));
        client.drain().await.expect("the server answers");
    });
}

#[test]
fn the_client_survives_a_killed_server_and_one_that_stops_answering() {
    let port = free_port();
    let Some(mut server) = NatsProcess::start("killed", port, "") else { return };
    let target = server.address();
    run(async move {
        let builder =
            Client::to(&target).expect("an address").backoff(Duration::from_millis(1), Duration::from_millis(20));
        let client = builder.timeout(Duration::from_millis(500)).ping_after(Duration::from_millis(100)).start();
        let mut tides = client.subscribe("tides").expect("a filter");
        wait_for(&mut tides, &SubscriberEvent::Up).await;
        let mut silent = client.subscribe("silent").expect("a filter");
        let request = client.request("silent", "ebb");
        drop(next_message(&mut silent).await);
        server.kill();
        assert_eq!(request.await, Err(ClientError::MaybeProcessed(Failure::ConnectionLost)));
        wait_for(&mut tides, &SubscriberEvent::Down).await;
        let server = NatsProcess::start_in(server.directory.clone(), port, "").expect("it was there before");
        wait_for(&mut tides, &SubscriberEvent::Gap).await;
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
        client.publish("tides", "ebb").expect("it is taken");
        assert_eq!(next_message(&mut tides).await.payload, "ebb");
        // A server that is stopped does not answer PING.
        server.signal("STOP");
        wait_for(&mut tides, &SubscriberEvent::Down).await;
        assert!(client.flush().await.is_err());
        server.signal("CONT");
        wait_for(&mut tides, &SubscriberEvent::Up).await;
        client.publish("tides", "flow").expect("it is taken");
        assert_eq!(next_message(&mut tides).await.payload, "flow");
        assert!(client.counts().reconnects >= 2);
    });
}

#[test]
fn permissions_are_reported_and_keep_the_connection_and_wrong_passwords_do_not() {
    let users = "authorization { users = [{ user: ebb, password: flow, permissions: { subscribe: \"tides.>\", publish: \
                 [\"tides.>\", \"_INBOX.>\"] } }] }";
    let Some(server) = NatsProcess::start("users", free_port(), users) else { return };
    let target = server.address();
    run(async move {
        let builder = || Client::to(&target).expect("an address").timeout(Duration::from_secs(60));
        let refused = builder().credentials(Credentials::password("ebb", "wrong")).start();
        assert_eq!(refused.flush().await, Err(ClientError::NotSent(Failure::Refused)));
        assert!(refused.counts().errors(ServerErrorKind::Authorization) > 0);

        let client = builder().credentials(Credentials::password("ebb", "flow")).start();
        let events = client.events();
        let mut tides = client.subscribe("tides.brest").expect("a filter");
        let mut storms = client.subscribe("storms.*").expect("a filter");
        wait_for(&mut storms, &SubscriberEvent::Refused("storms.*".into())).await;
        client.publish("storms.brest", "ebb").expect("it is taken");
        let mut seen = Vec::new();
        while seen.len() < 2 {
            if let Some(ClientEvent::ServerError(error)) = events.recv().await {
                assert_eq!(error.kind(), ServerErrorKind::Permissions);
                seen.push(error.to_string());
            }
        }
        assert!(seen.iter().all(|text| text.contains("storms")), "{seen:?}");
        client.publish("tides.brest", "ebb").expect("it is taken");
        assert_eq!(next_message(&mut tides).await.payload, "ebb");
        assert_eq!(client.counts().connections, 1);
    });
}

/// A seed and its public key, of the server's own documentation of nkeys.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

#[test]
fn a_key_signs_the_nonce_of_the_server() {
    let provider = Provider::ring();
    let credentials = Credentials::nkey(&provider, SEED).expect("a seed");
    let users = format!("authorization {{ users = [{{ nkey: {PUBLIC} }}] }}");
    let Some(server) = NatsProcess::start("nkeys", free_port(), &users) else { return };
    let target = server.address();
    run(async move {
        let builder = || Client::to(&target).expect("an address").timeout(Duration::from_secs(60));
        builder().credentials(credentials).start().flush().await.expect("the key is right");
        let refused = builder().credentials(Credentials::token("ebb")).start();
        assert_eq!(refused.flush().await, Err(ClientError::NotSent(Failure::Refused)));
    });
}

/// Writes a certificate for `localhost`, and returns the lines of the configuration.
fn tls_files(directory: &Path) -> (String, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::create_dir_all(directory).expect("a directory");
    let (certificate, key) = (directory.join("tls.pem"), directory.join("tls.key"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let lines = format!("cert_file: {certificate:?}\nkey_file: {key:?}");
    (lines, made.cert.der().to_vec())
}

#[test]
fn tls_begins_after_info_and_a_wrong_certificate_is_refused() {
    let directory = std::env::temp_dir().join(format!("tidegate-nats-{}-tls", std::process::id()));
    let (lines, certificate) = tls_files(&directory);
    let Some(server) = NatsProcess::start_in(directory, free_port(), &format!("tls {{ {lines}\n }}")) else { return };
    let (target, port) = (server.address(), server.port);
    run(async move {
        let provider = Provider::ring();
        let config = |der: Vec<u8>| {
            let mut roots = RootCertStore::empty();
            roots.add(der.into()).expect("a root");
            ClientConfig::builder(&provider, roots).and_then(ClientBuilder::build).expect("a configuration")
        };
        let over = |config: ClientConfig| {
            Client::to(&format!("localhost:{port}")).expect("an address").timeout(Duration::from_secs(2)).start_with(
                move |server| Ok(Over::new(StartTls::client(config.connect(server.host())?), ClientCodec::default())),
            )
        };
        let client = over(config(certificate));
        let mut tides = client.subscribe("tides").expect("a filter");
        client.publish("tides", vec![b'x'; 100_000]).expect("it is taken");
        assert_eq!(next_message(&mut tides).await.payload.len(), 100_000, "{:?}", client.last_failure());
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let refusing = over(config(other.cert.der().to_vec()));
        assert_eq!(refusing.flush().await, Err(ClientError::NotSent(Failure::Deadline)));
        assert!(refusing.last_failure().is_some_and(|text| text.contains("certificate")));
        // Without TLS the client names the remedy, and sends no password.
        let plain = Client::to(&target).expect("an address").timeout(Duration::from_secs(2)).start();
        assert_eq!(plain.flush().await, Err(ClientError::NotSent(Failure::Deadline)));
        assert!(plain.last_failure().is_some_and(|text| text.contains("StartTls")), "{:?}", plain.last_failure());
    });
}

#[test]
fn headers_that_a_publisher_has_chosen_do_not_end_a_history() {
    let store = std::env::temp_dir().join(format!("tidegate-nats-{}-headers/store", std::process::id()));
    let config = format!("jetstream {{ store_dir: {store:?} }}");
    let Some(server) = NatsProcess::start("headers", free_port(), &config) else { return };
    let target = server.address();
    run(async move {
        let client = client(&target);
        let streams = client.jetstream();
        streams.create(&StreamConfig::new("TIDES", ["tides.>"]).in_memory()).await.expect("it is created");
        let blocks = [
            "NATS/1.0 204 EOB\r\n\r\n",
            "NATS/1.0 404 No Messages\r\n\r\n",
            "NATS/1.0 503\r\n\r\n",
            "NATS/1.0\r\nNats-Sequence: 1\r\nNats-Subject: storms\r\n\r\n",
            "NATS/1.0 204 EOB\r\nNats-Sequence: x\r\nNats-Num-Pending: 0\r\n\r\n",
        ];
        for block in blocks {
            // The payload is empty, as that of an answer of the server.
            let message = OutgoingMessage::new("tides.brest", "").headers(Headers::from_block(block));
            client.request_with(message, Duration::from_secs(60)).await.expect("it is stored");
        }
        streams.publish("tides.brest", "last", PublishOptions::new()).await.expect("it is stored");
        let mut history = streams.history("TIDES", "tides.brest", 0);
        let mut seen = Vec::new();
        while let Some(message) = history.next().await.expect("it goes on") {
            assert_eq!(message.subject, "tides.brest");
            seen.push(message.sequence);
        }
        assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
        for sequence in 1..=6 {
            assert_eq!(streams.message("TIDES", sequence).await.map(|message| message.sequence), Ok(sequence));
        }
        let none = streams.message("TIDES", 7).await;
        assert_eq!(none.unwrap_err().err_code(), Some(ApiError::NO_MESSAGE_FOUND));
        streams.delete("TIDES").await.expect("it is deleted");
    });
}

#[test]
fn jetstream_stores_messages_in_one_order_and_reads_them_again() {
    let store = std::env::temp_dir().join(format!("tidegate-nats-{}-jetstream/store", std::process::id()));
    let config = format!("jetstream {{ store_dir: {store:?} }}");
    let Some(server) = NatsProcess::start("jetstream", free_port(), &config) else { return };
    let target = server.address();
    run(async move {
        let client = client(&target);
        let streams = client.jetstream();
        assert_eq!(streams.info("TIDES").await.unwrap_err().err_code(), Some(ApiError::STREAM_NOT_FOUND));
        let config = StreamConfig::new("TIDES", ["tides.>"]).in_memory();
        streams.create(&config).await.expect("it is created");
        let changed = StreamConfig { max_msgs_per_subject: 1000, ..config };
        let info = streams.create_or_update(&changed).await.expect("it is changed");
        assert_eq!((info.config.max_msgs_per_subject, info.state.messages), (1000, 0));
        assert!(!info.created.is_empty());
        // Nothing to read yet.
        assert_eq!(streams.history("TIDES", "tides.>", 0).next().await, Ok(None));
        for number in 1..=600 {
            let subject = if number % 2 == 0 { "tides.brest" } else { "tides.malo" };
            let options = PublishOptions::new().expected_last_sequence(number - 1);
            let ack = streams.publish(subject, number.to_string(), options).await.expect("it is stored");
            assert_eq!((ack.stream.as_str(), ack.sequence, ack.duplicate), ("TIDES", number, false));
        }
        let wrong = streams.publish("tides.brest", "", PublishOptions::new().expected_last_sequence(7)).await;
        assert_eq!(wrong.unwrap_err().err_code(), Some(ApiError::WRONG_LAST_SEQUENCE));
        for is_second in [false, true] {
            let options = PublishOptions::new().message_id("tide-412");
            let ack = streams.publish("tides.brest", "ebb", options).await.expect("it is stored");
            assert_eq!((ack.sequence, ack.duplicate), (601, is_second));
        }
        let nowhere = streams.publish("storms", "", PublishOptions::new()).await;
        assert_eq!(nowhere, Err(JetStreamError::Client(ClientError::NoResponders)));
        let third = streams.message("TIDES", 3).await.expect("it is there");
        assert_eq!((&*third.subject, third.sequence, &*third.payload), (&b"tides.malo"[..], 3, &b"3"[..]));
        assert_eq!(streams.last_message("TIDES", "tides.malo").await.expect("it is there").sequence, 599);
        assert_eq!(streams.next_message("TIDES", "tides.malo", 4).await.expect("it is there").sequence, 5);
        assert_eq!(streams.message("TIDES", 700).await.unwrap_err().err_code(), Some(ApiError::NO_MESSAGE_FOUND));
        let mut history = streams.history("TIDES", "tides.brest", 2);
        let mut expected: Vec<u64> = (2..=300).map(|half| half * 2).collect();
        expected.push(601);
        let mut seen = Vec::new();
        while let Some(message) = history.next().await.expect("it goes on") {
            seen.push(message.sequence);
        }
        assert_eq!(seen, expected);
        assert_eq!(streams.info("TIDES.x").await, Err(JetStreamError::Name));
        streams.delete("TIDES").await.expect("it is deleted");
    });
}
