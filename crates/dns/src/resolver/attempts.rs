//! Queries: which server, which ID, which cases of letters.

use std::time::Instant;

use tidegate_codec::later;

use super::{Attempt, LookupError, LookupId, Resolver, Transmit, Transport};
use crate::edns::{Edns, QUERY_BLOCK_BYTES};
use crate::header::Header;
use crate::message_writer::{EncodedMessage, MessageWriter};
use crate::name::Name;
use crate::records::Question;

impl Resolver {
    /// Asks the next server, or ends the lookup if every server had its turn and failed.
    pub(super) fn attempt(&mut self, id: LookupId, now: Instant) {
        let Some(lookup) = self.lookups.get(&id) else { return };
        let tries_max = self.config.rounds * self.upstreams.len() as u32;
        if lookup.failed.len() >= self.upstreams.len() {
            return self.fail(id, LookupError::Failed, now);
        }
        if lookup.tried >= tries_max {
            if lookup.attempts.is_empty() {
                return self.fail(id, LookupError::Failed, now);
            }
            // Servers without an answer are asked again until the deadline, but only in their time.
            if now < lookup.next_attempt {
                return self.arm(id);
            }
        }
        let server = self.choose(id, now);
        self.send(id, server, now);
    }

    /// The best server that was asked the fewest times, and could be reached.
    fn choose(&mut self, id: LookupId, now: Instant) -> usize {
        let Some(lookup) = self.lookups.get(&id) else { return 0 };
        let asked = |server: usize| lookup.attempts.iter().filter(|attempt| attempt.server == server).count();
        let candidates = (0..self.upstreams.len()).filter(|server| !lookup.failed.contains(server));
        let servers = self.upstreams.len();
        // How far a server is from that of this lookup's turn.
        let turn = |server: usize| {
            if self.config.rotates { (server + servers - lookup.turn) % servers } else { 0 }
        };
        let best = candidates.min_by_key(|server| {
            let (is_down, timeouts, time) = self.upstreams[*server].rank(now);
            (lookup.unreachable.contains(server), is_down, asked(*server), turn(*server), timeouts, time)
        });
        let best = best.unwrap_or(0);
        for (index, upstream) in self.upstreams.iter_mut().enumerate() {
            if index != best {
                upstream.fade();
            }
        }
        best
    }

    /// Sends the query of a lookup to a server.
    pub(super) fn send(&mut self, id: LookupId, server: usize, now: Instant) {
        let Some(lookup) = self.lookups.get(&id) else { return };
        let is_stream = lookup.is_stream || self.upstreams[server].use_streams;
        let target = lookup.target.clone();
        let record_type = lookup.record_type;
        let round = lookup.tried / self.upstreams.len() as u32;
        let unanswered = lookup.attempts.iter().filter(|attempt| attempt.server == server && attempt.has_edns).count();
        let transport = if is_stream {
            Transport::Stream
        } else {
            Transport::Datagram((self.random.bits() % u64::from(self.config.sockets.max(1))) as u16)
        };
        let Some(query_id) = self.unused_id(server, transport) else {
            return self.fail(id, LookupError::Overloaded, now);
        };
        let has_random_case = !is_stream && self.config.randomizes_case && self.upstreams[server].keeps_case;
        let name = if has_random_case { self.random_case(&target) } else { target };
        let upstream = &self.upstreams[server];
        // Some networks drop queries with an OPT record.
        let may_drop_edns = unanswered >= EDNS_TRIES && upstream.server_cookie.is_empty();
        let has_edns = upstream.has_edns && !may_drop_edns;
        let edns = has_edns.then(|| Edns::default().cookie(upstream.client_cookie, &upstream.server_cookie));
        let question = Question::new(name.clone(), record_type);
        let Ok(message) = encode(query_id, &question, edns, is_stream && upstream.pads_queries) else {
            return self.fail(id, LookupError::Question, now);
        };
        let patience = upstream.patience(self.config.server_timeout);
        // A stream may have to be opened first.
        let patience = if is_stream { patience.saturating_mul(3) } else { patience };
        let patience = patience.saturating_mul(1 << round.min(16));
        let attempt = Attempt { server, transport, id: query_id, name, sent: now, has_edns, is_late: false };
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.tried += 1;
            lookup.next_attempt = later(now, patience.min(self.config.server_timeout));
            lookup.attempts.push(attempt);
        }
        self.in_flight.insert((server, transport, query_id), id);
        match transport {
            Transport::Datagram(_) => self.counts.datagrams += 1,
            Transport::Stream => self.counts.stream_queries += 1,
        }
        self.transmits.push_back(Transmit { server, transport, message });
        self.arm(id);
    }

    /// An ID that no attempt over the same socket has.
    fn unused_id(&mut self, server: usize, transport: Transport) -> Option<u16> {
        (0..ID_TRIES_MAX).find_map(|_| {
            let id = self.random.bits() as u16;
            (!self.in_flight.contains_key(&(server, transport, id))).then_some(id)
        })
    }

    /// The name with random cases of its letters.
    fn random_case(&mut self, name: &Name) -> Name {
        let mut wire = name.wire().to_vec();
        let (mut bits, mut left) = (self.random.bits(), 64);
        // Lengths of labels are no letters.
        for byte in wire.iter_mut().filter(|byte| byte.is_ascii_alphabetic()) {
            if left == 0 {
                (bits, left) = (self.random.bits(), 64);
            }
            *byte = if bits & 1 == 0 { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() };
            (bits, left) = (bits >> 1, left - 1);
        }
        Name::from_checked_wire(wire.into())
    }
}

fn encode(
    id: u16,
    question: &Question,
    edns: Option<Edns>,
    is_padded: bool,
) -> Result<EncodedMessage, crate::DnsError> {
    let writer = MessageWriter::new(Header::query(id)).question(question)?;
    Ok(match edns {
        Some(edns) if is_padded => {
            let edns = edns.padding(writer.wire_bytes(), QUERY_BLOCK_BYTES);
            writer.edns(&edns)?.finish()
        }
        Some(edns) => writer.edns(&edns)?.finish(),
        None => writer.finish(),
    })
}

/// Queries with an OPT record to a server in one lookup, before one without.
const EDNS_TRIES: usize = 2;

/// With a thousand IDs in use of 65,536 each try fails once in sixty.
const ID_TRIES_MAX: usize = 64;
