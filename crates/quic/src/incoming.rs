//! Clients that want to connect: which of them get a handshake, which a Retry (RFC 9000 §8.1.2), and which nothing.

use std::time::Instant;

use crate::config::Admit;
use crate::counters::add;
use crate::endpoint::Endpoint;
use crate::generation::HandshakeIds;
use crate::quinn::{Incoming, Sent};

impl Endpoint {
    /// A client wants to connect.
    pub(crate) fn on_incoming(&mut self, incoming: Incoming, now: Instant) {
        let client = (incoming.remote_address(), *incoming.orig_dst_cid());
        if self.declined.contains(&client) {
            return self.machines.ignore(incoming);
        }
        let admit = self.decide(&incoming);
        if admit != Admit::Accept && self.declined.len() < DECLINED_MAX {
            self.declined.push(client);
        }
        self.admit(incoming, admit, now);
    }

    fn admit(&mut self, incoming: Incoming, admit: Admit, now: Instant) {
        let counters = self.counters.clone();
        let mut buffer = Vec::new();
        match admit {
            Admit::Accept => match self.accept(incoming, now, &mut buffer) {
                Ok(()) => {}
                Err(response) => {
                    add(&counters.handshakes_failed, 1);
                    self.respond(response, buffer);
                }
            },
            Admit::Retry => match self.machines.retry(incoming, &mut buffer) {
                Ok(retry) => {
                    add(&counters.retries, 1);
                    self.respond(Some(retry), buffer);
                }
                Err(error) => {
                    add(&counters.ignored, 1);
                    self.machines.ignore(error.into_incoming());
                }
            },
            Admit::Refuse => {
                add(&counters.refused, 1);
                let refusal = self.machines.refuse(incoming, &mut buffer);
                self.respond(Some(refusal), buffer);
            }
            Admit::Ignore => {
                add(&counters.ignored, 1);
                self.machines.ignore(incoming);
            }
        }
    }

    /// Begins a handshake. An error has the response to the client, if it gets one.
    fn accept(&mut self, incoming: Incoming, now: Instant, buffer: &mut Vec<u8>) -> Result<(), Option<Sent>> {
        let by_client = *incoming.orig_dst_cid();
        let config = self.settings.of_connection();
        let (handle, machine) = self.machines.accept(incoming, now, buffer, config).map_err(|error| error.response)?;
        let handshake = HandshakeIds::new([by_client, self.last_id.get()], self.own, self.settings.generation.as_ref());
        self.insert(handle, machine, now);
        if let Some(connection) = self.at(handle.0).filter(|connection| !connection.is_established) {
            connection.handshake = handshake;
        }
        Ok(())
    }

    fn decide(&self, incoming: &Incoming) -> Admit {
        let limits = &self.settings.limits;
        // A connection that is over has memory until its last packets have left, and counts as well.
        if self.is_draining || self.machines.open_connections() >= limits.connections_max {
            return Admit::Refuse;
        }
        if self.handshaking >= limits.handshakes_max {
            return Admit::Ignore;
        }
        let is_validated = incoming.remote_address_validated();
        let decided = match &self.settings.decide {
            Some(decide) => decide(incoming.remote_address(), is_validated),
            None => Admit::Accept,
        };
        let is_under_pressure = self.handshaking > limits.handshakes_max / RETRY_PART;
        match decided {
            Admit::Accept if is_under_pressure && !is_validated && incoming.may_retry() => Admit::Retry,
            Admit::Retry if is_validated => Admit::Accept,
            decided => decided,
        }
    }
}

/// Above this part of the handshakes that may be under way, clients have to prove their address.
const RETRY_PART: usize = 8;

/// Clients of a batch that are remembered.
const DECLINED_MAX: usize = 64;
