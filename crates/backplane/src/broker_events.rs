//! `BrokerEvents`: the events of a broker that a node reaches by connections, in the order in which the node gets them: those of
//! requests before those of the subscriber, and an overflow in the place of a gap that is not that of a new connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_engine::task;

use crate::broker::BrokerEvent;
use crate::gaps::ConnectionGaps;

/// The events of a broker.
#[derive(Default)]
pub(crate) struct BrokerEvents {
    requests: Rc<RequestEvents>,
    gaps: ConnectionGaps,
    /// The event that was behind a gap.
    held: Option<BrokerEvent>,
}

/// An event of a subscriber.
pub(crate) enum SubscriberStep {
    /// Messages may be missing.
    Gap,
    Event(BrokerEvent),
    /// The event does not concern the node.
    None,
}

impl From<Option<BrokerEvent>> for SubscriberStep {
    fn from(event: Option<BrokerEvent>) -> Self {
        event.map_or(Self::None, Self::Event)
    }
}

/// Events of requests.
#[derive(Default)]
pub(crate) struct RequestEvents(RefCell<EventQueue>);

#[derive(Default)]
struct EventQueue {
    events: VecDeque<BrokerEvent>,
    waker: Option<Waker>,
}

impl RequestEvents {
    pub(crate) fn extend(&self, events: impl IntoIterator<Item = BrokerEvent>) {
        let mut queue = self.0.borrow_mut();
        queue.events.extend(events);
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<BrokerEvent> {
        let mut queue = self.0.borrow_mut();
        if let Some(event) = queue.events.pop_front() {
            return Poll::Ready(event);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl BrokerEvents {
    /// The events of requests.
    pub(crate) fn requests(&self) -> &Rc<RequestEvents> {
        &self.requests
    }

    /// Runs a request, and reports its events.
    pub(crate) fn spawn<Events>(&self, request: impl Future<Output = Events> + 'static)
    where
        Events: IntoIterator<Item = BrokerEvent> + 'static,
    {
        let requests = self.requests.clone();
        drop(task::spawn(async move { requests.extend(request.await) }));
    }

    /// The next event; `None` once the subscriber has ended, whose next event `poll_subscriber` returns.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut poll_subscriber: impl FnMut(&mut Context<'_>) -> Poll<Option<SubscriberStep>>,
    ) -> Poll<Option<BrokerEvent>> {
        if let Some(event) = self.held.take() {
            return Poll::Ready(Some(event));
        }
        if let Poll::Ready(event) = self.requests.poll(cx) {
            return Poll::Ready(Some(event));
        }
        loop {
            let step = match poll_subscriber(cx) {
                Poll::Ready(Some(step)) => step,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.gaps.other() => return Poll::Ready(Some(BrokerEvent::Overflow)),
                Poll::Pending => return Poll::Pending,
            };
            let has_overflowed = match &step {
                SubscriberStep::Gap => self.gaps.gap(),
                SubscriberStep::Event(BrokerEvent::Up) => self.gaps.up(),
                SubscriberStep::Event(BrokerEvent::Down) => self.gaps.down(),
                _ => self.gaps.other(),
            };
            let event = if let SubscriberStep::Event(event) = step { Some(event) } else { None };
            if has_overflowed {
                self.held = event;
                return Poll::Ready(Some(BrokerEvent::Overflow));
            }
            if event.is_some() {
                return Poll::Ready(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_comes_before_the_event_behind_its_gap_and_requests_come_first() {
        let mut events = BrokerEvents::default();
        let mut steps = VecDeque::from([
            SubscriberStep::Event(BrokerEvent::Up),
            SubscriberStep::Gap,
            SubscriberStep::None,
            SubscriberStep::Gap,
            SubscriberStep::Event(BrokerEvent::Down),
        ]);
        let published = |ticket| BrokerEvent::Published { ticket, is_confirmed: true };
        events.requests().extend([published(1)]);
        let mut seen = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = events.poll(&mut cx, |_| Poll::Ready(steps.pop_front())) {
            if matches!(event, BrokerEvent::Up) {
                events.requests().extend([published(2)]);
            }
            seen.push(match event {
                BrokerEvent::Published { ticket, .. } => ticket.to_string(),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(seen, ["1", "Up", "2", "Overflow", "Overflow", "Down"]);
    }
}
