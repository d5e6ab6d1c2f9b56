//! permessage-deflate (RFC 7692): the parameters of a connection, and its contexts.
//!
//! A message is compressed with a flush, whose last four bytes are not sent. The receiver appends them. Without takeover
//! a context lasts as long as a message, and comes from the pool of the thread.

use tidegate_buffer::{Charge, Pool};
use tidegate_compress::{Algorithm, Compression, Compressor, DecompressionLimits, Decompressor, Progress};

use crate::config::Deflate;
use crate::error::{Error, Violation};
use crate::role::Role;

/// The parameters that both sides have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The server's compressor forgets each message.
    pub server_no_context_takeover: bool,
    /// The client's compressor forgets each message.
    pub client_no_context_takeover: bool,
    /// The logarithm of the window of the server's compressor, 8 to 15.
    pub server_max_window_bits: u8,
    /// The logarithm of the window of the client's compressor, 8 to 15.
    pub client_max_window_bits: u8,
}

impl Default for Parameters {
    /// Those of a response without parameters.
    fn default() -> Self {
        Self {
            server_no_context_takeover: false,
            client_no_context_takeover: false,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        }
    }
}

/// The contexts of a connection, and the parameters of their creation.
#[derive(Debug)]
pub(crate) struct PerMessageDeflate {
    compression: Compression,
    /// The peer's window is smaller than those of the compressor, so messages are sent as they are.
    never_compresses: bool,
    keeps_compressor: bool,
    keeps_decompressor: bool,
    compressor: Option<Compressor>,
    decompressor: Option<Decompressor>,
    /// Counts the contexts that outlast a call.
    charge: Option<Charge>,
}

impl PerMessageDeflate {
    pub(crate) fn new(role: Role, agreed: Parameters, settings: &Deflate) -> Self {
        let (ours, theirs, bits) = match role {
            Role::Server => {
                (agreed.server_no_context_takeover, agreed.client_no_context_takeover, agreed.server_max_window_bits)
            }
            Role::Client => {
                (agreed.client_no_context_takeover, agreed.server_no_context_takeover, agreed.client_max_window_bits)
            }
        };
        Self {
            compression: compression(settings, bits),
            never_compresses: bits < WINDOW_BITS_MIN,
            keeps_compressor: !ours && settings.takeover,
            keeps_decompressor: !theirs,
            compressor: None,
            decompressor: None,
            charge: None,
        }
    }

    /// Bytes of memory of the contexts.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.compressor.as_ref().map_or(0, Compressor::memory_bytes)
            + self.decompressor.as_ref().map_or(0, Decompressor::memory_bytes)
    }

    /// Counts the contexts that are there in the ledger of the loop.
    pub(crate) fn update_charge(&mut self, pool: &Pool) {
        let bytes = self.memory_bytes();
        match &mut self.charge {
            Some(_) if bytes == 0 => self.charge = None,
            Some(charge) => charge.resize(bytes),
            None if bytes == 0 => {}
            None => self.charge = Some(pool.charge(bytes)),
        }
    }

    /// Whether any receiver of these window bits can decompress the output of a compressor without a past.
    pub(crate) fn takes_shared(&self, made_with: Compression) -> bool {
        !self.keeps_compressor && !self.never_compresses && self.compression == made_with
    }

    /// Whether messages may be compressed for the peer.
    pub(crate) fn may_compress(&self) -> bool {
        !self.never_compresses
    }

    /// The payload of a compressed message.
    pub(crate) fn compress(&mut self, payload: &[u8], pool: &Pool) -> Result<Vec<u8>, Error> {
        let compressor = self.compressor.get_or_insert_with(|| Compressor::new(self.compression));
        let compressed = compress(compressor, payload);
        if !self.keeps_compressor || compressed.is_err() {
            self.compressor = None;
        }
        if self.keeps_compressor {
            self.update_charge(pool);
        }
        compressed
    }

    /// Decompresses a part of a message into `space`.
    pub(crate) fn decompress(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let mut step = self.step(input, space);
        if step == Err(tidegate_compress::Error::TrailingBytes) {
            // The peer has ended the stream within the message, and begins another (RFC 7692 §7.2.3.4).
            self.decompressor = None;
            step = self.step(input, space);
        }
        let progress = step.map_err(|error| match error {
            tidegate_compress::Error::System(_) => Error::System,
            _ => Error::Peer(Violation::Deflate),
        })?;
        if progress.read + progress.written == 0 && !progress.is_complete {
            return Err(Violation::Deflate.into());
        }
        Ok(progress)
    }

    fn step(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, tidegate_compress::Error> {
        let new = || Decompressor::new(Algorithm::RawDeflate, UNLIMITED);
        self.decompressor.get_or_insert_with(new).step(input, space)
    }

    /// Whether the stream of the peer's compressor has ended, so that the end of the message adds nothing.
    pub(crate) fn has_ended(&self) -> bool {
        self.decompressor.as_ref().is_some_and(Decompressor::has_ended)
    }

    /// A message has been decompressed.
    pub(crate) fn end_message(&mut self, pool: &Pool) {
        if !self.keeps_decompressor || self.has_ended() {
            self.decompressor = None;
        }
        if self.keeps_decompressor || self.charge.is_some() {
            self.update_charge(pool);
        }
    }
}

/// The payload of a message that refers to none before: for a broadcast.
pub(crate) fn compress_alone(settings: &Deflate, payload: &[u8]) -> Result<Vec<u8>, Error> {
    compress(&mut Compressor::new(compression(settings, settings.window_bits)), payload)
}

pub(crate) fn compression(settings: &Deflate, window_bits: u8) -> Compression {
    let bits = window_bits.min(settings.window_bits);
    Compression::new(Algorithm::RawDeflate).level(settings.level).window_bits(bits)
}

/// The smallest window of the compressor.
pub(crate) const WINDOW_BITS_MIN: u8 = 9;

fn compress(compressor: &mut Compressor, payload: &[u8]) -> Result<Vec<u8>, Error> {
    if payload.is_empty() {
        return Ok(EMPTY.to_vec());
    }
    let mut compressed = Vec::with_capacity(payload.len() / 2 + TAIL.len());
    let written = compressor.write(payload, &mut compressed).and_then(|_| compressor.flush(&mut compressed));
    written.map_err(|_| Error::System)?;
    debug_assert!(compressed.ends_with(&TAIL), "a flush ends with an empty block");
    compressed.truncate(compressed.len() - TAIL.len());
    Ok(compressed)
}

/// The last bytes of a flush, which are not sent.
pub(crate) const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// An empty message (RFC 7692 §7.2.3.6).
const EMPTY: [u8; 1] = [0];

/// The codec compares a message with its own limits.
const UNLIMITED: DecompressionLimits = DecompressionLimits {
    output_max: u64::MAX,
    ratio_max: u32::MAX,
    ratio_after: u64::MAX,
    layers_max: 1,
    window_max: u32::MAX,
};
