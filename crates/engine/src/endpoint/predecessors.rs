//! `Predecessors`: the endpoints of earlier generations at the same sockets, which have sessions left.
//!
//! This process receives their datagrams, and sends them on through a pipe for each endpoint. A full pipe loses datagrams, as
//! the network does. A pipe whose other end is closed says that nothing is left of that endpoint.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tidegate_codec::EndpointPlace;
use tidegate_sys::message_pipe::{MessageOutcome, MessageSender};

/// The living endpoints of earlier generations, the oldest generation first.
#[derive(Debug, Default)]
pub(crate) struct Predecessors(Vec<Predecessor>);

#[derive(Debug)]
struct Predecessor {
    place: EndpointPlace,
    sender: MessageSender,
    is_gone: AtomicBool,
}

impl Predecessors {
    pub(crate) fn new(senders: impl IntoIterator<Item = (EndpointPlace, MessageSender)>) -> Self {
        let one = |(place, sender)| Predecessor { place, sender, is_gone: AtomicBool::new(false) };
        Self(senders.into_iter().map(one).collect())
    }

    /// Those that are there.
    pub(crate) fn living(&self) -> impl Iterator<Item = (EndpointPlace, &MessageSender)> {
        let living = self.0.iter().filter(|one| !one.is_gone.load(Relaxed) && !one.sender.is_gone());
        living.map(|one| (one.place, &one.sender))
    }

    pub(crate) fn places(&self) -> Vec<EndpointPlace> {
        self.0.iter().map(|one| one.place).collect()
    }

    /// The number of an endpoint, if it is there.
    pub(super) fn find(&self, place: EndpointPlace) -> Option<usize> {
        self.0.iter().position(|one| one.place == place && !one.is_gone.load(Relaxed))
    }

    /// Sends encoded datagrams to an endpoint. Returns whether they are under way; if the endpoint is gone, calls `on_gone`
    /// once.
    pub(super) fn send(&self, number: usize, message: &[u8], on_gone: impl FnOnce(EndpointPlace)) -> bool {
        let Some(one) = self.0.get(number) else { return false };
        match one.sender.send(&[message]) {
            MessageOutcome::Sent => true,
            MessageOutcome::Full => false,
            MessageOutcome::Gone => {
                if !one.is_gone.swap(true, Relaxed) {
                    on_gone(one.place);
                }
                false
            }
        }
    }
}
