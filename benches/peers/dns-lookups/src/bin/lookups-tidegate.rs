//! Lookups of `StubResolver` that no cache answers: `lookups-tidegate ADDRESS COUNT AT_ONCE`. Prints how many had an address.

use std::cell::Cell;
use std::rc::Rc;

use tidegate::dns::{CacheConfig, NameServer, RecordType, ResolverConfig, SharedCache, StubResolver};
use tidegate::{Backend, EventLoop, task};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, count, at_once] = &arguments[..] else { return Err("usage: ADDRESS COUNT AT_ONCE".into()) };
    let (server, count, at_once) = (address.parse()?, count.parse::<usize>()?, at_once.parse::<usize>()?);
    let found = EventLoop::on(Backend::Auto)?.block_on(async move {
        let cache = SharedCache::new(CacheConfig { memory_max: 1 << 30, ..CacheConfig::default() });
        let resolver = StubResolver::new(vec![NameServer::at(server)], ResolverConfig::default(), cache);
        let (next, found) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let (resolver, next, found) = (resolver.clone(), next.clone(), found.clone());
                task::spawn(async move {
                    loop {
                        let number = next.replace(next.get() + 1);
                        if number >= count {
                            return;
                        }
                        let Ok(name) = format!("h{number}.tides.example.").parse() else { return };
                        let answer = resolver.lookup(&name, RecordType::A).await;
                        if answer.is_ok_and(|answer| answer.addresses().next().is_some()) {
                            found.set(found.get() + 1);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            let _ = task.await;
        }
        found.get()
    })?;
    println!("{found}");
    Ok(())
}
