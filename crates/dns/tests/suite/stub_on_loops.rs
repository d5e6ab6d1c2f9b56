//! `StubResolver` and `DnsServer` on loops of the machine, over epoll and io_uring.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_dns::server::DnsServer;
use tidegate_dns::{CacheConfig, NameServer, RecordType, ResolverConfig, SharedCache, StubResolver, Zone};
use tidegate_engine::{Backend, EventLoop, task};

use crate::support::name;

fn zone() -> Arc<Zone> {
    let mut file = String::from("$ORIGIN tides.example.\n$TTL 300\n@ SOA ns root 1 2 3 4 60\nwww A 192.0.2.1\n");
    file += " AAAA 2001:db8::1\n";
    for index in 0..100 {
        file += &format!("many A 192.0.2.{index}\nh{index} A 192.0.2.{index}\n");
    }
    Arc::new(Zone::parse(&file, None).expect("it is valid"))
}

fn resolves(backend: Backend) {
    let zone = zone();
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).engine(|server| server.backend(backend));
    let server = server.start(move |_| zone.clone()).expect("it starts");
    let upstream = NameServer::at(server.address().ip().expect("an IP address"));
    let test = async move {
        let cache = SharedCache::new(CacheConfig::default());
        let resolver = StubResolver::new(vec![upstream], ResolverConfig::default(), cache);
        let addresses = resolver.addresses("www.tides.example").await.expect("an answer");
        assert_eq!(addresses, ["2001:db8::1", "192.0.2.1"].map(|text| text.parse::<IpAddr>().expect("an address")));
        assert_eq!((resolver.counts().datagrams, resolver.counts().stream_queries), (2, 0));
        let many = resolver.lookup(&name("many.tides.example"), RecordType::A).await.expect("an answer");
        assert_eq!((many.addresses().count(), resolver.counts().stream_queries), (100, 1));
        let lookups: Vec<_> = (0..100)
            .map(|index| {
                let resolver = resolver.clone();
                task::spawn(
                    async move { resolver.lookup(&name(&format!("h{index}.tides.example")), RecordType::A).await },
                )
            })
            .collect();
        for (index, lookup) in lookups.into_iter().enumerate() {
            let answer = lookup.await.expect("the task ends").expect("an answer");
            assert_eq!(answer.addresses().collect::<Vec<_>>(), [IpAddr::from([192, 0, 2, index as u8])]);
        }
    };
    let mut event_loop = EventLoop::on(backend).expect("a loop");
    let done = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    done.expect("the loop runs").expect("the test does not hang");
    drop(server);
}

#[test]
fn a_resolver_and_a_server_work_on_epoll() {
    resolves(Backend::Epoll);
}

#[test]
fn a_resolver_and_a_server_work_on_uring() {
    if let Err(error) = tidegate_sys::uring::Uring::probe() {
        println!("skipped: there is no io_uring here: {error}");
        return;
    }
    resolves(Backend::Uring);
}
