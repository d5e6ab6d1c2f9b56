//! `UdpForwarder`: passes datagrams on by flows, each with a socket of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, DatagramErrorReason, LocalAddress, Transmit};
use tidegate_codec::later;
use tidegate_engine::task::{self, Sleep, Task};
use tidegate_engine::{DatagramChannel, EndpointLimits, EndpointListener, IpNet, ServedEndpoint, contains_address};
use tidegate_sys::DatagramOptions;

use super::upstreams::{Lease, Upstreams};

/// Passes datagrams on to upstreams, and their responses back. Clones are the same forwarder.
///
/// A flow is a source address of a client. It has an upstream, and a socket of its own to it, so that responses find the
/// way back. It ends when it is idle, when the network reports that the upstream cannot be reached, and when a new flow
/// needs its place.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::l4::{UdpForwarder, UdpRules, Upstreams};
/// use tidegate::{EndpointListener, Server};
///
/// let upstreams = Upstreams::builder().server("udp://127.0.0.1:5300".parse()?, 1).build();
/// let forwarder = UdpForwarder::new(&upstreams, UdpRules::default());
/// let server = Server::new().loops(1).endpoint(forwarder.serve(EndpointListener::bind("127.0.0.1:0")?)).run()?;
/// println!("forwards datagrams to {}", server.address());
/// server.drain(Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct UdpForwarder(Arc<UdpState>);

/// Which clients have flows, and bounds. Each default protects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpRules {
    /// Flows at once, of all loops, beside one of each loop that has no other. For one more the flow of the loop that was
    /// idle for the longest time ends. 4,096, or an eighth of the
    /// descriptors of the process if that is less: each flow has a socket. It bounds the memory that forged sources take.
    pub flows_max: usize,
    /// How long a flow may be without a datagram in either direction. 60 seconds.
    pub idle_timeout: Duration,
    /// The longest datagram in bytes; a longer one is dropped and counted. 9,216, a jumbo frame. A loop has memory for a
    /// batch of them. A change holds for flows that begin later, and for the listener from its next start.
    pub datagram_bytes_max: u16,
    /// Networks whose clients have flows; all, if there is none.
    pub allow: Vec<IpNet>,
    /// Networks whose clients have none, also where `allow` has them.
    pub deny: Vec<IpNet>,
}

/// Numbers since the start of a forwarder of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UdpCounts {
    /// Flows that are there.
    pub flows: u64,
    /// Flows that began.
    pub begun: u64,
    /// Flows that ended because they were idle.
    pub expired: u64,
    /// Flows that ended in favour of a new one.
    pub displaced: u64,
    /// Flows that ended because the network reported that the upstream cannot be reached.
    pub unreachable: u64,
    /// Datagrams of clients that were passed on.
    pub forwarded: u64,
    /// Datagrams of upstreams that were passed on.
    pub returned: u64,
    /// Datagrams that were dropped: truncated, without an upstream or a place for a flow, or of a client that is refused.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counters {
    flows: AtomicUsize,
    begun: AtomicU64,
    expired: AtomicU64,
    displaced: AtomicU64,
    unreachable: AtomicU64,
    forwarded: AtomicU64,
    returned: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct UdpState {
    plan: Mutex<Arc<Plan>>,
    counters: Counters,
}

#[derive(Debug)]
struct Plan {
    upstreams: Upstreams,
    rules: UdpRules,
}

/// The flows of a loop.
struct Flows {
    forwarder: UdpForwarder,
    front: RefCell<DatagramChannel>,
    flows: RefCell<HashMap<SocketAddr, Rc<Flow>>>,
    /// Flows by a time at which they were not idle yet, and their numbers.
    ages: RefCell<BTreeMap<Age, Rc<Flow>>>,
    open: Box<Open>,
}

/// A time and the number of a flow.
type Age = (Instant, u64);

/// Opens a socket to an upstream.
type Open = dyn Fn(SocketAddr, &DatagramOptions) -> io::Result<DatagramChannel>;

struct Flow {
    client: SocketAddr,
    /// The address that the client has sent to.
    local: LocalAddress,
    upstreams: Upstreams,
    lease: Lease,
    channel: RefCell<Option<DatagramChannel>>,
    task: RefCell<Option<Task<()>>>,
    last: Cell<Instant>,
    /// Its place in the order of ages.
    age: Cell<Age>,
    idle_timeout: Duration,
}

/// Why a flow has ended.
#[derive(Clone, Copy)]
enum End {
    Expired,
    Unreachable,
    Closed,
}

impl UdpForwarder {
    /// A forwarder.
    #[must_use]
    pub fn new(upstreams: &Upstreams, rules: UdpRules) -> Self {
        let plan = Mutex::new(Arc::new(Plan { upstreams: upstreams.clone(), rules }));
        Self(Arc::new(UdpState { plan, counters: Counters::default() }))
    }

