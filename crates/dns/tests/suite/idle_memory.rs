//! Memory of a resolver that has nothing to do: at most 4 KiB, before its first lookup and after a burst.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_dns::server::StreamHandler;
use tidegate_dns::{
    CacheConfig, IDLE, NameServer, RecordType, ResolverConfig, ServerCodec, SharedCache, StubResolver, Zone,
};
use tidegate_engine::{Client, Limits, task};
use tidegate_testkit::allocations::Region;
use tidegate_testkit::network::Network;

/// Bytes that a resolver has, which its end gives back.
fn bytes_of(resolver: StubResolver) -> isize {
    let region = Region::new();
    drop(resolver);
    -region.change().bytes_in_use()
}

#[test]
fn an_idle_resolver_has_at_most_4_kib() {
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.9").node());
    let zone =
        Zone::parse("tides.example. 300 SOA . . 1 2 3 4 60\n*.tides.example. 300 A 192.0.2.1\n", None).expect("valid");
    let zone = Arc::new(zone);
    let serve = move |_: &_| (ServerCodec::default(), StreamHandler::new(zone.clone()));
    let address = server.listen(53, Limits::default(), serve).expect("free");
    let task = client.spawn(async move {
        // The cache belongs to the process, not to a loop.
        let cache = SharedCache::new(CacheConfig::default());
        let make = || {
            let servers = vec![NameServer::over_streams(Client::at(address.clone())); 3];
            let open = |_| Err(io::ErrorKind::Unsupported.into());
            StubResolver::simulated(servers, ResolverConfig::default(), cache.clone(), 1, open)
        };
        let fresh = bytes_of(make());
        let resolver = make();
        let lookups: Vec<_> = (0..1_000)
            .map(|number| {
                let (resolver, name) = (resolver.clone(), format!("h{number}.tides.example"));
                task::spawn(async move { resolver.lookup(&name.parse().expect("a name"), RecordType::A).await })
            })
            .collect();
        for lookup in lookups {
            lookup.await.expect("the task ends").expect("an answer");
        }
        let queries = resolver.counts().stream_queries;
        task::sleep(IDLE + Duration::from_secs(60)).await;
        (queries, fresh, bytes_of(resolver))
    });
    let (queries, fresh, after) = network.run_task(Duration::from_secs(600), task);
    println!("a resolver with three servers has {fresh} bytes, and {after} after 1,000 lookups at once");
    assert_eq!(queries, 1_000);
    assert!(fresh <= 4_096 && after <= 4_096, "{fresh}, {after}");
}
