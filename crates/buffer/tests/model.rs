//! Outbound queues that share a pool, against a plain model: the bytes that have to come out, and when.

mod support;

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use support::{bytes, entries, file, read, region};
use tidegate_buffer::{ENTRY_BYTES, Gathered, LoadError, Mark, Outbound, Pool, SEGMENT_BYTES};

const QUEUES: usize = 3;
const FILE_BYTES: usize = 3_000;
const LENGTH_MAX: usize = 9_000;

/// What is done to the queues. A queue is named by its number.
#[derive(Debug, Clone)]
enum Operation {
    Write(usize, usize),
    /// A cursor over so many bytes, and the lengths of what is put through it.
    Cursor(usize, usize, Vec<usize>),
    /// A cursor that gets something and is forgotten instead of dropped.
    Forget(usize, usize),
    /// Cursors on two queues at once, which get pieces in turn.
    TwoCursors(usize, usize, Vec<usize>),
    Link(usize, usize),
    LinkBytes(usize, usize),
    /// A region, which may reach beyond the end of the file.
    LinkFile(usize, usize, usize),
    Flush(usize),
    /// Gathers into so many parts, at most so many bytes, of which the kernel takes so many 256ths.
    Send(usize, usize, usize, u8),
    Clear(usize),
    Take(usize, usize),
    Load(usize, usize),
    Replace(usize),
    Trim,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let queue = 0..QUEUES;
    let length = prop_oneof![4 => 0..200_usize, 2 => 1_900..2_200_usize, 1 => 0..LENGTH_MAX];
    let two = (queue.clone(), 1..QUEUES).prop_map(|(one, step)| (one, (one + step) % QUEUES));
    let pieces = prop::collection::vec(length.clone(), 0..5);
    let bytes_max = prop_oneof![0..300_usize, 0..20_000_usize, Just(usize::MAX)];
    prop_oneof![
        6 => (queue.clone(), length.clone()).prop_map(|(q, n)| Write(q, n)),
        4 => (queue.clone(), 0..5_000_usize, pieces.clone()).prop_map(|(q, n, p)| Cursor(q, n, p)),
        1 => (queue.clone(), 0..SEGMENT_BYTES).prop_map(|(q, n)| Forget(q, n)),
        2 => (two.clone(), pieces).prop_map(|((a, b), p)| TwoCursors(a, b, p)),
        3 => (queue.clone(), length.clone()).prop_map(|(q, n)| Link(q, n)),
        3 => (queue.clone(), length).prop_map(|(q, n)| LinkBytes(q, n)),
        2 => (queue.clone(), 0..FILE_BYTES, 0..FILE_BYTES / 2).prop_map(|(q, o, n)| LinkFile(q, o, n)),
        6 => queue.clone().prop_map(Flush),
        8 => (queue.clone(), 1..20_usize, bytes_max.clone(), any::<u8>()).prop_map(|(q, p, b, t)| Send(q, p, b, t)),
        1 => queue.clone().prop_map(Clear),
        3 => two.prop_map(|(to, from)| Take(to, from)),
        2 => (queue.clone(), bytes_max).prop_map(|(q, b)| Load(q, b)),
        1 => queue.prop_map(Replace),
        1 => Just(Trim),
    ]
}

/// One byte that waits. One in a file knows where; beyond the end of the file it never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Memory(u8),
    File(u64),
}

/// What a queue has to do, in the plainest way.
#[derive(Default)]
struct Model {
    waiting: VecDeque<Expected>,
    flushed: usize,
    sent: u64,
}

impl Model {
    fn write(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes.iter().copied().map(Expected::Memory));
    }

    fn advance(&mut self, count: usize) {
        self.waiting.drain(..count);
        self.flushed -= count;
        self.sent += count as u64;
    }

    /// The flushed bytes before the first one of a file.
    fn memory(&self) -> Vec<u8> {
        let flushed = self.waiting.iter().take(self.flushed);
        flushed.map_while(|byte| if let Expected::Memory(byte) = byte { Some(*byte) } else { None }).collect()
    }

    /// How many flushed bytes from `offset` of the file on come first.
    fn in_file(&self, offset: u64) -> usize {
        let flushed = self.waiting.iter().take(self.flushed);
        flushed.zip(offset..).take_while(|(byte, at)| **byte == Expected::File(*at)).count()
    }
}

