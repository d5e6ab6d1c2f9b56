//! `Parcels`: a codec whose messages consist of all kinds of entries of an outbound queue, in any order.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_buffer::{LINK_BYTES_MIN, Pool};
use tidegate_codec::framing::Raw;
use tidegate_codec::{Codec, FileRegion, Input, Output, Slice, Step};
use tidegate_testkit::Random;

/// Raw bytes inbound; parcels outbound.
pub(crate) struct Parcels;

/// Bytes on their way out.
#[derive(Clone)]
pub(crate) enum Parcel {
    Copied(Vec<u8>),
    Shared(Bytes),
    Static(&'static [u8]),
    View(Slice),
    /// A slice that is linked, however small it is.
    Linked(Slice),
    File(FileRegion),
}

impl Codec for Parcels {
    type In = Slice;
    type Out = Vec<Parcel>;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        Raw.decode(input, reply)
    }

    fn encode(&mut self, parcels: Vec<Parcel>, out: &mut Output<'_>) -> Result<(), Infallible> {
        for parcel in parcels {
            match parcel {
                Parcel::Copied(bytes) => out.write(&bytes),
                Parcel::Shared(bytes) => out.link_bytes(bytes),
                Parcel::Static(bytes) => out.link_static(bytes),
                Parcel::View(slice) => out.link(slice),
                Parcel::Linked(slice) => out.link_shared(slice),
                Parcel::File(region) => out.link_file(region),
            }
        }
        Ok(())
    }
}

/// Makes parcels, and records their content.
pub(crate) struct Packer {
    pub(crate) random: Random,
    pool: Pool,
    /// The content of all parcels, in order.
    pub(crate) said: Vec<u8>,
}

impl Packer {
    /// Slices come from the pool of the loop that sends them.
    pub(crate) fn new(random: Random, pool: Pool) -> Self {
        Self { random, pool, said: Vec::new() }
    }

    /// A linked slice of `length` bytes.
    pub(crate) fn linked(&mut self, length: usize) -> Parcel {
        let at = self.say(length);
        Parcel::Linked(self.pool.copy(&TIDES[at..at + length]))
    }

    /// A linked piece of static bytes.
    pub(crate) fn static_linked(&mut self) -> Parcel {
        let at = self.say(LINK_BYTES_MIN);
        Parcel::Static(&TIDES[at..at + LINK_BYTES_MIN])
    }

    /// A parcel of any kind and any length, zero included.
    pub(crate) fn any(&mut self) -> Parcel {
        let length = match self.random.below(8) {
            0 => 0,
            1..=4 => self.random.below(100),
            _ => LINK_BYTES_MIN - 10 + self.random.below(2 * LINK_BYTES_MIN),
        };
        let at = self.say(length);
        let bytes = &TIDES[at..at + length];
        match self.random.below(6) {
            0 => Parcel::Copied(bytes.to_vec()),
            1 => Parcel::Shared(Bytes::copy_from_slice(bytes)),
            2 => Parcel::Static(bytes),
            3 => Parcel::View(self.pool.copy(bytes)),
            4 => Parcel::Linked(self.pool.copy(bytes)),
            _ => Parcel::File(FileRegion { file: tides(), offset: at as u64, length: length as u64 }),
        }
    }

    /// Records bytes as content; returns where they begin.
    fn say(&mut self, length: usize) -> usize {
        let at = self.random.below(TIDES.len() - length);
        self.said.extend_from_slice(&TIDES[at..at + length]);
        at
    }
}

/// A file that is shorter than its region: `there` bytes of `length`.
pub(crate) fn short_region(there: usize, length: usize) -> FileRegion {
    FileRegion { file: Arc::new(file(&TIDES[..there])), offset: 0, length: length as u64 }
}

/// The bytes of the program, as a file.
fn tides() -> Arc<File> {
    static FILE: OnceLock<Arc<File>> = OnceLock::new();
    FILE.get_or_init(|| Arc::new(file(&TIDES))).clone()
}

/// A file that is removed when it is dropped.
fn file(content: &[u8]) -> File {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("tidegate-parcels-{}-{number}", std::process::id()));
    File::create(&path)
        .and_then(|mut file| file.write_all(content))
        .expect("the temporary directory can be written to");
    let file = File::open(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just opened");
    file
}

/// The bytes that all parcels consist of.
pub(crate) static TIDES: [u8; 16 * 1024] = ebb_and_flow();

const fn ebb_and_flow() -> [u8; 16 * 1024] {
    let mut bytes = [0; 16 * 1024];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at % 253) as u8 ^ (at / 253) as u8;
        at += 1;
    }
    bytes
}
