//! The work of an event loop for one connection among many idle ones: independent of their number.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Slice;
use tidegate_codec::framing::LengthField;
use tidegate_engine::{Context, EventLoop, Handler, Limits, Outcome};
use tidegate_sys::Socket;

use crate::counted::count_this;
use crate::wire::{Closing, Peer, Wire};

/// Peers end their connections, [`ENDS`] in one turn, and the loop closes these.
pub(crate) fn close<const CONNECTIONS: usize>(rounds: usize) {
    let mut crowd = Crowd::new(CONNECTIONS);
    for round in 0..rounds {
        crowd.peer.end(ENDS);
        count_this(|| crowd.event_loop.turn(None)).expect("nothing fails on a wire");
        assert_eq!(crowd.event_loop.counts().closed_done, ((round + 1) * ENDS) as u64, "each end closes a connection");
        crowd.peer.arrive(ENDS as u32);
        crowd.turn();
    }
}

/// The memory budget is exhausted for one turn, so the loop pauses receives for one turn. No connection can be shed.
/// The loop finds that in the first such turn by a scan of all connections, which it does not repeat within 10 ms; the
/// clock stands still here.
pub(crate) fn hold<const CONNECTIONS: usize>(rounds: usize) {
    let mut crowd = Crowd::new(CONNECTIONS);
    let _memory_of_the_application = crowd.pool.segment();
    for _ in 0..rounds {
        crowd.pool.ledger().set_budget(1);
        count_this(|| crowd.event_loop.turn(None)).expect("nothing fails on a wire");
        assert!(crowd.peer.has_paused_receives());
        crowd.pool.ledger().set_budget(usize::MAX);
        count_this(|| crowd.event_loop.turn(None)).expect("nothing fails on a wire");
        assert!(!crowd.peer.has_paused_receives());
    }
    assert_eq!(crowd.event_loop.counts().connections, CONNECTIONS as u64);
}

/// The memory budget is exhausted; the largest connection is shed, and waits for the driver's last completion.
pub(crate) fn shed<const CONNECTIONS: usize>(rounds: usize) {
    let mut crowd = Crowd::new(CONNECTIONS);
    crowd.peer.deliver_to(1);
    crowd.turn();
    let ledger = crowd.pool.ledger();
    ledger.set_budget(ledger.used());
    crowd.peer.close(Closing::Never);
    crowd.turn();
    for _ in 0..rounds {
        crowd.peer.pass(Duration::from_millis(20));
        count_this(|| crowd.event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert!(crowd.pool.ledger().is_exhausted(), "the memory is not free yet");
    crowd.peer.close(Closing::Later);
    crowd.turn();
    assert_eq!(crowd.event_loop.counts().closed_shed, 1, "one shed connection is enough");
    assert!(!crowd.pool.ledger().is_exhausted());
}

/// A loop that serves many connections.
struct Crowd {
    event_loop: EventLoop,
    peer: Rc<Peer>,
    pool: Pool,
}

impl Crowd {
    fn new(connections: usize) -> Self {
        let (pool, peer) = (Pool::new(), Peer::new());
        peer.close(Closing::Later);
        // The first half of a frame.
        let half = [&(2 * HALF_BYTES as u32).to_be_bytes()[..], &[0; HALF_BYTES]].concat();
        let wire = Wire::new(&peer, &pool, half, connections as u32);
        let mut event_loop = EventLoop::new(Box::new(wire), pool.clone());
        let limits = Limits { connections_max: 2 * connections, ..Limits::default() };
        let listening = event_loop.listen(Socket::Simulated(0), limits, Arc::default(), |_| {
            (LengthField::builder(4).frame_bytes_max(2 * HALF_BYTES + 4).build(), Idle)
        });
        listening.expect("the wire accepts any listener");
        let mut crowd = Self { event_loop, peer, pool };
        while crowd.event_loop.counts().connections < connections as u64 {
            crowd.turn();
        }
        crowd
    }

    /// A turn that is not counted.
    fn turn(&mut self) {
        self.event_loop.turn(None).expect("nothing fails on a wire");
    }
}

struct Idle;

impl Handler<LengthField> for Idle {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, LengthField>) -> Outcome<LengthField> {
        Outcome::Continue
    }
}

/// The number of connections closed in one turn.
pub(crate) const ENDS: usize = 16;

const HALF_BYTES: usize = 48 * 1024;