struct World {
    pool: Pool,
    queues: [Outbound; QUEUES],
    models: [Model; QUEUES],
    file: Arc<File>,
    in_file: Vec<u8>,
    seed: usize,
}

impl World {
    fn new() -> Self {
        let pool = Pool::new();
        let in_file = bytes(77, FILE_BYTES);
        Self {
            queues: std::array::from_fn(|_| Outbound::new(&pool)),
            models: Default::default(),
            file: file(&in_file),
            in_file,
            seed: 0,
            pool,
        }
    }

    /// Bytes that were not used before.
    fn fresh(&mut self, length: usize) -> Vec<u8> {
        self.seed += 1;
        bytes(self.seed, length)
    }

    fn run(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Write(queue, length) => {
                let bytes = self.fresh(length);
                self.queues[queue].write(&bytes);
                self.models[queue].write(&bytes);
            }
            Operation::Cursor(queue, length, ref pieces) => {
                let pieces: Vec<_> = pieces.iter().map(|length| self.fresh(*length)).collect();
                let mut cursor = self.queues[queue].writer(length);
                for piece in &pieces {
                    cursor.put(piece);
                }
                drop(cursor);
                self.models[queue].write(&pieces.concat());
            }
            Operation::Forget(queue, length) => {
                let bytes = self.fresh(length);
                let mut cursor = self.queues[queue].writer(length);
                cursor.put(&bytes);
                std::mem::forget(cursor);
            }
            Operation::TwoCursors(one, two, ref pieces) => {
                let pieces: Vec<_> = pieces.iter().map(|length| self.fresh(*length)).collect();
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
            Operation::Link(queue, length) => {
                let bytes = self.fresh(length);
                self.queues[queue].link(self.pool.copy(&bytes));
                self.models[queue].write(&bytes);
            }
            Operation::LinkBytes(queue, length) => {
                let bytes = self.fresh(length);
                self.models[queue].write(&bytes);
                self.queues[queue].link_bytes(Bytes::from(bytes));
            }
            Operation::LinkFile(queue, offset, length) => {
                self.queues[queue].link_file(region(&self.file, offset as u64, length as u64));
                self.models[queue].waiting.extend((offset..offset + length).map(|at| Expected::File(at as u64)));
            }
            Operation::Flush(queue) => {
                self.queues[queue].flush();
                self.models[queue].flushed = self.models[queue].waiting.len();
            }
            Operation::Send(queue, parts_max, bytes_max, taken) => {
                self.send(queue, parts_max, bytes_max, taken)?;
            }
            Operation::Clear(queue) => {
                self.queues[queue].clear();
                self.models[queue] = Model { sent: self.models[queue].sent, ..Model::default() };
            }
            Operation::Take(to, from) => {
                let [queue, other] = self.queues.get_disjoint_mut([to, from]).unwrap();
                queue.take_flushed(other);
                let [model, other] = self.models.get_disjoint_mut([to, from]).unwrap();
                model.waiting.extend(other.waiting.iter().take(other.flushed));
                other.advance(other.flushed);
            }
            Operation::Load(queue, bytes_max) => self.load(queue, bytes_max)?,
            Operation::Replace(queue) => {
                self.queues[queue] = Outbound::new(&self.pool);
                self.models[queue] = Model::default();
            }
            Operation::Trim => self.pool.trim(),
        }
        self.check()
    }

