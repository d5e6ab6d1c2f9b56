//! Queues that share a pool, and beside them a plain model: the bytes that have to come out, and when.
//!
//! The caller chooses the operations: in `model.rs` proptest does so, in `fuzz/src/outbound.rs` a fuzzer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tidegate_buffer::{ENTRY_BYTES, Gathered, LoadError, Outbound, Pool, WaterMarks, Writability, WritePosition};

use super::{bytes, entries, file, read, region};

pub(crate) const QUEUES: usize = 3;
pub(crate) const FILE_BYTES: usize = 3_000;
pub(crate) const LENGTH_MAX: usize = 9_000;

/// An operation on the queues. A queue is named by its number.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Write(usize, usize),
    /// A cursor over so many bytes, and the lengths of the writes through it.
    Cursor(usize, usize, Vec<usize>),
    /// A space of so many bytes, of which so many are written; or an error, if they are more.
    WriteWith(usize, usize, usize),
    /// Pieces of these lengths, and a constant one, in one go.
    Pieces(usize, [usize; 3]),
    /// A cursor that gets something and is forgotten instead of dropped.
    Forget(usize, usize),
    /// Cursors on two queues at once, which get pieces in turn.
    TwoCursors(usize, usize, Vec<usize>),
    Link(usize, usize),
    LinkBytes(usize, usize),
    /// Bytes of the program.
    LinkStatic(usize, usize),
    /// A view that two queues share.
    LinkShared(usize, usize, usize),
    /// A region, which may reach beyond the end of the file.
    LinkFile(usize, usize, usize),
    Flush(usize),
    /// Gathers into so many parts, at most so many bytes, of which the kernel takes so many 256ths.
    Send(usize, usize, usize, u8),
    Compact(usize),
    Shrink(usize),
    Settle(usize),
    Clear(usize),
    Take(usize, usize),
    TakeUpTo(usize, usize, usize),
    Load(usize, usize),
    Replace(usize),
    Trim,
}

/// One byte that waits. One in a file knows where; beyond the end of the file it never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Memory(u8),
    /// It need not be charged to the queue: it is of the program, or another queue has it as well.
    Shared(u8),
    File(u64),
}

impl Expected {
    const fn in_memory(self) -> Option<u8> {
        match self {
            Self::Memory(byte) | Self::Shared(byte) => Some(byte),
            Self::File(_) => None,
        }
    }
}

/// The expected behaviour of a queue, in the plainest way.
#[derive(Default)]
struct Model {
    waiting: VecDeque<Expected>,
    flushed: usize,
    sent: u64,
    unwritable: bool,
}

impl Model {
    fn write(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes.iter().copied().map(Expected::Memory));
    }

    fn share(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes.iter().copied().map(Expected::Shared));
    }

    fn advance(&mut self, count: usize) {
        self.waiting.drain(..count);
        self.flushed -= count;
        self.sent += count as u64;
    }

    /// The flushed bytes before the first one of a file.
    fn memory(&self) -> Vec<u8> {
        let flushed = self.waiting.iter().take(self.flushed);
        flushed.map_while(|byte| byte.in_memory()).collect()
    }

    /// How many flushed bytes from `offset` of the file on come first.
    fn in_file(&self, offset: u64) -> usize {
        let flushed = self.waiting.iter().take(self.flushed);
        flushed.zip(offset..).take_while(|(byte, at)| **byte == Expected::File(*at)).count()
    }
}

