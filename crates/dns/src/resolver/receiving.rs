//! Responses: the attempt that each belongs to, and the next step.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::from_cache::NO_NAME;
use super::response::{End, Meaning, interpret};
use super::{Answer, Attempt, LookupError, LookupId, Resolver, Transport};
use crate::cache::Cache;
use crate::message_view::MessageView;
use crate::name::Name;
use crate::numbers::{Class, Opcode, RecordType, ResponseCode};
use crate::records::{Rdata, Record};

impl Resolver {
    /// A datagram from a server to a socket. The caller has compared the source with the server's address.
    pub fn handle_datagram(&mut self, server: usize, socket: u16, bytes: &[u8], now: Instant) {
        self.handle(server, Transport::Datagram(socket), bytes, now);
    }

    /// A message from the stream to a server.
    pub fn handle_stream_message(&mut self, server: usize, bytes: &[u8], now: Instant) {
        self.handle(server, Transport::Stream, bytes, now);
    }

    /// A datagram that came to a socket of a server from another address. It is counted, and nothing else.
    pub const fn handle_foreign_datagram(&mut self) {
        self.counts.mismatches += 1;
    }

    /// The stream to a server has ended, or could not be opened. Lookups that wait for it try another server.
    pub fn handle_stream_closed(&mut self, server: usize, now: Instant) {
        self.handle_closed(server, Transport::Stream, |_| true, now);
    }

    /// A connection to a server has closed that had the queries with these IDs. Those that wait for another connection go on.
    pub(crate) fn handle_queries_lost(&mut self, server: usize, ids: &HashSet<u16>, now: Instant) {
        if !ids.is_empty() {
            self.handle_closed(server, Transport::Stream, |id| ids.contains(&id), now);
        }
    }

    /// The response to the query with an ID, which went in a request of its own. If it answers another query or none, no other
    /// response comes, and the lookup goes on.
    pub(crate) fn handle_exchange_response(&mut self, server: usize, id: u16, message: &[u8], now: Instant) {
        let responses = self.counts.responses;
        self.handle_stream_message(server, message, now);
        let has_id = MessageView::header_of(message).is_some_and(|header| header.id == id);
        if !has_id || self.counts.responses == responses {
            self.handle_exchange_failed(server, id, now);
        }
    }

    /// A query of a server that is asked by requests has no response: the lookup that sent it tries another server, and no other
    /// lookup does. `id` is the ID of the query. Queries that were sent before the server's last failure count with that.
    pub fn handle_exchange_failed(&mut self, server: usize, id: u16, now: Instant) {
        let key = (server, Transport::Stream, id);
        let Some(lookup) = self.in_flight.get(&key).copied() else { return };
        if let Some(sent) = self.lose(lookup, key)
            && self.upstreams[server].is_new_failure(sent, now)
        {
            self.upstreams[server].on_timeout(now);
        }
        self.go_on(lookup, now);
    }

    /// A socket of a server has closed or could not be opened, or the network reports that its queries do not arrive. Lookups
    /// that wait for it try another server.
    pub fn handle_socket_closed(&mut self, server: usize, socket: u16, now: Instant) {
        self.handle_closed(server, Transport::Datagram(socket), |_| true, now);
    }

    /// Whether a response may come from a server over this transport.
    #[must_use]
    pub fn is_waiting(&self, server: usize, transport: Transport) -> bool {
        self.in_flight.keys().any(|key| key.0 == server && key.1 == transport)
    }

    fn handle_closed(&mut self, server: usize, transport: Transport, has_id: impl Fn(u16) -> bool, now: Instant) {
        let is_lost = |key: &(usize, Transport, u16)| key.0 == server && key.1 == transport && has_id(key.2);
        let lost = self.in_flight.iter().filter(|(key, _)| is_lost(key));
        let mut keys: Vec<_> = lost.map(|(key, id)| (*key, *id)).collect();
        keys.sort_unstable_by_key(|(_, id)| *id);
        let mut is_counted = false;
        for (key, id) in keys {
            // The server's failure counts once for all of them.
            if self.lose(id, key).is_some() && !std::mem::replace(&mut is_counted, true) {
                self.upstreams[server].on_timeout(now);
            }
            self.go_on(id, now);
        }
    }

