//! `Refusals`: parts of a broker that are connected and refuse messages, and the probes that find out when they take them again.
//!
//! A part is a server of Redis, or a stream of NATS. A node that is not ready gets no clients, so it would publish nothing that
//! shows that a part takes messages again. So it probes a part that has refused something: a message in a room of its own, to which
//! nothing subscribes.
//!
//! A probe is short, and a part that is full by bytes takes it where it refuses a long message. So the second refusal of a message
//! that is longer than the one that a part took in between stays for a while, or the node would be ready and not ready by turns.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// A part that refuses messages.
struct RefusedPart<T> {
    /// The place of its probes.
    target: T,
    reason: Arc<str>,
    /// The length of the message that it refused last.
    bytes: usize,
    at: Instant,
    /// A shorter message does not end the refusal, for it ended one shortly before.
    is_held: bool,
}

/// The parts that refuse messages.
type RefusedParts<P> = BTreeMap<<P as Prober>::Part, RefusedPart<<P as Prober>::Target>>;

/// The parts of a broker that refuse messages.
pub(crate) struct Refusals<P: Prober> {
    prober: P,
    events: Rc<RequestEvents>,
    refused: RefCell<RefusedParts<P>>,
    /// When a message ended the refusal of a longer one.
    ended: RefCell<BTreeMap<P::Part, Instant>>,
    is_probing: Cell<bool>,
}

impl<P: Prober> Refusals<P> {
    pub(crate) fn new(prober: P, events: Rc<RequestEvents>) -> Rc<Self> {
        Rc::new(Self {
            prober,
            events,
            refused: RefCell::default(),
            ended: RefCell::default(),
            is_probing: Cell::new(false),
        })
    }

    /// Whether a part refuses messages.
    pub(crate) fn has(&self, part: P::Part) -> bool {
        self.refused.borrow().contains_key(&part)
    }

    /// A part has answered to a message of so many bytes.
    pub(crate) fn note(self: &Rc<Self>, part: P::Part, target: &P::Target, bytes: usize, verdict: Verdict) {
        let mut refused = self.refused.borrow_mut();
        let was_empty = refused.is_empty();
        match verdict {
            Verdict::Refused(reason) if refused.len() < PARTS_MAX || refused.contains_key(&part) => {
                let was_held = refused.get(&part).is_some_and(|part| part.is_held);
                let is_held = was_held || self.ended.borrow().get(&part).is_some_and(|at| !is_past(*at));
                refused.insert(part, RefusedPart { target: target.clone(), reason, bytes, at: task::now(), is_held });
            }
            Verdict::Taken => self.end_refusal(&mut refused, part, bytes),
            Verdict::Refused(_) | Verdict::Unknown => {}
        }
        let first = refused.values().next().map(|part| part.reason.clone());
        drop(refused);
        if was_empty != first.is_none() {
            // The task of an earlier refusal may still run.
            if first.is_some() && !self.is_probing.replace(true) {
                drop(task::spawn(probe(Rc::downgrade(self))));
            }
            self.events.extend([BrokerEvent::RefusesMessages(first)]);
        }
    }

    /// A part has taken a message of so many bytes.
    fn end_refusal(&self, refused: &mut RefusedParts<P>, part: P::Part, bytes: usize) {
        let Some(last) = refused.get(&part) else { return };
        let is_shorter = bytes < last.bytes;
        if is_shorter && last.is_held && !is_past(last.at) {
            return;
        }
        refused.remove(&part);
        let mut ended = self.ended.borrow_mut();
        ended.retain(|_, at| !is_past(*at));
        if is_shorter {
            ended.insert(part, task::now());
        }
    }

    /// Writes a message to each part that refuses some.
    async fn probe_all(self: Rc<Self>) {
        let refused = |(part, refused): (&P::Part, &RefusedPart<P::Target>)| (*part, refused.target.clone());
        let parts: Vec<_> = self.refused.borrow().iter().map(refused).collect();
        for (part, target) in parts {
            let verdict = self.prober.probe(part, target.clone()).await;
            self.note(part, &target, 0, verdict);
        }
    }
}

/// Whether a refusal, or its end, is so old that it does not count.
fn is_past(at: Instant) -> bool {
    task::now().saturating_duration_since(at) >= REFUSAL_LASTS
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
/// How long a second refusal of a message counts although the part takes shorter ones.
const REFUSAL_LASTS: Duration = Duration::from_secs(60);

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
                refusals.note(7, &(), 0, Verdict::Refused("full".into()));
                refusals.note(7, &(), 0, Verdict::Unknown);
                assert!(refusals.has(7));
                refusals.note(7, &(), 0, Verdict::Taken);
                assert!(!refusals.has(7));
            }
            refusals.note(7, &(), 0, Verdict::Refused("full".into()));
            task::sleep(PROBE_AFTER * 2 + PROBE_AFTER / 2).await;
            assert!(refusals.has(7));
            let of_two = probes.get();
            task::sleep(PROBE_AFTER).await;
            assert!(!refusals.has(7));
            (of_two, probes.get())
        });
        assert_eq!(network.run_task(Duration::from_secs(60), test), (2, 3));
    }

    /// Takes each probe.
    struct AllTaken;

    impl Prober for AllTaken {
        type Part = u32;
        type Target = ();

        async fn probe(&self, _: u32, (): ()) -> Verdict {
            Verdict::Taken
        }
    }

    #[test]
    fn a_refusal_of_a_long_message_stays_although_short_ones_are_taken() {
        let network = Network::new(1);
        let node = network.host("10.0.0.1").node();
        let test = node.spawn(async {
            let refusals = Refusals::new(AllTaken, Rc::default());
            // The first probe that the part takes ends the first refusal.
            refusals.note(7, &(), 1000, Verdict::Refused("full".into()));
            task::sleep(PROBE_AFTER + PROBE_AFTER / 2).await;
            assert!(!refusals.has(7));
            // A client publishes long messages, which the part refuses, and it takes the probes between them.
            for _ in 0..5 {
                refusals.note(7, &(), 1000, Verdict::Refused("full".into()));
                for _ in 0..30 {
                    task::sleep(PROBE_AFTER).await;
                    assert!(refusals.has(7));
                }
            }
            refusals.note(7, &(), 999, Verdict::Taken);
            assert!(refusals.has(7), "a shorter message");
            task::sleep(PROBE_AFTER * 29).await;
            assert!(refusals.has(7));
            task::sleep(PROBE_AFTER * 2).await;
            assert!(!refusals.has(7), "a minute after the last refusal");

            refusals.note(7, &(), 1000, Verdict::Refused("full".into()));
            refusals.note(7, &(), 1000, Verdict::Taken);
            assert!(!refusals.has(7), "a message of that length");

            // A part that refuses a probe refuses all messages: a probe that it takes says that it takes them again.
            refusals.note(7, &(), 1000, Verdict::Refused("full".into()));
            assert!(refusals.has(7));
            refusals.note(7, &(), 0, Verdict::Refused("no space left".into()));
            task::sleep(PROBE_AFTER * 2).await;
            assert!(!refusals.has(7));
        });
        network.run_task(Duration::from_secs(600), test);
    }
}
