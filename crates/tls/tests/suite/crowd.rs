//! Many handshakes that begin and do not finish.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Client, Limits, Over};
use tidegate_testkit::Embedded;
use tidegate_testkit::network::Network;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::{NAME, download, serve, usual};

/// Collects the lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no thread panics here").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string has room");
    }
}

/// A third says nothing, a third sends half a hello, and a third all of it and leaves. `TIDEGATE_HANDSHAKES` is their
/// number.
#[test]
fn ten_thousand_handshakes_that_are_dropped_cost_one_line_and_no_memory_and_others_are_served() {
    // With only one subscriber in the process, tracing asks the thread that reaches a call site first whether it logs, and
    // that may be the thread of another test. With two it asks all subscribers.
    let _second = Dispatch::new(Lines::default());
    let lines = Lines::default();
    let count = std::env::var("TIDEGATE_HANDSHAKES").map_or(10_000, |count| count.parse().expect("a number"));
    tracing::subscriber::with_default(lines.clone(), || drop_handshakes(count / ROUNDS));
    let lines = lines.0.lock().expect("no thread panics here");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("connection closed in its handshake") && lines[0].contains("10.0.0.2:"), "{lines:?}");
}

/// So many at once, again and again, and one good client beside them each time.
fn drop_handshakes(at_once: usize) {
    let (server_config, client_config) = usual();
    let mut one = Embedded::serving(Over::new(client_config.connect(NAME).unwrap(), Raw), serve);
    let hello: Rc<[u8]> = one.take_written().into();
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let codec = move || Over::new(server_config.accept(), Raw);
    let address = server.serve(443, Limits::default(), codec, serve).unwrap();
    let idle = server.pool().ledger().used();
    let (mut used_max, served) = (0, Rc::<RefCell<usize>>::default());
    for round in 0..ROUNDS {
        let crowd: Vec<_> = (0..at_once)
            .map(|index| {
                let (address, hello) = (address.clone(), hello.clone());
                client.spawn(async move {
                    // So that they fit into the queue of the listener.
                    tidegate::task::sleep(Duration::from_micros(20 * index as u64)).await;
                    let mut channel = Client::at(address).connect(Raw).await.unwrap();
                    let bytes = [0, hello.len() / 2, hello.len()][index % 3];
                    channel.send(hello[..bytes].to_vec().into()).unwrap();
                    tidegate::task::sleep(MOMENT).await;
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
        network.run_for(MOMENT);
        let used = server.pool().ledger().used();
        assert!(used <= idle + 256 * 1024, "{used} bytes after round {round}, {idle} before all");
    }
    assert_eq!(*served.borrow(), ROUNDS);
    // So many at a time, with half a hello each.
    assert!(used_max < idle + 256 * 1024 + at_once * 8 * 1024, "{used_max} bytes");
    assert_eq!(server.counts().connections, 0, "all were let go");
}

const ROUNDS: usize = 100;

/// Short enough that all rounds together take less time than lies between two lines.
const MOMENT: Duration = Duration::from_millis(20);
