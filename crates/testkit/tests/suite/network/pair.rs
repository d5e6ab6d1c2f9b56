//! Two hosts, a server on one and clients on the other, and their messages.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Client, CloseReason, Context, Handler, Limits, Outcome, task};
use tidegate_sys::Address;
use tidegate_testkit::Random;
use tidegate_testkit::network::{FaultCounts, FaultRates, Network, NetworkFault, SimNode};

pub(crate) type Served = Result<(), Box<dyn Error>>;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Different faults for each seed: each benign fault occurs at one of these rates. So rare combinations occur, and
/// some faults are missing.
pub(crate) fn weather(seed: u64, once_in: &[usize]) -> FaultRates {
    // Not the numbers that the network draws.
    let mut random = Random::new(!seed);
    NetworkFault::BENIGN.into_iter().fold(FaultRates::none(), |faults, fault| {
        let often = *random.pick(once_in);
        faults.with(
            fault,
            match fault {
                // A fault that occurs each time lets nothing happen at all.
                NetworkFault::ClockJump => often * 50,
                NetworkFault::NoDescriptor | NetworkFault::WouldBlock | NetworkFault::Delayed if often == 1 => 2,
                _ => often,
            },
        )
    })
}

/// Those of `faults` that can strike between loops that send each other no message.
pub(crate) fn without_messages(faults: &[NetworkFault]) -> Vec<NetworkFault> {
    faults.iter().copied().filter(|fault| *fault != NetworkFault::LateWakeUp).collect()
}

/// Echoes all bytes, and counts the handlers of its kind that have closed.
pub(crate) struct Echo(pub(crate) Rc<Cell<usize>>);

impl Handler<Raw> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send(bytes.into()).into()
    }

    fn closed(&mut self, _: &CloseReason) {
        self.0.set(self.0.get() + 1);
    }
}

pub(crate) async fn echo(mut channel: Channel<Raw>) -> Served {
    while let Some(bytes) = channel.recv().await? {
        channel.ready().await?;
        channel.send(bytes.into())?;
    }
    Ok(())
}

/// Sends bytes in pieces of this size, ends, and returns the bytes that come back until the other side ends.
pub(crate) async fn exchange(to: Address, bytes: Vec<u8>, piece: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut reader, mut writer) = Client::at(to).connect(Raw).await?.split();
    let sending = task::spawn(async move {
        for piece in bytes.chunks(piece) {
            writer.ready().await?;
            let mark = writer.send(piece.to_vec().into())?;
            if piece.len() == 1 {
                writer.flushed(mark).await?;
            }
        }
        writer.shutdown_write();
        Ok::<_, Box<dyn Error>>(writer)
    });
    let mut come = Vec::new();
    while let Some(bytes) = reader.recv().await? {
        come.extend_from_slice(&bytes);
    }
    drop(sending.await??);
    Ok(come)
}

/// Two hosts, a server on one and clients on the other.
pub(crate) struct Pair {
    pub(crate) network: Network,
    pub(crate) server: SimNode,
    pub(crate) client: SimNode,
    /// How many handlers of the server were notified of their end.
    pub(crate) gone: Rc<Cell<usize>>,
    pub(crate) made: Rc<Cell<usize>>,
}

impl Pair {
    pub(crate) fn new(seed: u64, faults: FaultRates) -> Self {
        let network = Network::new(seed);
        network.set_faults(faults);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        Self { network, server, client, gone: Rc::default(), made: Rc::default() }
    }

    pub(crate) fn serve_with_handlers(&self, limits: Limits) -> Address {
        let (made, gone) = (self.made.clone(), self.gone.clone());
        let make = move |_: &Address| {
            made.set(made.get() + 1);
            (Raw, Echo(gone.clone()))
        };
        self.server.listen(7, limits, make).expect("the port is free")
    }

    pub(crate) fn serve_with_tasks(&self) -> Address {
        self.server.serve(8, Limits::default(), || Raw, echo).expect("the port is free")
    }

    /// Starts a client's task; its result will be in the place.
    pub(crate) fn start<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Place<T> {
        let place = Place::default();
        let there = place.clone();
        // A task continues when its handle is dropped.
        drop(self.client.spawn(async move { *there.0.borrow_mut() = Some(future.await) }));
        place
    }

    /// Asserts that no connection is left, neither in the network nor in memory.
    pub(crate) fn ends_clean(self) -> (u64, FaultCounts) {
        let Self { network, server, client, .. } = self;
        let over = network.run_until(SECOND * 200, || {
            network.open_endpoints() == 0 && server.counts().connections == 0 && client.counts().connections == 0
        });
        assert!(over, "{} ends, server {:?}, client {:?}", network.open_endpoints(), server.counts(), client.counts());
        server.drain(SECOND);
        client.drain(SECOND);
        assert!(network.run_until(SECOND * 2, || server.is_drained() && client.is_drained()), "a slot is left");
        let result = (network.trace(), network.fault_counts());
        let pools = [server.pool().clone(), client.pool().clone()];
        drop((network, server, client));
        for pool in pools {
            assert_eq!(pool.ledger().used(), 0, "memory is left");
        }
        result
    }
}

/// Where a task stores its result.
pub(crate) struct Place<T>(Rc<RefCell<Option<T>>>);

impl<T> Place<T> {
    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) fn take(&self) -> T {
        self.0.take().expect("the task has ended")
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
