//! Many handshakes that begin and do not finish.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Client, Limits, Over};
use tidegate_testkit::Embedded;
use tidegate_testkit::network::Network;

use crate::support::{NAME, download, serve, usual};

/// A third says nothing, a third sends half a hello, and a third all of it and leaves.
#[test]
fn ten_thousand_handshakes_that_are_dropped_cost_no_memory_and_others_are_served() {
    let (server_config, client_config) = usual();
    let mut one = Embedded::serving(Over::new(client_config.connect(NAME).unwrap(), Raw), serve);
    let hello: Rc<[u8]> = one.take_written().into();
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let codec = move || Over::new(server_config.accept(), Raw);
    let address = server.serve(443, Limits::default(), codec, serve).unwrap();
    let idle = server.pool().ledger().used();
    let (mut used_max, served) = (0, Rc::<RefCell<usize>>::default());
    for round in 0..100 {
        let crowd: Vec<_> = (0..100_usize)
            .map(|index| {
                let (address, hello) = (address.clone(), hello.clone());
                client.spawn(async move {
                    let mut channel = Client::at(address).connect(Raw).await.unwrap();
                    let bytes = [0, hello.len() / 2, hello.len()][index % 3];
                    channel.send(hello[..bytes].to_vec().into()).unwrap();
                    tidegate::task::sleep(Duration::from_secs(1)).await;
                    channel.abort();
                })
            })
            .collect();
        let (address, config, served) = (address.clone(), client_config.clone(), served.clone());
        let fair = client.spawn(async move {
            let codec = Over::new(config.connect(NAME).unwrap(), Raw);
            let mut channel = Client::at(address).connect(codec).await.unwrap();
            download(&mut channel, 10_000).await.unwrap();
            channel.close().await.unwrap();
            *served.borrow_mut() += 1;
        });
        network.run_task(Duration::from_secs(20), fair);
        used_max = used_max.max(server.pool().ledger().used());
        for task in crowd {
            network.run_task(Duration::from_secs(20), task);
        }
        network.run_for(Duration::from_secs(1));
        let used = server.pool().ledger().used();
        assert!(used <= idle + 256 * 1024, "{used} bytes after round {round}, {idle} before all");
    }
    assert_eq!(*served.borrow(), 100);
    // A hundred at a time, with half a hello each.
    assert!(used_max < idle + 1024 * 1024, "{used_max} bytes");
    assert_eq!(server.counts().connections, 0, "all were let go");
}
