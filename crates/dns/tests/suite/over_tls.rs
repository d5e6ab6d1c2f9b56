//! A resolver and a server over TLS (RFC 7858).

use std::sync::Arc;
use std::time::Duration;

use tidegate::Over;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientBuilder, ClientConfig, Provider, ServerConfig};
use tidegate_dns::server::StreamHandler;
use tidegate_dns::{
    CacheConfig, ClientCodec, LookupError, NameServer, ResolverConfig, ServerCodec, SharedCache, StubResolver, Zone,
};
use tidegate_engine::{Backend, Client, EventLoop, Server, task};

fn resolver(client: &Client, tls: ClientConfig) -> StubResolver {
    let make = move || Ok(Over::new(tls.connect("dns.example")?, ClientCodec::default()));
    let config = ResolverConfig { lookup_timeout: Duration::from_secs(60), ..ResolverConfig::default() };
    let cache = SharedCache::new(CacheConfig::default());
    StubResolver::new(vec![NameServer::over(client.clone(), make)], config, cache)
}

#[test]
fn queries_go_over_tls_and_a_server_of_another_authority_gets_none() {
    let provider = Provider::ring();
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes());
    let tls = ServerConfig::builder(&provider, certificates.expect("a certificate")).build().expect("a configuration");
    let zone = Zone::parse("$ORIGIN tides.example.\n$TTL 60\n@ SOA ns root 1 2 3 4 60\nwww A 192.0.2.1\n", None);
    let zone = Arc::new(zone.expect("it is valid"));
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
    let server =
        server.start(move || (Over::new(tls.accept(), ServerCodec::default()), StreamHandler::new(zone.clone())));
    let server = server.expect("it starts");
    let client = Client::at(server.address().clone());
    let trusting = |root: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        let mut roots = RootCertStore::empty();
        roots.add(root.cert.der().clone()).expect("a root");
        ClientConfig::builder(&provider, roots).and_then(ClientBuilder::build).expect("a configuration")
    };
    let other = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).expect("a certificate");
    let (trusting, strict) = (trusting(&made), trusting(&other));
    let test = async move {
        let resolver_of_it = resolver(&client, trusting);
        let addresses = resolver_of_it.addresses("www.tides.example").await.expect("an answer");
        assert_eq!(addresses, ["192.0.2.1".parse::<std::net::IpAddr>().expect("an address")]);
        let counts = resolver_of_it.counts();
        assert_eq!((counts.datagrams, counts.stream_queries), (0, 2));
        let refusing = resolver(&client, strict);
        assert_eq!(refusing.addresses("www.tides.example").await, Err(LookupError::Failed));
        assert_eq!(refusing.counts().responses, 0);
    };
    let mut event_loop = EventLoop::on(Backend::Epoll).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang");
    server.drain(Duration::ZERO);
}
