//! The client over TLS.

use std::time::Duration;

use tidegate::Over;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientBuilder, ClientConfig, Provider, ServerConfig, Tls};
use tidegate_engine::{Backend, Channel, EventLoop, Server, task};
use tidegate_redis::{
    Client, ClientCodec, ClientError, Failure, IncomingCommand, OutgoingReply, OwnedValue, ServerCodec,
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
