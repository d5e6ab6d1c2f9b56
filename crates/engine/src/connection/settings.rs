//! `Settings`: shared settings of one listener's connections on one loop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use slab::Slab;
use tidegate_sys::Address;

use crate::admission::AdmissionControl;
use crate::counters::ListenerCounts;
use crate::limits::Limits;
use crate::load_balancing::LoopHandle;

/// Shared settings of one server's connections on one loop.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Connections of the server, on all loops.
    pub(crate) live: Arc<AtomicUsize>,
    /// Counts them by loops, if the loops hand connections to each other.
    pub(crate) handle: Option<LoopHandle>,
    pub(crate) counts: Option<Arc<ListenerCounts>>,
    /// Admits connections, if the listener has caps; each link gives its place back.
    pub(crate) admission: Option<Arc<AdmissionControl>>,
    /// Its connections have deadlines after their handshake.
    pub(super) has_deadlines: bool,
    /// Its connections are shaped.
    pub(super) is_shaped: bool,
    /// Addresses of peers that do not fit into a link.
    pub(super) peers: RefCell<Slab<Address>>,
}

impl Settings {
    pub(crate) fn new(limits: Limits, live: Arc<AtomicUsize>) -> Rc<Self> {
        Self::of_listener(limits, live, None, None, None)
    }

    pub(crate) fn of_listener(
        mut limits: Limits,
        live: Arc<AtomicUsize>,
        handle: Option<LoopHandle>,
        counts: Option<Arc<ListenerCounts>>,
        admission: Option<Arc<AdmissionControl>>,
    ) -> Rc<Self> {
        // The application must not become writable above the cap, where it may send no more.
        limits.water.high = limits.water.high.min(limits.water.cap);
        let has_deadlines = limits.deadlines.outlast_the_handshake();
        let is_shaped = limits.shaping.is_set();
        Rc::new(Self { limits, has_deadlines, is_shaped, live, handle, counts, admission, peers: RefCell::default() })
    }
}
