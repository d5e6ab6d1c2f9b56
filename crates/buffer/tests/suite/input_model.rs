//! Inputs that share a scratch beside a model of their bytes, under random operations.

use proptest::prelude::*;
use tidegate_buffer::{HEADROOM_BYTES, Input, Pool, RECEIVE_BYTES_MAX, Scratch, Slice};

use crate::input::{receive, used};
use crate::properties;
use crate::support::bytes;

/// An operation on inputs that share a scratch. An input is named by its number.
#[derive(Debug, Clone)]
enum Operation {
    Receive(usize, usize),
    /// Received bytes go to one input, and the same view to another one.
    ReceiveTwice(usize, usize, usize),
    Append(usize, usize),
    Consume(usize, usize),
    /// Keeps so many bytes as a view, detached or not.
    Take(usize, usize, bool),
    /// Appends a view that is kept to an input.
    Return(usize, usize),
    Forget(usize),
    Compact(usize),
    Escape(usize, bool),
    ReleaseScratch,
    /// Writes to the unread bytes in place if they have no other view; copies them before if it may.
    Change(usize, bool),
    /// Moves bytes to another input, of which it skips so many first.
    Move(usize, usize, usize, usize),
}

const INPUTS: usize = 3;

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let input = 0..INPUTS;
    let length = prop_oneof![4 => 0..300_usize, 2 => 3_900..4_300_usize, 1 => HEADROOM_BYTES - 99..HEADROOM_BYTES + 99,
        1 => 0..RECEIVE_BYTES_MAX];
    let index = 0..8_usize;
    prop_oneof![
        6 => (input.clone(), length.clone()).prop_map(|(i, n)| Receive(i, n)),
        2 => (input.clone(), 1..INPUTS, length.clone()).prop_map(|(i, j, n)| ReceiveTwice(i, (i + j) % INPUTS, n)),
        3 => (input.clone(), length.clone()).prop_map(|(i, n)| Append(i, n)),
        4 => (input.clone(), length.clone()).prop_map(|(i, n)| Consume(i, n)),
        4 => (input.clone(), length.clone(), any::<bool>()).prop_map(|(i, n, d)| Take(i, n, d)),
        6 => (input.clone(), any::<bool>()).prop_map(|(i, copies)| Change(i, copies)),
        4 => (input.clone(), 1..INPUTS, 0..100_usize, length)
            .prop_map(|(i, j, skipped, n)| Move(i, (i + j) % INPUTS, skipped, n)),
        2 => (input.clone(), index.clone()).prop_map(|(i, k)| Return(i, k)),
        3 => index.prop_map(Forget),
        4 => input.clone().prop_map(Compact),
        1 => (input, any::<bool>()).prop_map(|(i, on)| Escape(i, on)),
        1 => Just(ReleaseScratch),
    ]
}

struct World {
    pool: Pool,
    scratch: Scratch,
    inputs: [(Input, Vec<u8>); INPUTS],
    /// Taken views, and the bytes that they must show while they live.
    kept: Vec<(Slice, Vec<u8>)>,
    seed: usize,
}

impl World {
    fn new() -> Self {
        let pool = Pool::new();
        Self { scratch: Scratch::new(&pool), pool, inputs: Default::default(), kept: Vec::new(), seed: 0 }
    }

    fn receive(&mut self, length: usize) -> (Slice, Vec<u8>) {
        self.seed += 1;
        let bytes = bytes(self.seed, length);
        (receive(&mut self.scratch, &bytes), bytes)
    }

    fn append(&mut self, input: usize, (slice, bytes): (Slice, Vec<u8>)) {
        let (real, model) = &mut self.inputs[input];
        real.append(slice, &self.pool);
        model.extend(bytes);
    }