pub(crate) struct World {
    pool: Pool,
    queues: [Outbound; QUEUES],
    levels: [Writability; QUEUES],
    models: [Model; QUEUES],
    seed: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        let pool = Pool::new();
        Self {
            queues: std::array::from_fn(|_| Outbound::new(&pool)),
            levels: Default::default(),
            models: Default::default(),
            seed: 0,
            pool,
        }
    }

    /// The memory that the queues share.
    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes that were not used before.
    fn fresh(&mut self, length: usize) -> Vec<u8> {
        self.seed += 1;
        bytes(self.seed, length)
    }

    /// Does something to the queues and to the model, and looks whether they agree.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Write(queue, length) => {
                let bytes = self.fresh(length);
                self.queues[queue].write(&bytes);
                self.models[queue].write(&bytes);
            }
            Operation::Cursor(queue, length, ref pieces) => self.write_by_cursor(queue, length, pieces),
            Operation::WriteWith(queue, length, written) => self.write_with(queue, length, written),
            Operation::Pieces(queue, lengths) => self.write_pieces(queue, lengths),
            Operation::Forget(queue, length) => self.forget_cursor(queue, length),
            Operation::TwoCursors(one, two, ref pieces) => self.write_by_two_cursors(one, two, pieces),
            Operation::Link(queue, length) => self.link(queue, length),
            Operation::LinkBytes(queue, length) => self.link_bytes(queue, length),
            Operation::LinkStatic(queue, length) => self.link_static(queue, length),
            Operation::LinkShared(one, two, length) => self.link_shared(one, two, length),
            Operation::LinkFile(queue, offset, length) => self.link_file(queue, offset, length),
            Operation::Flush(queue) => self.flush(queue),
            Operation::Send(queue, parts_max, bytes_max, taken) => {
                self.send(queue, parts_max, bytes_max, taken);
            }
            Operation::Compact(queue) => self.queues[queue].compact(),
            Operation::Shrink(queue) => self.queues[queue].shrink(),
            Operation::Settle(queue) => self.queues[queue].settle(),
            Operation::Clear(queue) => self.clear(queue),
            Operation::Take(to, from) => self.take_flushed(to, from),
            Operation::TakeUpTo(to, from, bytes_max) => self.take_flushed_up_to(to, from, bytes_max),
            Operation::Load(queue, bytes_max) => self.load(queue, bytes_max),
            Operation::Replace(queue) => self.replace(queue),
            Operation::Trim => self.pool.trim(),
        }
        self.check();
    }

    fn write_by_cursor(&mut self, queue: usize, length: usize, lengths: &[usize]) {
        let pieces: Vec<_> = lengths.iter().map(|length| self.fresh(*length)).collect();
        let mut cursor = self.queues[queue].writer(length);
        for piece in &pieces {
            cursor.put(piece);
        }
        drop(cursor);
        self.models[queue].write(&pieces.concat());
    }

    fn write_with(&mut self, queue: usize, length: usize, written: usize) {
        let bytes = self.fresh(written);
        let result = self.queues[queue].write_with(length, |space| {
            assert_eq!(space.len(), length);
            space.get_mut(..written).ok_or("too long")?.copy_from_slice(&bytes);
            Ok(written)
        });
        if written <= length {
            assert_eq!(result, Ok(written));
            self.models[queue].write(&bytes);
        } else {
            assert_eq!(result, Err("too long"));
        }
    }

    fn write_pieces(&mut self, queue: usize, lengths: [usize; 3]) {
        let [first, second, third] = lengths.map(|length| self.fresh(length));
        self.queues[queue].write_pieces((&first[..], b"\r\n", &second[..], &third[..]));
        self.models[queue].write(&[&first[..], b"\r\n", &second, &third].concat());
    }

    fn forget_cursor(&mut self, queue: usize, length: usize) {
        let bytes = self.fresh(length);
        let mut cursor = self.queues[queue].writer(length);
        cursor.put(&bytes);
        std::mem::forget(cursor);
    }

    fn write_by_two_cursors(&mut self, one: usize, two: usize, lengths: &[usize]) {
        let pieces: Vec<_> = lengths.iter().map(|length| self.fresh(*length)).collect();
        let [first, second] = self.queues.get_disjoint_mut([one, two]).unwrap();
        let mut cursors = [first.writer(1), second.writer(1)];
        for (index, piece) in pieces.iter().enumerate() {
            cursors[index % 2].put(piece);
        }
        drop(cursors);
        for (index, piece) in pieces.iter().enumerate() {
            self.models[[one, two][index % 2]].write(piece);
        }
    }

    fn link(&mut self, queue: usize, length: usize) {
        let bytes = self.fresh(length);
        self.queues[queue].link(self.pool.copy(&bytes));
        self.models[queue].write(&bytes);
    }

    fn link_bytes(&mut self, queue: usize, length: usize) {
        let bytes = self.fresh(length);
        self.models[queue].write(&bytes);
        self.queues[queue].link_bytes(Bytes::from(bytes));
    }

    fn link_static(&mut self, queue: usize, length: usize) {
        self.queues[queue].link_static(&PROGRAM[..length]);
        self.models[queue].share(&PROGRAM[..length]);
    }

    fn flush(&mut self, queue: usize) {
        self.queues[queue].flush();
        self.models[queue].flushed = self.models[queue].waiting.len();
    }

    fn link_shared(&mut self, one: usize, two: usize, length: usize) {
        let bytes = self.fresh(length);
        let shared = self.pool.copy(&bytes);
        for queue in [one, two] {
            self.queues[queue].link_shared(shared.clone());
            self.models[queue].share(&bytes);
        }
    }

    fn link_file(&mut self, queue: usize, offset: usize, length: usize) {
        self.queues[queue].link_file(region(&FILE.0, offset as u64, length as u64));
        self.models[queue].waiting.extend((offset..offset + length).map(|at| Expected::File(at as u64)));
    }

    fn clear(&mut self, queue: usize) {
        self.queues[queue].clear();
        let Model { sent, unwritable, .. } = self.models[queue];
        self.models[queue] = Model { sent, unwritable, ..Model::default() };
    }

    fn take_flushed(&mut self, to: usize, from: usize) {
        let [queue, other] = self.queues.get_disjoint_mut([to, from]).unwrap();
        queue.take_flushed(other);
        let [model, other] = self.models.get_disjoint_mut([to, from]).unwrap();
        model.waiting.extend(other.waiting.iter().take(other.flushed));
        other.advance(other.flushed);
    }

    fn take_flushed_up_to(&mut self, to: usize, from: usize, bytes_max: usize) {
        let [queue, other] = self.queues.get_disjoint_mut([to, from]).unwrap();
        let taken = queue.take_flushed_up_to(other, bytes_max as u64) as usize;
        let [model, other] = self.models.get_disjoint_mut([to, from]).unwrap();
        assert_eq!(taken, other.flushed.min(bytes_max));
        model.waiting.extend(other.waiting.iter().take(taken));
        other.advance(taken);
    }

    fn replace(&mut self, queue: usize) {
        self.queues[queue] = Outbound::new(&self.pool);
        self.models[queue] = Model::default();
        self.levels[queue] = Writability::default();
    }

    fn send(&mut self, queue: usize, parts_max: usize, bytes_max: usize, taken: u8) {
        let (real, model) = (&mut self.queues[queue], &mut self.models[queue]);
        let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; 20];
        let offered = match real.gather(&mut parts[..parts_max], bytes_max) {
            Gathered::Nothing => {
                assert_eq!(model.flushed, 0);
                0
            }
            Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
                let (memory, full) = (model.memory(), parts.len() == parts_max);
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                assert!(!bytes.is_empty() && parts.iter().all(|part| !part.is_empty()));
                assert!(full || bytes.len() == memory.len().min(bytes_max.max(1)));
                assert!(bytes.len() <= bytes_max.max(1) && bytes.len() <= memory.len());
                assert_eq!(&bytes[..], &memory[..bytes.len()]);
                bytes.len()
            }
            Gathered::File(region) => {
                let length = usize::try_from(region.length).unwrap();
                assert!(length > 0 && length <= model.in_file(region.offset));
                length
            }
        };
        let count = offered * usize::from(taken) / 255;
        real.advance(count as u64);
        model.advance(count);
    }

    fn load(&mut self, queue: usize, bytes_max: usize) {
        let (real, model) = (&mut self.queues[queue], &mut self.models[queue]);
        let first = model.waiting.front().copied().filter(|_| model.flushed > 0);
        let loaded = real.load_file(bytes_max, read);
        match first {
            Some(Expected::File(offset)) if offset < FILE_BYTES as u64 => {
                assert!(loaded.unwrap());
                let piece = real.front().unwrap();
                assert!(piece.len() <= bytes_max.max(1) && piece.len() <= model.in_file(offset));
                for (byte, from) in model.waiting.iter_mut().zip(&FILE.1[offset as usize..]).take(piece.len()) {
                    *byte = Expected::Memory(*from);
                }
            }
            Some(Expected::File(_)) => assert!(matches!(loaded, Err(LoadError::Short))),
            _ => assert!(!loaded.unwrap()),
        }
    }

    /// Invariants that hold at any time.
    fn check(&mut self) {
        let (mut least, mut most) = (0, 0);
        for ((queue, level), model) in self.queues.iter().zip(&mut self.levels).zip(&mut self.models) {
            assert_eq!(queue.pending(), model.waiting.len() as u64);
            assert_eq!(queue.is_empty(), model.waiting.is_empty());
            assert_eq!(queue.has_flushed(), model.flushed > 0);
            assert_eq!(queue.sent(), WritePosition(model.sent));
            assert_eq!(queue.written(), WritePosition(model.sent + model.waiting.len() as u64));
            let first = model.waiting.front().filter(|_| model.flushed > 0);
            assert_eq!(queue.starts_with_file(), matches!(first, Some(Expected::File(_))));
            match (queue.front(), first) {
                (Some(front), Some(Expected::Memory(_) | Expected::Shared(_))) => {
                    assert!(!front.is_empty() && front.len() <= model.flushed);
                    let mut expected = model.waiting.iter().map(|byte| byte.in_memory());
                    assert!(front.iter().all(|byte| expected.next() == Some(Some(*byte))));
                }
                (front, first) => assert!(front.is_none() && matches!(first, None | Some(Expected::File(_)))),
            }
            level.update(queue.cost(), &WATER);
            model.unwritable = queue.cost() > WATER.high || model.unwritable && queue.cost() >= WATER.low;
            assert_eq!(level.is_writable(), !model.unwritable);
            let entries = entries(queue);
            let in_memory = model.waiting.iter().filter(|byte| matches!(byte, Expected::Memory(_))).count();
            least += entries * ENTRY_BYTES + in_memory;
            most += entries * (ENTRY_BYTES + ENTRY_HOLDS_MAX);
        }
        let used = self.pool.ledger().used();
        assert!((least..=most).contains(&used), "the ledger says {used}, it is {least} to {most}");
    }

    /// Sends the flushed parts, then everything, and looks whether anything is left.
    ///
    /// # Panics
    /// If something is.
    pub(crate) fn finish(mut self) {
        for queue in 0..QUEUES {
            for flush in [false, true] {
                if flush {
                    self.run(&Operation::Flush(queue));
                }
                while self.models[queue].flushed > 0 {
                    self.run(&Operation::Send(queue, 20, usize::MAX, 255));
                }
            }
            // A forgotten cursor may have left an entry; the next thing to be sent takes it along.
            self.run(&Operation::Clear(queue));
            assert_eq!(self.queues[queue].cost(), 0);
        }
        assert_eq!(self.pool.ledger().used(), 0);
    }
}

/// The file of all regions, and its content. One file is enough, since no test writes to it.
pub(crate) static FILE: LazyLock<(Arc<File>, Vec<u8>)> = LazyLock::new(|| {
    let in_file = bytes(77, FILE_BYTES);
    (file(&in_file), in_file)
});

/// Bytes of the program.
static PROGRAM: [u8; LENGTH_MAX] = {
    let (mut bytes, mut at) = ([0; LENGTH_MAX], 0);
    while at < LENGTH_MAX {
        bytes[at] = (at * 7 + at / 251) as u8;
        at += 1;
    }
    bytes
};

/// The most bytes that an entry keeps alive: the space of a write, or, in the two designs that ours is compared with, a
/// whole message.
const ENTRY_HOLDS_MAX: usize = 3 * LENGTH_MAX + 64;

/// The longest space of a write.
pub(crate) const RESERVED_MAX: usize = 20_000;

const _: () = assert!(RESERVED_MAX < ENTRY_HOLDS_MAX);

/// Low enough that queues go past both marks all the time.
const WATER: WaterMarks = WaterMarks::new(6_000, 2_500);
