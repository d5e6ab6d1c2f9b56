//! Lookups of hickory-resolver that no cache answers: `lookups-hickory ADDRESS COUNT AT_ONCE`. Prints how many had an answer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, count, at_once] = &arguments[..] else { return Err("usage: ADDRESS COUNT AT_ONCE".into()) };
    let (server, count, at_once) = (address.parse::<SocketAddr>()?, count.parse::<usize>()?, at_once.parse::<usize>()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let found = local.block_on(&runtime, async move {
        let mut udp = ConnectionConfig::udp();
        udp.port = server.port();
        let servers = vec![NameServerConfig::new(server.ip(), true, vec![udp])];
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let resolver = Resolver::builder_with_config(config, TokioRuntimeProvider::default()).build()?;
        let (next, found) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let (resolver, next, found) = (resolver.clone(), next.clone(), found.clone());
                tokio::task::spawn_local(async move {
                    loop {
                        let number = next.replace(next.get() + 1);
                        if number >= count {
                            return;
                        }
                        let answer = resolver.lookup(format!("h{number}.tides.example."), RecordType::A).await;
                        if answer.is_ok_and(|answer| !answer.answers().is_empty()) {
                            found.set(found.get() + 1);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            let _ = task.await;
        }
        Ok::<_, Box<dyn std::error::Error>>(found.get())
    })?;
    println!("{found}");
    Ok(())
}