    fn run(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Receive(input, length) => {
                let received = self.receive(length);
                self.append(input, received);
            }
            Operation::ReceiveTwice(first, second, length) => {
                let received = self.receive(length);
                self.append(first, received.clone());
                self.append(second, received);
            }
            Operation::Append(input, length) => {
                self.seed += 1;
                let bytes = bytes(self.seed, length);
                self.append(input, (self.pool.copy(&bytes), bytes));
            }
            Operation::Consume(input, length) => {
                let (real, model) = &mut self.inputs[input];
                let length = length.min(model.len());
                real.consume(length);
                model.drain(..length);
            }
            Operation::Take(input, length, detach) => {
                let (real, model) = &mut self.inputs[input];
                let length = length.min(model.len());
                let slice = real.take(length);
                let slice = if detach { slice.detach() } else { slice };
                self.kept.push((slice, model.drain(..length).collect()));
            }
            Operation::Return(input, index) if index < self.kept.len() => {
                let kept = self.kept[index].clone();
                self.append(input, kept);
            }
            Operation::Forget(index) if index < self.kept.len() => drop(self.kept.swap_remove(index)),
            Operation::Return(..) | Operation::Forget(_) => {}
            Operation::Compact(input) => {
                let (real, model) = &mut self.inputs[input];
                real.compact(&self.pool);
                prop_assert!(real.memory_bytes() <= 16 * model.len() + 512);
            }
            Operation::Escape(input, on) => self.inputs[input].0.set_escaping(on),
            Operation::ReleaseScratch => self.scratch.release(),
            Operation::Change(input, copies) => self.change(input, copies),
            Operation::Move(from, to, skipped, length) => self.move_bytes(from, to, skipped, length),
        }
        self.check()
    }

    fn change(&mut self, input: usize, copies: bool) {
        self.seed += 1;
        let (real, model) = &mut self.inputs[input];
        let unread = if copies { Some(real.make_mut(&self.pool)) } else { real.bytes_mut() };
        if let Some(unread) = unread {
            *model = bytes(self.seed, model.len());
            unread.copy_from_slice(model);
        }
    }

    fn move_bytes(&mut self, from: usize, to: usize, skipped: usize, length: usize) {
        let [(wire, from), (plain, to)] = self.inputs.get_disjoint_mut([from, to]).expect("two inputs");
        let start = skipped.min(from.len());
        let end = (start + length).min(from.len());
        wire.move_to(start..end, plain, &self.pool);
        to.extend(&from[start..end]);
        from.drain(..end);
    }

    /// Compares the inputs and the views that are kept with their models.
    fn check(&self) -> Result<(), TestCaseError> {
        for (real, model) in &self.inputs {
            prop_assert_eq!((real.len(), real.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(real.bytes(), &model[..]);
            prop_assert_eq!((real.len(), real.is_empty()), (model.len(), model.is_empty()));
        }
        for (slice, bytes) in &self.kept {
            prop_assert_eq!(&**slice, &bytes[..]);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(properties::config())]

    #[test]
    fn inputs_that_share_a_scratch_show_the_received_bytes(operations in prop::collection::vec(operation(), 1..80)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation)?;
        }
        let World { pool, scratch, inputs, kept, .. } = world;
        drop((scratch, inputs, kept));
        prop_assert_eq!(used(&pool), 0);
    }

    #[test]
    fn messages_that_escape_are_the_same_and_cost_at_most_sixteen_times_their_bytes(
        batches in prop::collection::vec(prop::collection::vec(0..6_000_usize, 1..8), 1..6),
        longest in prop::sample::select(vec![2, 30, 300, 6_000_usize]),
        ahead in 0..200_usize,
    ) {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut inputs = [Input::new(), Input::new()];
        inputs[1].set_escaping(true);
        let (mut kept, mut seed) = (Vec::new(), 0);
        for lengths in &batches {
            seed += 1;
            let lengths: Vec<_> = lengths.iter().map(|length| length % longest).collect();
            // The rest of a batch is a part of the first message of the next.
            let batch = bytes(seed, lengths.iter().sum::<usize>() + ahead);
            let mut views = [Vec::new(), Vec::new()];
            for (input, views) in inputs.iter_mut().zip(&mut views) {
                input.append(receive(&mut scratch, &batch), &pool);
                views.extend(lengths.iter().map(|length| input.take(*length)));
                input.compact(&pool);
            }
            prop_assert_eq!(&views[0], &views[1]);
            let [_, escaped] = views;
            kept.extend(escaped);
        }
        prop_assert_eq!(inputs[0].bytes(), inputs[1].bytes());
        drop((scratch, inputs));
        let all: usize = kept.iter().map(|message| message.len()).sum();
        let headers = 64 * kept.len();
        prop_assert!(used(&pool) <= 16 * all + headers + 16, "{} for {all}", used(&pool));
    }
}