    fn send(&mut self, queue: usize, parts_max: usize, bytes_max: usize, taken: u8) -> Result<(), TestCaseError> {
        let (real, model) = (&mut self.queues[queue], &mut self.models[queue]);
        let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; 20];
        let offered = match real.gather(&mut parts[..parts_max], bytes_max) {
            Gathered::Nothing => {
                prop_assert_eq!(model.flushed, 0);
                0
            }
            Gathered::Parts(parts) => {
                let (memory, full) = (model.memory(), parts.len() == parts_max);
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                prop_assert!(!bytes.is_empty() && parts.iter().all(|part| !part.is_empty()));
                prop_assert!(full || bytes.len() == memory.len().min(bytes_max.max(1)));
                prop_assert!(bytes.len() <= bytes_max.max(1) && bytes.len() <= memory.len());
                prop_assert_eq!(&bytes[..], &memory[..bytes.len()]);
                bytes.len()
            }
            Gathered::File(region) => {
                let length = usize::try_from(region.length).unwrap();
                prop_assert!(length > 0 && length <= model.in_file(region.offset));
                length
            }
        };
        let count = offered * usize::from(taken) / 255;
        real.advance(count as u64);
        model.advance(count);
        Ok(())
    }

    fn load(&mut self, queue: usize, bytes_max: usize) -> Result<(), TestCaseError> {
        let (real, model) = (&mut self.queues[queue], &mut self.models[queue]);
        let first = model.waiting.front().copied().filter(|_| model.flushed > 0);
        let loaded = real.load_file(bytes_max, read);
        match first {
            Some(Expected::File(offset)) if offset < FILE_BYTES as u64 => {
                prop_assert!(loaded.unwrap());
                let piece = real.front().unwrap();
                prop_assert!(piece.len() <= bytes_max.max(1) && piece.len() <= model.in_file(offset));
                for (byte, from) in model.waiting.iter_mut().zip(&self.in_file[offset as usize..]).take(piece.len()) {
                    *byte = Expected::Memory(*from);
                }
            }
            Some(Expected::File(_)) => prop_assert!(matches!(loaded, Err(LoadError::Short))),
            _ => prop_assert!(!loaded.unwrap()),
        }
        Ok(())
    }

    /// What has to hold at any time.
    fn check(&self) -> Result<(), TestCaseError> {
        let (mut least, mut most) = (0, 0);
        for (queue, model) in self.queues.iter().zip(&self.models) {
            prop_assert_eq!(queue.pending(), model.waiting.len() as u64);
            prop_assert_eq!(queue.is_empty(), model.waiting.is_empty());
            prop_assert_eq!(queue.has_flushed(), model.flushed > 0);
            prop_assert_eq!(queue.sent(), Mark(model.sent));
            prop_assert_eq!(queue.written(), Mark(model.sent + model.waiting.len() as u64));
            let first = model.waiting.front().filter(|_| model.flushed > 0);
            prop_assert_eq!(queue.starts_with_file(), matches!(first, Some(Expected::File(_))));
            match (queue.front(), first) {
                (Some(front), Some(Expected::Memory(_))) => {
                    prop_assert!(!front.is_empty() && model.memory().starts_with(front));
                }
                (front, first) => prop_assert!(front.is_none() && !matches!(first, Some(Expected::Memory(_)))),
            }
            let entries = entries(queue);
            let in_memory = model.waiting.iter().filter(|byte| matches!(byte, Expected::Memory(_))).count();
            least += entries * ENTRY_BYTES + in_memory;
            most += entries * (ENTRY_BYTES + 4096.max(LENGTH_MAX + 64));
        }
        let used = self.pool.ledger().used();
        prop_assert!((least..=most).contains(&used), "the ledger says {used}, it is {least} to {most}");
        Ok(())
    }

    /// Sends what was flushed, then everything, and looks whether anything is left.
    fn finish(mut self) -> Result<(), TestCaseError> {
        for queue in 0..QUEUES {
            for flush in [false, true] {
                if flush {
                    self.run(&Operation::Flush(queue))?;
                }
                while self.models[queue].flushed > 0 {
                    self.run(&Operation::Send(queue, 20, usize::MAX, 255))?;
                }
            }
            // A forgotten cursor may have left an entry; the next thing to be sent takes it along.
            self.run(&Operation::Clear(queue))?;
            prop_assert_eq!(self.queues[queue].cost(), 0);
        }
        prop_assert_eq!(self.pool.ledger().used(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(support::config())]

    #[test]
    fn queues_that_share_a_pool_do_what_the_model_does(operations in prop::collection::vec(operation(), 1..120)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation)?;
        }
        world.finish()?;
    }

    #[test]
    fn dropping_queues_in_any_state_gives_everything_back(operations in prop::collection::vec(operation(), 1..60)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation)?;
        }
        let pool = world.pool.clone();
        drop(world);
        prop_assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
fn the_model_reads_the_file_that_the_queues_read() {
    let world = World::new();
    let mut bytes = vec![0; FILE_BYTES];
    world.file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, world.in_file);
}