    /// New flows have these upstreams and rules; those that are there stay as they are.
    pub fn replace(&self, upstreams: &Upstreams, rules: UdpRules) {
        let plan = Plan { upstreams: upstreams.clone(), rules };
        *self.0.plan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
    }

    /// Serves an address.
    pub fn serve(&self, listener: EndpointListener) -> ServedEndpoint {
        let (forwarder, options) = (self.clone(), self.options());
        listener.options(options).serve_channel(move |_, channel| {
            forwarder.clone().run(channel, |upstream, options| {
                let any = match upstream {
                    SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                    SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
                };
                DatagramChannel::bind(SocketAddr::new(any, 0), options, FLOW_LIMITS)
            })
        })
    }

    /// The options of the socket for clients.
    #[must_use]
    pub fn options(&self) -> DatagramOptions {
        let payload_bytes_max = self.plan().rules.datagram_bytes_max;
        // A datagram is passed on as long as it is.
        DatagramOptions { payload_bytes_max, fragments: true, ..DatagramOptions::default() }
    }

    /// Passes the datagrams of a socket on, until the loop drains; then the responses of another second. `open` opens a socket
    /// to an upstream.
    pub async fn run(
        self,
        front: DatagramChannel,
        open: impl Fn(SocketAddr, &DatagramOptions) -> io::Result<DatagramChannel> + 'static,
    ) {
        let flows = Rc::new(Flows {
            forwarder: self,
            front: RefCell::new(front),
            flows: RefCell::default(),
            ages: RefCell::default(),
            open: Box::new(open),
        });
        let mut draining = pin!(task::draining());
        loop {
            let received = poll_fn(|cx| {
                if draining.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                flows.front.borrow_mut().poll_recv_from(cx).map(Result::ok)
            });
            let Some(datagram) = received.await else { break };
            flows.on_client(datagram);
            while let Some(datagram) = flows.try_recv() {
                flows.on_client(datagram);
            }
        }
        while let Some(datagram) = flows.try_recv() {
            flows.on_client(datagram);
        }
        // Responses may be under way, and a successor has the socket of the clients.
        let has_flows = !flows.flows.borrow().is_empty();
        if has_flows {
            task::sleep_until(task::now() + DRAIN_TIME).await;
        }
        flows.end_all();
    }

    fn plan(&self) -> Arc<Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The numbers so far.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        let counters = &self.0.counters;
        UdpCounts {
            flows: counters.flows.load(Relaxed) as u64,
            begun: counters.begun.load(Relaxed),
            expired: counters.expired.load(Relaxed),
            displaced: counters.displaced.load(Relaxed),
            unreachable: counters.unreachable.load(Relaxed),
            forwarded: counters.forwarded.load(Relaxed),
            returned: counters.returned.load(Relaxed),
            dropped: counters.dropped.load(Relaxed),
        }
    }
}

impl Flows {
    fn counters(&self) -> &Counters {
        &self.forwarder.0.counters
    }

    fn try_recv(&self) -> Option<Datagram> {
        self.front.borrow_mut().try_recv_from()
    }

    /// Passes a datagram of a client on.
    fn on_client(self: &Rc<Self>, datagram: Datagram) {
        let known = self.flows.borrow().get(&datagram.source).cloned();
        let flow = match known {
            _ if datagram.truncated => None,
            Some(flow) => Some(flow),
            None => self.begin(&datagram),
        };
        let is_sent = flow.is_some_and(|flow| {
            flow.last.set(task::now());
            let transmit = Transmit {
                payload: datagram.payload.into(),
                destination: None,
                local: LocalAddress::default(),
                ecn: datagram.ecn,
                segment_size: None,
                ancillary: None,
            };
            flow.channel.borrow_mut().as_mut().is_some_and(|channel| channel.send(transmit).is_ok())
        });
        let counter = if is_sent { &self.counters().forwarded } else { &self.counters().dropped };
        counter.fetch_add(1, Relaxed);
    }

