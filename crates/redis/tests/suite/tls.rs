//! The client and the server over TLS.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate::Over;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientBuilder, ClientConfig, Provider, ServerConfig, Tls};
use tidegate_engine::{Backend, Channel, EventLoop, Server, task};
use tidegate_redis::{
    Answer, CallContext, Channels, Client, ClientCodec, ClientError, Command as RedisCommand, Failure, Handler,
    IncomingCommand, OutgoingReply, OwnedValue, ServerCodec, Service, SubscriberEvent,
};

#[test]
fn commands_and_replies_are_encrypted_and_a_wrong_certificate_is_refused() {
    let provider = Provider::ring();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes());
    let tls = ServerConfig::builder(&provider, certificates.expect("a certificate")).build().expect("a configuration");
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
    let serving = async |mut channel: Channel<Over<Tls, ServerCodec>>| {
        while let Some(message) = channel.recv().await? {
            let IncomingCommand::Whole(command) = message else { panic!("a whole command") };
            let argument = command.arguments().next().unwrap_or_default().to_vec();
            channel.send(OutgoingReply::bulk(argument))?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let server = server.serve(move || Over::new(tls.accept(), ServerCodec::default()), serving).expect("it starts");
    let target = server.address().to_string();
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let test = async move {
        let trusting =
            ClientConfig::dangerous_builder_without_verification(&provider).build().expect("a configuration");
        let mut roots = RootCertStore::empty();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        roots.add(other.cert.der().clone()).expect("a root");
        let strict = ClientConfig::builder(&provider, roots).and_then(ClientBuilder::build).expect("a configuration");
        let client = Client::to(&target).expect("an address").resp2().timeout(Duration::from_secs(60));
        let client = client
            .start_with(move || Over::new(trusting.connect("localhost").expect("a name"), ClientCodec::default()));
        let long = "x".repeat(100_000);
        let replies: Vec<_> = (0..50).map(|number| client.cmd("ECHO").arg(format!("{number}{long}")).send()).collect();
        for (number, reply) in replies.into_iter().enumerate() {
            let is_own = reply.await == Ok(OwnedValue::Bulk(format!("{number}{long}").into()));
            assert!(is_own, "{number}: {:?}", client.last_failure());
        }
        let refusing = Client::to(&target).expect("an address").timeout(Duration::from_secs(1));
        let refusing = refusing
            .start_with(move || Over::new(strict.connect("localhost").expect("a name"), ClientCodec::default()));
        assert_eq!(refusing.cmd("PING").await, Err(ClientError::NotSent(Failure::Deadline)));
        assert!(refusing.last_failure().is_some());
    };
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang");
    server.drain(Duration::ZERO);
}

/// Has one value.
struct Level;

impl Service for Level {
    fn call(&mut self, command: &RedisCommand, _: &CallContext) -> Answer {
        match command.name() {
            b"GET" => OutgoingReply::bulk("412").into(),
            _ => Answer::Unknown,
        }
    }
}

/// The handler works on any pipeline whose codec is that of a server.
#[test]
fn a_server_has_commands_and_channels_over_tls_and_redis_cli_speaks_to_it() {
    let provider = Provider::ring();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, certificate.as_bytes(), key.as_bytes());
    let tls = ServerConfig::builder(&provider, certificates.expect("a certificate")).build().expect("a configuration");
    let channels: Channels<Over<Tls, ServerCodec>> = Channels::new();
    let start = move || {
        let handler = Handler::with(Level, Arc::default(), channels.clone());
        (Over::new(tls.accept(), ServerCodec::default()), handler)
    };
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).start(start).expect("it starts");
    let target = server.address().to_string();
    let port = target.rsplit(':').next().expect("a port").to_owned();
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let test = async move {
        let config = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("a configuration");
        let make = move || Over::new(config.connect("localhost").expect("a name"), ClientCodec::default());
        let builder = || Client::to(&target).expect("an address").timeout(Duration::from_secs(60));
        let client = builder().start_with(make.clone());
        assert_eq!(client.cmd("GET").arg("brest").fetch::<u32>().await, Ok(412));
        let mut subscribers = [builder().subscriber_with(make.clone()), builder().resp2().subscriber_with(make)];
        for subscriber in &mut subscribers {
            subscriber.subscribe("tides");
            while subscriber.recv().await != Some(SubscriberEvent::Up) {}
        }
        while client.cmd("PUBLISH").arg("tides").arg("in").fetch::<u32>().await != Ok(2) {}
        for subscriber in &mut subscribers {
            let Some(SubscriberEvent::Message(message)) = subscriber.recv().await else { panic!("a message") };
            assert_eq!((&*message.channel, &*message.payload), (&b"tides"[..], &b"in"[..]));
        }
    };
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang");
    let file = std::env::temp_dir().join(format!("tidegate-redis-tls-{}.pem", std::process::id()));
    std::fs::write(&file, certificate).expect("a file");
    let mut command = Command::new("redis-cli");
    command.args(["--tls", "--cacert"]).arg(&file).args(["--sni", "localhost", "-h", "localhost", "-p", &port]);
    match command.args(["GET", "brest"]).stdin(Stdio::null()).output() {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("Unrecognized option") => {
            println!("skipped: this redis-cli has no TLS");
        }
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "412\n", "{output:?}"),
        Err(error) => println!("skipped: there is no redis-cli: {error}"),
    }
    std::fs::remove_file(&file).expect("the file");
    server.drain(Duration::ZERO);
}