    /// Takes an attempt whose server could not be reached. Returns when it was sent, unless it was late and is counted already.
    fn lose(&mut self, id: LookupId, key: (usize, Transport, u16)) -> Option<Instant> {
        let (server, transport, _) = key;
        if transport == Transport::Stream {
            self.on_stream_failed(id, server);
        }
        let attempt = self.take_attempt(id, key);
        if let Some(lookup) = self.lookups.get_mut(&id)
            && !lookup.unreachable.contains(&server)
        {
            lookup.unreachable.push(server);
        }
        attempt.filter(|attempt| !attempt.is_late).map(|attempt| attempt.sent)
    }

    /// Tries another server for a lookup, unless it has gone on to one already and waits for that.
    fn go_on(&mut self, id: LookupId, now: Instant) {
        let attempts = self.lookups.get(&id).map_or(&[][..], |lookup| &lookup.attempts);
        if attempts.iter().all(|attempt| attempt.is_late) {
            self.attempt(id, now);
        }
    }

    fn handle(&mut self, server: usize, transport: Transport, bytes: &[u8], now: Instant) {
        let parsed = MessageView::parse(bytes);
        let header = MessageView::header_of(bytes);
        let Some(header) = header.filter(|header| header.is_response && server < self.upstreams.len()) else {
            self.counts.mismatches += 1;
            return;
        };
        let key = (server, transport, header.id);
        let Some(&id) = self.in_flight.get(&key) else {
            return self.on_mismatch(server, transport, parsed.ok().as_ref(), now);
        };
        let Ok(message) = parsed else {
            self.counts.mismatches += 1;
            return match transport {
                // It may be a forgery with a guessed ID, or a server that writes malformed messages.
                Transport::Datagram(_) => self.go_on_over_stream(id, server, now),
                // No more queries than to a server that cannot be reached.
                Transport::Stream => self.handle_exchange_failed(server, header.id, now),
            };
        };
        if !self.belongs(id, key, &message) {
            self.note_other_case(id, key, &message);
            return self.on_mismatch(server, transport, Some(&message), now);
        }
        self.counts.responses += 1;
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.has_response = true;
        }
        let Some(attempt) = self.take_attempt(id, key) else { return };
        self.upstreams[server].on_answer(now.saturating_duration_since(attempt.sent));
        if message.header().is_truncated && transport != Transport::Stream {
            return self.go_on_over_stream(id, server, now);
        }
        if self.is_edns_refused(&attempt, &message) {
            self.upstreams[server].has_edns = false;
            return self.send(id, server, now);
        }
        let upstream = &mut self.upstreams[server];
        upstream.knows_edns |= message.edns().is_some();
        if !attempt.has_edns && !upstream.knows_edns {
            // Only queries without an OPT record arrive.
            upstream.has_edns = false;
        }
        self.keep_cookie(server, &message);
        if message.response_code() == ResponseCode::BADCOOKIE && transport != Transport::Stream {
            // The server's cookie is known now, and a stream needs none (RFC 7873 §5.3).
            return self.go_on_over_stream(id, server, now);
        }
        self.on_response(id, server, &message, now);
    }

    /// Whether a message with the right ID, server and socket answers the attempt.
    fn belongs(&self, id: LookupId, key: (usize, Transport, u16), message: &MessageView<'_>) -> bool {
        let Some(lookup) = self.lookups.get(&id) else { return false };
        let attempt = lookup.attempts.iter().find(|attempt| (attempt.server, attempt.transport, attempt.id) == key);
        let Some(attempt) = attempt else { return false };
        if message.header().opcode != Opcode::QUERY {
            return false;
        }
        let Some(question) = message.question() else {
            // Servers that cannot read a query answer without a question.
            let code = message.response_code();
            return matches!(code, ResponseCode::FORMERR | ResponseCode::NOTIMP);
        };
        let has_name = match attempt.transport {
            Transport::Datagram(_) if self.upstreams[attempt.server].keeps_case => {
                question.name.is_identical(&attempt.name)
            }
            Transport::Datagram(_) | Transport::Stream => question.name == attempt.name,
        };
        let is_same = has_name && question.record_type == lookup.record_type && question.class == Class::IN;
        is_same && (attempt.transport == Transport::Stream || self.has_cookie(attempt, message))
    }

    /// Whether the cookie of a datagram is ours; a server that has sent one sends one always.
    fn has_cookie(&self, attempt: &Attempt, message: &MessageView<'_>) -> bool {
        let upstream = &self.upstreams[attempt.server];
        if !attempt.has_edns {
            return true;
        }
        match message.edns().map(|edns| edns.cookie()) {
            Some(Ok(Some(cookie))) => cookie.client == upstream.client_cookie,
            Some(Err(_)) => false,
            Some(Ok(None)) | None => upstream.server_cookie.is_empty(),
        }
    }

    fn keep_cookie(&mut self, server: usize, message: &MessageView<'_>) {
        let upstream = &mut self.upstreams[server];
        if let Some(Ok(Some(cookie))) = message.edns().map(|edns| edns.cookie())
            && cookie.client == upstream.client_cookie
            && cookie.server != upstream.server_cookie
        {
            upstream.server_cookie = cookie.server.to_vec();
        }
    }

    /// Whether the server does not know EDNS (RFC 6891 §7).
    fn is_edns_refused(&self, attempt: &Attempt, message: &MessageView<'_>) -> bool {
        let code = message.header().response_code;
        attempt.has_edns
            && message.edns().is_none()
            && matches!(code, ResponseCode::FORMERR | ResponseCode::NOTIMP)
            && self.upstreams[attempt.server].has_edns
    }

    /// A response that belongs to no attempt. One about the name of a lookup that waits for this server makes it go on
    /// over a stream.
    fn on_mismatch(&mut self, server: usize, transport: Transport, message: Option<&MessageView<'_>>, now: Instant) {
        self.counts.mismatches += 1;
        let Some(question) = message.and_then(MessageView::question) else { return };
        let key = (question.name.to_name(), question.record_type);
        let Some(&id) = self.by_question.get(&key) else { return };
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let is_waiting = |attempt: &Attempt| attempt.server == server && attempt.transport == transport;
        if lookup.is_stream || transport == Transport::Stream || !lookup.attempts.iter().any(is_waiting) {
            return;
        }
        lookup.mismatches += 1;
        if lookup.mismatches > self.config.mismatches_max {
            self.go_on_over_stream(id, server, now);
        }
    }

    /// Notes a server whose answer differs from the attempt in the cases of the name.
    fn note_other_case(&mut self, id: LookupId, key: (usize, Transport, u16), message: &MessageView<'_>) {
        let (Some(lookup), Some(question)) = (self.lookups.get_mut(&id), message.question()) else { return };
        let attempt = lookup.attempts.iter().find(|attempt| (attempt.server, attempt.transport, attempt.id) == key);
        let is_of_name =
            |attempt: &Attempt| question.name == attempt.name && !question.name.is_identical(&attempt.name);
        if self.upstreams[key.0].keeps_case && attempt.is_some_and(is_of_name) && !lookup.other_cases.contains(&key.0) {
            lookup.other_cases.push(key.0);
        }
    }

    /// A stream to a server had no answer. If that server does not keep the cases of letters, queries in datagrams are left,
    /// without random cases from now on.
    pub(super) fn on_stream_failed(&mut self, id: LookupId, server: usize) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        if let Some(at) = lookup.other_cases.iter().position(|other| *other == server) {
            lookup.other_cases.swap_remove(at);
            lookup.is_stream = self.config.use_streams;
            // The next datagram is in the place of the first one.
            lookup.tried = lookup.tried.saturating_sub(1);
            self.upstreams[server].keeps_case = false;
        }
    }

    /// Gives up the datagrams of a lookup, and asks over a stream.
    fn go_on_over_stream(&mut self, id: LookupId, server: usize, now: Instant) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        lookup.is_stream = true;
        for attempt in std::mem::take(&mut lookup.attempts) {
            self.in_flight.remove(&(attempt.server, attempt.transport, attempt.id));
        }
        self.send(id, server, now);
    }

    fn take_attempt(&mut self, id: LookupId, key: (usize, Transport, u16)) -> Option<Attempt> {
        self.in_flight.remove(&key);
        let attempts = &mut self.lookups.get_mut(&id)?.attempts;
        let at = attempts.iter().position(|attempt| (attempt.server, attempt.transport, attempt.id) == key)?;
        Some(attempts.swap_remove(at))
    }

    fn on_response(&mut self, id: LookupId, server: usize, message: &MessageView<'_>, now: Instant) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let left = self.config.aliases_max.saturating_sub(lookup.aliases.len());
        let bailiwick = &self.upstreams[server].bailiwick;
        let meaning = interpret(message, &lookup.target, lookup.record_type, bailiwick, left);
        let record_type = lookup.record_type;
        self.cache.with(|cache| store(cache, &meaning, record_type, now));
        let Meaning { aliases, target, end } = meaning;
        let leads_back = |alias: &Record| lookup.aliases.iter().any(|known| known.name == alias.name);
        let is_loop = aliases.iter().any(leads_back) || lookup.aliases.iter().any(|known| known.name == target);
        match end {
            End::Failure => {
                lookup.failed.push(server);
                self.attempt(id, now);
            }
            End::Loop => self.fail(id, LookupError::Aliases, now),
            _ if is_loop => self.fail(id, LookupError::Aliases, now),
            End::Unknown if aliases.is_empty() => {
                // The server was asked for a name outside its bailiwick.
                lookup.failed.push(server);
                self.attempt(id, now);
            }
            End::Unknown => {
                lookup.aliases.extend(aliases);
                self.follow(id, target, now);
            }
            End::Records(found) => {
                let mut records = std::mem::take(&mut lookup.aliases);
                records.extend(aliases);
                records.extend(found);
                let answer = Answer { response_code: ResponseCode::NOERROR, records, soa: None, is_stale: false };
                self.finish(id, Ok(Arc::new(answer)));
            }
            End::Negative(response_code, soa) => {
                let mut records = std::mem::take(&mut lookup.aliases);
                records.extend(aliases);
                self.finish(id, Ok(Arc::new(Answer { response_code, records, soa, is_stale: false })));
            }
        }
    }

    /// Looks up the end of aliases that a response left open.
    fn follow(&mut self, id: LookupId, target: Name, now: Instant) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        if lookup.aliases.len() >= self.config.aliases_max {
            return self.fail(id, LookupError::Aliases, now);
        }
        for attempt in std::mem::take(&mut lookup.attempts) {
            self.in_flight.remove(&(attempt.server, attempt.transport, attempt.id));
        }
        lookup.target = target;
        lookup.tried = 0;
        lookup.failed.clear();
        lookup.unreachable.clear();
        lookup.is_stream = self.config.use_streams;
        self.attempt(id, now);
    }
}

/// Stores each set of a response.
fn store(cache: &mut Cache, meaning: &Meaning, record_type: RecordType, now: Instant) {
    // Aliases that lead back answer nothing, and would be followed again from the cache.
    if matches!(meaning.end, End::Loop) {
        return;
    }
    for alias in &meaning.aliases {
        cache.insert(&alias.name, RecordType::CNAME, std::slice::from_ref(&alias.data), alias.ttl, now);
    }
    match &meaning.end {
        End::Records(records) => {
            let data: Vec<Rdata> = records.iter().map(|record| record.data.clone()).collect();
            cache.insert(&meaning.target, record_type, &data, records.first().map_or(0, |record| record.ttl), now);
        }
        End::Negative(response_code, Some(soa)) => {
            // Servers exist that deny a name with only an A record when they are asked for AAAA (RFC 4074 §4.2).
            let is_denied = *response_code == ResponseCode::NXDOMAIN && record_type != RecordType::AAAA;
            let stored = if is_denied { NO_NAME } else { record_type };
            cache.insert_negative(&meaning.target, stored, *response_code, soa, now);
        }
        End::Negative(_, None) | End::Unknown | End::Loop | End::Failure => {}
    }
}
