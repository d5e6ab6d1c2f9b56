//! TLS: bytes of a peer into both roles, and handshakes in which bytes are changed.
//!
//! The first byte chooses the role, or a handshake between both roles. The rest is the wire; or, after a count, places in
//! the handshake whose bytes are changed. Keys are random, so a handshake is not the same twice; that there is no panic,
//! and that changed bytes never arrive as plain bytes, holds for each.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Input, Lifecycle, Outbound, Output, Over, Pool, Stages, Step, Time};
use tidegate_tls::{Certificates, ClientConfig, Provider, ServerConfig, Tls};

use crate::choices::Choices;
use crate::framings::WIRE_BYTES_MAX;

/// Both TLS roles.
pub fn tls(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (server, client) = configurations();
    let make_server = || Side::new(server.accept());
    let make_client = || Side::new(client.connect("fuzz.test").expect("it is a name"));
    match choices.byte() % 3 {
        0 => make_server().receive_in_pieces(&mut choices),
        1 => make_client().receive_in_pieces(&mut choices),
        _ => exchange(make_server(), make_client(), &mut choices),
    }
}

/// One end, with the queues of its connection.
struct Side {
    pipeline: Over<Tls, Raw>,
    input: Input,
    queue: Outbound,
    pool: Pool,
    time: Time,
    has_failed: bool,
    plain: Vec<u8>,
}

impl Side {
    fn new(tls: Tls) -> Self {
        let pool = Pool::new();
        let (queue, time) = (Outbound::new(&pool), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let pipeline = Over::new(tls, Raw);
        let mut side = Self { pipeline, input: Input::new(), queue, pool, time, has_failed: false, plain: Vec::new() };
        side.act(|pipeline, out| pipeline.encode(Payload::from(PLAIN), out));
        side
    }

    fn act<E>(&mut self, act: impl FnOnce(&mut Over<Tls, Raw>, &mut Output<'_>) -> Result<(), E>) {
        let mut out = Output::new(&mut self.queue, &self.pool, &self.time);
        let done = act(&mut self.pipeline, &mut out).is_ok();
        self.has_failed |= !(done && self.pipeline.flush(&mut out).is_ok());
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.has_failed {
            return;
        }
        self.input.append(self.pool.copy(bytes), &self.pool);
        let mut out = Output::new(&mut self.queue, &self.pool, &self.time);
        loop {
            match self.pipeline.decode(&mut self.input, &mut out) {
                Ok(Step::Message(bytes)) => self.plain.extend_from_slice(&bytes),
                Ok(Step::NeedMore | Step::End) => break,
                Err(_) => {
                    self.has_failed = true;
                    return;
                }
            }
        }
        self.act(|_, _| Ok::<_, ()>(()));
    }

    fn receive_in_pieces(mut self, choices: &mut Choices<'_>) {
        while !choices.is_over() {
            let length = 1 + choices.below(200);
            let bytes = choices.take(length.min(WIRE_BYTES_MAX));
            self.receive(bytes);
        }
        assert!(self.plain.is_empty(), "plain bytes without a handshake");
        if !self.has_failed {
            self.act(|pipeline, out| pipeline.on(Lifecycle::Close, out));
        }
    }

    fn take_written(&mut self) -> Vec<u8> {
        let mut written = Vec::new();
        self.queue.flush();
        while let Some(front) = self.queue.front() {
            let count = front.len() as u64;
            written.extend_from_slice(front);
            self.queue.advance(count);
        }
        written
    }
}

/// A handshake and a message each way, where some bytes are changed.
fn exchange(mut server: Side, mut client: Side, choices: &mut Choices<'_>) {
    let is_changed = !choices.is_over();
    for _ in 0..6 {
        let mut flights = [client.take_written(), server.take_written()];
        for flight in &mut flights {
            if !choices.is_over() && !flight.is_empty() {
                let at = choices.below(flight.len());
                flight[at] ^= choices.byte();
            }
        }
        let piece = 1 + choices.below(2_000);
        flights[0].chunks(piece).for_each(|piece| server.receive(piece));
        flights[1].chunks(piece).for_each(|piece| client.receive(piece));
    }
    for side in [&server, &client] {
        assert!(PLAIN.starts_with(&side.plain), "other bytes than those that were sent");
        assert!(is_changed || side.plain == PLAIN, "an unchanged handshake succeeds");
    }
}

const PLAIN: &[u8] = b"the tide turns twice a day";

/// Of all inputs: to make a key takes long.
fn configurations() -> &'static (ServerConfig, ClientConfig) {
    static BOTH: OnceLock<(ServerConfig, ClientConfig)> = OnceLock::new();
    BOTH.get_or_init(|| {
        let provider = Provider::ring();
        let made = rcgen::generate_simple_self_signed(["fuzz.test".to_owned()]).expect("a certificate");
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("it is valid");
        let server = ServerConfig::builder(&provider, certificates).build().expect("it is valid");
        let client = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("it is valid");
        (server, client)
    })
}