    /// Begins the flow of a client.
    fn begin(self: &Rc<Self>, first: &Datagram) -> Option<Rc<Flow>> {
        let plan = self.forwarder.plan();
        let (rules, source, now) = (&plan.rules, first.source.ip(), task::now());
        let has = |networks: &[IpNet]| contains_address(networks, source);
        if has(&rules.deny) || !(rules.allow.is_empty() || has(&rules.allow)) {
            return None;
        }
        let lease = plan.upstreams.pick(Some(source), &[], now)?;
        if self.counters().flows.load(Relaxed) >= rules.flows_max.max(1) {
            // A loop without flows has none to displace, and gets one all the same: its clients would be refused otherwise.
            self.displace();
        }
        let options = DatagramOptions { peer: Some(lease.0.address), ..self.forwarder.options() };
        let opened = (self.open)(lease.0.address, &options);
        // Without a descriptor for it, another flow gives up its own.
        let opened =
            opened.or_else(|error| if self.displace() { (self.open)(lease.0.address, &options) } else { Err(error) });
        let channel = opened.map_err(|error| tracing::warn!(subsystem = "l4", %error, "no socket for a flow")).ok()?;
        let flow = Rc::new(Flow {
            client: first.source,
            local: Transmit::response(first, Vec::new()).local,
            upstreams: plan.upstreams.clone(),
            lease,
            channel: RefCell::new(Some(channel)),
            task: RefCell::default(),
            last: Cell::new(now),
            age: Cell::new((now, self.counters().begun.fetch_add(1, Relaxed))),
            idle_timeout: rules.idle_timeout,
        });
        self.counters().flows.fetch_add(1, Relaxed);
        self.flows.borrow_mut().insert(first.source, flow.clone());
        self.ages.borrow_mut().insert(flow.age.get(), flow.clone());
        let (flows, served) = (self.clone(), flow.clone());
        let task = task::spawn(async move {
            let mut idle = pin!(task::sleep_until(later(served.last.get(), served.idle_timeout)));
            let end = poll_fn(|cx| flows.poll_flow(&served, idle.as_mut(), cx)).await;
            flows.on_end(&served, end);
        });
        *flow.task.borrow_mut() = Some(task);
        Some(flow)
    }

    /// Ends the flow of this loop that was idle for the longest time. Returns whether there was one.
    fn displace(&self) -> bool {
        loop {
            let Some((age, flow)) = self.ages.borrow_mut().pop_first() else { return false };
            let last = flow.last.get();
            if last > age.0 {
                // It was used since, and has a later place.
                flow.age.set((last, age.1));
                self.ages.borrow_mut().insert(flow.age.get(), flow);
                continue;
            }
            self.remove(&flow);
            self.counters().displaced.fetch_add(1, Relaxed);
            return true;
        }
    }

    /// Passes the datagrams of an upstream back. Ready when the flow ends.
    fn poll_flow(&self, flow: &Flow, mut idle: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let mut channel = flow.channel.borrow_mut();
            let Some(open) = channel.as_mut() else { return Poll::Ready(End::Closed) };
            while let Some(error) = open.next_error() {
                use DatagramErrorReason::{PortUnreachable, Unreachable};
                if matches!(error.reason, PortUnreachable | Unreachable) {
                    return Poll::Ready(End::Unreachable);
                }
            }
            match open.poll_recv_from(cx) {
                Poll::Ready(Ok(datagram)) => {
                    drop(channel);
                    self.on_upstream(flow, datagram);
                    continue;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(End::Closed),
                Poll::Pending => {}
            }
            if idle.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let until = later(flow.last.get(), flow.idle_timeout);
            if task::now() >= until {
                return Poll::Ready(End::Expired);
            }
            idle.set(task::sleep_until(until));
        }
    }

    fn on_upstream(&self, flow: &Flow, datagram: Datagram) {
        flow.last.set(task::now());
        flow.lease.0.health.on_success();
        let response =
            Transmit { local: flow.local, ecn: datagram.ecn, ..Transmit::new(datagram.payload, flow.client) };
        let is_sent = !datagram.truncated && self.front.borrow_mut().send(response).is_ok();
        let counter = if is_sent { &self.counters().returned } else { &self.counters().dropped };
        counter.fetch_add(1, Relaxed);
    }

    /// The task of a flow has ended.
    fn on_end(&self, flow: &Rc<Flow>, end: End) {
        // The task ends by itself.
        flow.task.borrow_mut().take();
        self.remove(flow);
        match end {
            End::Expired => {
                self.counters().expired.fetch_add(1, Relaxed);
            }
            End::Unreachable => {
                self.counters().unreachable.fetch_add(1, Relaxed);
                flow.upstreams.on_failure(&flow.lease.0, task::now());
            }
            End::Closed => {}
        }
    }

    fn remove(&self, flow: &Rc<Flow>) {
        if flow.channel.borrow_mut().take().is_none() {
            return;
        }
        self.counters().flows.fetch_sub(1, Relaxed);
        self.flows.borrow_mut().remove(&flow.client);
        self.ages.borrow_mut().remove(&flow.age.get());
        if let Some(task) = flow.task.borrow_mut().take() {
            task.cancel();
        }
    }

    fn end_all(&self) {
        let all: Vec<_> = self.flows.borrow().values().cloned().collect();
        all.iter().for_each(|flow| self.remove(flow));
    }
}

impl Default for UdpRules {
    fn default() -> Self {
        Self {
            flows_max: (tidegate_sys::memory::descriptors_max() / 8).clamp(1, 4_096),
            idle_timeout: Duration::from_secs(60),
            datagram_bytes_max: 9_216,
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// How long responses of upstreams are awaited at a drain.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The limits of the socket of a flow: a few batches, since each flow has its own.
pub(crate) const FLOW_LIMITS: EndpointLimits =
    EndpointLimits { waiting_max: 256, waiting_bytes_max: 1024 * 1024, unread_max: 256 };
