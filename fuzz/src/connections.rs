//! Complete connections on a simulated network: a server that echoes, clients with arbitrary steps, and faults.
//!
//! The bytes choose the seed and the faults, the server's behaviour on a connection, and the steps of each client. In
//! every case the echo is a prefix of the sent bytes, every connection closes, `closed` runs once per handler, and
//! nothing is left in the network or in memory.
//!
//! Read next: `party.rs` in the folder of this name, which has both sides.

mod party;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::Limits;
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::network::{FaultRates, Network, NetworkFault, SimNode};

use self::party::{Echo, Exchange, Manners, Step};
use crate::choices::Choices;

/// A server that echoes and one to four clients, plain or through a filter.
pub fn connections(data: &[u8]) {
    let mut choices = Choices::new(data);
    let scene = Scene::new(&mut choices);
    if choices.byte() & 1 == 0 {
        play(scene, choices, || Raw, || Raw);
    } else {
        // The filter closes connections whose handshake misses the deadline.
        let deadline = scene.network.now() + Duration::from_millis(choices.length(4096) as u64);
        let server = move || Over::new(ToyTls::server(KEY).with_deadline(deadline), Raw);
        play(scene, choices, server, || Over::new(ToyTls::client(KEY), Raw));
    }
}

/// Two hosts and the network between them.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) server: SimNode,
    pub(crate) client: SimNode,
}

impl Scene {
    /// Reads the seed, the number of faults, each fault with its frequency, and the server's memory budget.
    pub(crate) fn new(choices: &mut Choices<'_>) -> Self {
        let network = Network::new(choices.byte().into());
        let mut faults = if choices.byte() & 1 == 0 { FaultRates::none() } else { FaultRates::benign() };
        for _ in 0..choices.below(8) {
            let fault = choices.pick(&NetworkFault::ALL);
            faults = faults.with(*fault, *choices.pick(&[6, 2, 3, 20, 100, 0]));
        }
        network.set_faults(faults);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        server.pool().ledger().set_budget(*choices.pick(&[usize::MAX, 400_000, 150_000]));
        Self { network, server, client }
    }

    /// Lets time pass until every connection is closed, and asserts that nothing is left.
    pub(crate) fn end(self) {
        let Self { network, server, client } = self;
        let is_over =
            || network.open_endpoints() == 0 && server.counts().connections + client.counts().connections == 0;
        let over = network.run_until(PATIENCE, is_over);
        assert!(over, "{} ends, server {:?}, client {:?}", network.open_endpoints(), server.counts(), client.counts());
        server.drain(Duration::from_secs(1));
        client.drain(Duration::from_secs(1));
        let drained = network.run_until(Duration::from_secs(3), || server.is_drained() && client.is_drained());
        assert!(drained, "a slot is left");
        assert_eq!(server.counts().tasks_panicked + client.counts().tasks_panicked, 0, "a task panicked");
        assert_eq!(server.counts().closed_panicked + client.counts().closed_panicked, 0, "a handler panicked");
        let pools = [server.pool().clone(), client.pool().clone()];
        drop((network, server, client));
        for pool in pools {
            assert_eq!(pool.ledger().used(), 0, "memory is left");
        }
    }
}

fn play<C, D>(
    scene: Scene,
    mut choices: Choices<'_>,
    server: impl Fn() -> C + 'static,
    client: impl Fn() -> D + 'static,
) where
    C: Pipeline<In = Slice, Out = Payload>,
    D: Pipeline<In = Slice, Out = Payload>,
{
    let manners = Manners::new(&mut choices);
    let (limits, has_handlers) = (limits(&mut choices), choices.byte() & 1 == 0);
    // The number of `closed` calls of each handler.
    let ends = Rc::new(std::cell::RefCell::new(Vec::<Rc<Cell<u32>>>::new()));
    let address = if has_handlers {
        let ends = Rc::clone(&ends);
        let make = move |_: &Address| {
            let closed = Rc::new(Cell::new(0));
            ends.borrow_mut().push(Rc::clone(&closed));
            (server(), Echo::new(manners, closed))
        };
        scene.server.listen(PORT, limits, make)
    } else {
        scene.server.serve(PORT, limits, server, move |channel| party::echo(channel, manners))
    };
    let address = address.expect("the port is free");
    let drain = (choices.byte() & 7 == 1).then(|| Duration::from_millis(choices.length(60_000) as u64));

    let client = Rc::new(client);
    let exchanges: Vec<_> = (0..1 + choices.below(4))
        .map(|number| {
            let steps: Vec<_> = (0..choices.below(STEPS_MAX)).map(|_| Step::new(&mut choices)).collect();
            let limits = self::limits(&mut choices);
            let exchange = Rc::new(Exchange::new(number));
            let (run, client, address) = (Rc::clone(&exchange), Rc::clone(&client), address.clone());
            let task = async move { run.run(address, limits, client(), &steps).await };
            // A task that is let go of goes on.
            drop(scene.client.spawn(task));
            exchange
        })
        .collect();
    if let Some(after) = drain {
        scene.network.run_for(after);
        scene.server.drain(Duration::from_secs(5));
    }
    let over = scene.network.run_until(PATIENCE, || exchanges.iter().all(|exchange| exchange.is_over()));
    let counts = || (scene.network.open_endpoints(), scene.server.counts(), scene.client.counts());
    assert!(over, "a client never finishes: {exchanges:?} {:?}", counts());
    scene.end();
    for exchange in &exchanges {
        exchange.check();
    }
    for closed in ends.borrow().iter() {
        assert_eq!(closed.get(), 1, "`closed` runs once per handler");
    }
}

/// Limits, some of which are reached.
pub(crate) fn limits(choices: &mut Choices<'_>) -> Limits {
    let water = [WaterMarks::default(), WaterMarks::new(4096, 1024), WaterMarks::new(200, 1)];
    let timeout = Duration::from_secs(*choices.pick(&[60, 1, 5]));
    Limits {
        water: *choices.pick(&water),
        write_timeout: timeout,
        connections_max: 1 << 20,
        memory_max: usize::MAX,
        ..Limits::default()
    }
}

const KEY: u8 = 0x5a;
const PORT: u16 = 7;

/// The maximum number of steps of a client.
const STEPS_MAX: usize = 16;

/// Longer than any sum of pauses and deadlines.
const PATIENCE: Duration = Duration::from_secs(10_000);
