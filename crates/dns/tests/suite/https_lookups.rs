//! HTTPS records (RFC 9460): the endpoints of an origin, by a server with a zone.

use std::sync::Arc;
use std::time::Duration;

use tidegate_dns::server::DnsServer;
use tidegate_dns::{CacheConfig, NameServer, ResolverConfig, SharedCache, StubResolver, Zone};
use tidegate_engine::{Backend, EventLoop, task};

const ZONE: &str = "\
$ORIGIN sea.example.
$TTL 60
@ SOA ns root 1 2 3 4 30
@ HTTPS 2 far alpn=h3 port=8443
@ HTTPS 1 . alpn=h2,h3
_8443._https HTTPS 1 . alpn=http/1.1
_1._https HTTPS 1 near alpn=h3 no-default-alpn
alias HTTPS 0 chain.sea.example.
chain HTTPS 0 @
bare HTTPS 0 near
gone HTTPS 0 .
both HTTPS 1 far alpn=h3
both HTTPS 0 near
named CNAME @
loop HTTPS 0 loop2
loop2 HTTPS 0 loop
mandatory HTTPS 1 far mandatory=key65 key65=x
mandatory HTTPS 2 near mandatory=alpn,port alpn=h2 port=1
absent HTTPS 1 far mandatory=alpn,port alpn=h3
ech HTTPS 1 far mandatory=ech ech=dGlkZQ== alpn=h3
hinted HTTPS 1 far ech=dGlkZQ== alpn=h3
contradicts HTTPS 1 far no-default-alpn
zero HTTPS 1 far port=0
near A 192.0.2.1
far A 192.0.2.2
ten0 HTTPS 0 ten1
ten1 HTTPS 0 ten2
ten2 HTTPS 0 ten3
ten3 HTTPS 0 ten4
ten4 HTTPS 0 ten5
ten5 HTTPS 0 ten6
ten6 HTTPS 0 ten7
ten7 HTTPS 0 ten8
ten8 HTTPS 0 ten9
ten9 HTTPS 1 . alpn=h3
";

#[test]
fn an_origin_has_the_endpoints_of_its_records() {
    let zone = Arc::new(Zone::parse(ZONE, None).expect("it is valid"));
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).start(move |_| zone.clone());
    let server = server.expect("it starts");
    let upstream = NameServer::at(server.address().ip().expect("an IP address"));
    let test = async move {
        let cache = SharedCache::new(CacheConfig::default());
        let resolver = StubResolver::new(vec![upstream], ResolverConfig::default(), cache);
        let both = ["sea.example.:443:h2,h3,http/1.1", "far.sea.example.:8443:h3,http/1.1"];
        for (host, port, expected) in [
            ("sea.example", 443, &both[..]),
            ("named.sea.example", 443, &both),
            ("alias.sea.example", 443, &both),
            ("sea.example", 8443, &["_8443._https.sea.example.:8443:http/1.1"]),
            ("sea.example", 1, &["near.sea.example.:1:h3"]),
            ("bare.sea.example", 443, &["near.sea.example.:443:"]),
            ("both.sea.example", 443, &["near.sea.example.:443:"]),
            ("mandatory.sea.example", 443, &["near.sea.example.:1:h2,http/1.1"]),
            ("hinted.sea.example", 443, &["far.sea.example.:443:h3,http/1.1"]),
            ("ten1.sea.example", 443, &["ten9.sea.example.:443:h3,http/1.1"]),
            ("ten0.sea.example", 443, &[]),
            ("gone.sea.example", 443, &[]),
            ("loop.sea.example", 443, &[]),
            ("absent.sea.example", 443, &[]),
            ("ech.sea.example", 443, &[]),
            ("contradicts.sea.example", 443, &[]),
            ("zero.sea.example", 443, &[]),
            ("far.sea.example", 443, &[]),
            ("none.sea.example", 443, &[]),
            ("192.0.2.1", 443, &[]),
            ("name.invalid", 443, &[]),
        ] {
            let found = resolver.https_endpoints(host, port).await.expect("an answer");
            let shown: Vec<_> = found
                .endpoints
                .iter()
                .map(|endpoint| {
                    let alpn: Vec<_> = endpoint.alpn.iter().map(|name| String::from_utf8_lossy(name)).collect();
                    format!("{}:{}:{}", endpoint.host, endpoint.port, alpn.join(","))
                })
                .collect();
            assert_eq!(shown, expected, "{host}:{port}");
        }
    };
    let mut event_loop = EventLoop::on(Backend::Epoll).expect("a loop");
    let done = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    done.expect("the loop runs").expect("the test does not hang");
    server.drain(Duration::ZERO);
}
