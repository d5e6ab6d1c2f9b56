//! `Refusals`: parts of a broker that are connected and refuse messages, and the probes that find out when they take them again.
//!
//! A part is a server of Redis, or a stream of NATS. A node that is not ready gets no clients, so it would publish nothing that
//! shows that a part takes messages again. So it probes a part that has refused something: a message in a room of its own, to which
//! nothing subscribes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::task;

use crate::broker::BrokerEvent;
use crate::broker_events::RequestEvents;

/// Writes probes to a broker.
pub(crate) trait Prober: 'static {
    /// A part of the broker that refuses messages by itself.
    type Part: Copy + Ord + 'static;
    /// The place of a part's probes.
    type Target: Clone + 'static;

    /// Writes a message to a part.
    async fn probe(&self, part: Self::Part, target: Self::Target) -> Verdict;
}

/// The answer of a part to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It takes messages.
    Taken,
    /// It refuses each message for this reason.
    Refused(Arc<str>),
    /// The answer shows nothing of other messages.
    Unknown,
}

/// The place of the probes of each part that refuses messages, and the reason.
type RefusedParts<P> = BTreeMap<<P as Prober>::Part, (<P as Prober>::Target, Arc<str>)>;

/// The parts of a broker that refuse messages.
pub(crate) struct Refusals<P: Prober> {
    prober: P,
    events: Rc<RequestEvents>,
    refused: RefCell<RefusedParts<P>>,
    is_probing: Cell<bool>,
}

impl<P: Prober> Refusals<P> {
    pub(crate) fn new(prober: P, events: Rc<RequestEvents>) -> Rc<Self> {
        Rc::new(Self { prober, events, refused: RefCell::default(), is_probing: Cell::new(false) })
    }

    /// Whether a part refuses messages.
    pub(crate) fn has(&self, part: P::Part) -> bool {
        self.refused.borrow().contains_key(&part)
    }

    /// A part has answered to a message.
    pub(crate) fn note(self: &Rc<Self>, part: P::Part, target: &P::Target, verdict: Verdict) {
        let mut refused = self.refused.borrow_mut();
        let was_empty = refused.is_empty();
        match verdict {
            Verdict::Refused(reason) if refused.len() < PARTS_MAX || refused.contains_key(&part) => {
                refused.insert(part, (target.clone(), reason));
            }
            Verdict::Taken => drop(refused.remove(&part)),
            Verdict::Refused(_) | Verdict::Unknown => {}
        }
        let first = refused.values().next().map(|(_, reason)| reason.clone());
        drop(refused);
        if was_empty != first.is_none() {
            // The task of an earlier refusal may still run.
            if first.is_some() && !self.is_probing.replace(true) {
                drop(task::spawn(probe(Rc::downgrade(self))));
            }
            self.events.extend([BrokerEvent::RefusesMessages(first)]);
        }
    }

    /// Writes a message to each part that refuses some.
    async fn probe_all(self: Rc<Self>) {
        let parts: Vec<_> = self.refused.borrow().iter().map(|(part, (target, _))| (*part, target.clone())).collect();
        for (part, target) in parts {
            let verdict = self.prober.probe(part, target.clone()).await;
            self.note(part, &target, verdict);
        }
    }
}

/// Probes until no part refuses messages, or the node has ended.
async fn probe<P: Prober>(refusals: Weak<Refusals<P>>) {
    loop {
        task::sleep(PROBE_AFTER).await;
        let Some(refusals) = refusals.upgrade() else { return };
        refusals.clone().probe_all().await;
        if refusals.refused.borrow().is_empty() {
            refusals.is_probing.set(false);
            return;
        }
    }
}

/// Parts that are probed.
const PARTS_MAX: usize = 64;
/// The pause before each probe.
const PROBE_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use tidegate_testkit::network::Network;

    use super::*;

    /// Takes the third probe.
    #[derive(Default)]
    struct ThirdTaken(Rc<Cell<u32>>);

    impl Prober for ThirdTaken {
        type Part = u32;
        type Target = ();

        async fn probe(&self, _: u32, (): ()) -> Verdict {
            self.0.set(self.0.get() + 1);
            if self.0.get() < 3 { Verdict::Unknown } else { Verdict::Taken }
        }
    }

    #[test]
    fn refusals_that_come_and_go_have_one_task_of_probes() {
        let network = Network::new(1);
        let node = network.host("10.0.0.1").node();
        let test = node.spawn(async {
            let third_taken = ThirdTaken::default();
            let probes = third_taken.0.clone();
            let refusals = Refusals::new(third_taken, Rc::default());
            for _ in 0..100 {
                refusals.note(7, &(), Verdict::Refused("full".into()));
                refusals.note(7, &(), Verdict::Unknown);
                assert!(refusals.has(7));
                refusals.note(7, &(), Verdict::Taken);
                assert!(!refusals.has(7));
            }
            refusals.note(7, &(), Verdict::Refused("full".into()));
            task::sleep(PROBE_AFTER * 2 + PROBE_AFTER / 2).await;
            assert!(refusals.has(7));
            let of_two = probes.get();
            task::sleep(PROBE_AFTER).await;
            assert!(!refusals.has(7));
            (of_two, probes.get())
        });
        assert_eq!(network.run_task(Duration::from_secs(60), test), (2, 3));
    }
}
