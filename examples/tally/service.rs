//! The service: the handler of one connection, and its tests without a network.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tidegate::{Context, Handler, Outcome, Slice};

use crate::protocol::{Request, Response, ServerSide};

/// The counters of one loop. A loop is one thread, so no lock is needed.
pub(crate) type Tallies = Rc<RefCell<BTreeMap<Box<[u8]>, u64>>>;

/// The handler of one connection.
pub(crate) struct Service {
    tallies: Tallies,
}

impl Service {
    pub(crate) fn new(tallies: Tallies) -> Self {
        Self { tallies }
    }

    fn total(&self, request: &Request<Slice>) -> Option<u64> {
        let mut tallies = self.tallies.borrow_mut();
        match request {
            Request::Ask { name } => Some(tallies.get(&**name).copied().unwrap_or(0)),
            Request::Add { name, amount } => {
                if !tallies.contains_key(&**name) {
                    if tallies.len() == TALLIES_MAX {
                        return None;
                    }
                    tallies.insert((**name).into(), 0);
                }
                let total = tallies.get_mut(&**name)?;
                *total = total.saturating_add((*amount).into());
                Some(*total)
            }
        }
    }
}

impl Handler<ServerSide> for Service {
    type Post = ();

    fn message(&mut self, request: Request<Slice>, cx: &mut Context<'_, ServerSide>) -> Outcome<ServerSide> {
        match self.total(&request).map(|total| cx.send(Response::Total(total))) {
            Some(Ok(_)) => Outcome::Continue,
            Some(Err(error)) => Outcome::fail(error),
            None => Outcome::fail("the limit of tallies is reached"),
        }
    }
}

/// Peers can create tallies, so their number is bounded.
const TALLIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use tidegate_testkit::{Embedded, contract};

    use super::{ServerSide, Service, Tallies};
    use crate::protocol::ClientSide;

    const ADD_FIVE: &[u8] = b"\x00\x0a\x01\x01\x00\x00\x00\x05boat";
    const ASK: &[u8] = b"\x00\x06\x01\x02boat";

    fn open() -> Embedded<()> {
        Embedded::new(ServerSide::new(), Service::new(Tallies::default()))
    }

    #[test]
    fn the_total_is_the_sum_of_the_amounts() {
        let mut pipe = open();
        pipe.receive(ADD_FIVE);
        pipe.receive(&[ADD_FIVE, ASK].concat());
        let answers = [5, 10, 10].map(|total| [b"\x00\x0a\x01\x81\0\0\0\0\0\0\0", &[total][..]].concat());
        assert_eq!(pipe.take_written(), answers.concat());
        assert!(!pipe.is_closed());
    }

    #[test]
    fn an_invalid_request_gets_the_reason_and_closes_the_connection() {
        for (wire, why) in [
            (&b"\x00\x06\x07\x02boat"[..], &b"unsupported version"[..]),
            (b"\x00\x02\x01\x02", b"malformed request"),
            (b"\x00\x06\x01\x09boat", b"malformed request"),
            (b"\xff\xff", b"bad frame"),
        ] {
            let mut pipe = open();
            pipe.receive(wire);
            assert_eq!(pipe.take_written(), [b"\0", &[2 + why.len() as u8][..], b"\x01\x80", why].concat());
            pipe.receive_fin();
            assert!(pipe.is_closed());
        }
    }

    #[test]
    fn the_server_codec_keeps_the_contract_of_codecs() {
        let wire = [ADD_FIVE, ASK].concat();
        assert_eq!(contract::check(ServerSide::new, &wire).messages.len(), 2);
        contract::never_panics(ServerSide::new, &wire, 200);
        contract::refuses_before_allocating(ServerSide::new, b"\xff\xff\x01\x01");
    }
    #[test]
    fn the_client_codec_keeps_the_contract_of_codecs() {
        let wire = b"\x00\x0a\x01\x81\0\0\0\0\0\0\0\x05\x00\x04\x01\x80no";
        assert_eq!(contract::check(ClientSide::new, wire).messages, ["Total(5)", r#"Refused(b"no")"#]);
        contract::never_panics(ClientSide::new, wire, 200);
        contract::refuses_before_allocating(ClientSide::new, b"\xff\xff\x01\x81");
    }
}
