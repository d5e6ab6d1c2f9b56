//! Tasks for many tests, and the two stacks over which the tests run.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::{Channel, ChannelError, Limits};
use tidegate_testkit::filters::ToyTls;

use crate::journal::Journal;

pub(crate) type Served = Result<(), Box<dyn std::error::Error>>;

/// The place where a task leaves a channel for the test.
#[derive(Debug)]
pub(crate) struct Place<T>(Rc<RefCell<Option<T>>>);

impl<T> Place<T> {
    pub(crate) fn new() -> Self {
        Self(Rc::default())
    }

    pub(crate) fn put(&self, what: T) {
        *self.0.borrow_mut() = Some(what);
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Notes the result of `recv`.
pub(crate) fn note(journal: &Journal, come: &Result<Option<Slice>, ChannelError>) {
    journal.note(match come {
        Ok(Some(message)) => message.escape_ascii().to_string(),
        Ok(None) => "none".to_owned(),
        Err(error) => format!("error: {error}"),
    });
}

/// Notes every message, and how it ends.
pub(crate) async fn listen<C: Pipeline<In = Slice>>(journal: Journal, mut channel: Channel<C>) -> Served {
    loop {
        let come = channel.recv().await;
        note(&journal, &come);
        if !matches!(come, Ok(Some(_))) {
            return Ok(());
        }
    }
}

/// Sends every message back.
pub(crate) async fn echo<C: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<C>) -> Served {
    while let Some(message) = channel.recv().await? {
        channel.send(message.into())?;
    }
    Ok(())
}

/// Limits with these water marks; both caps are four times the high one.
pub(crate) fn marks(high: u64, low: u64) -> Limits {
    Limits { water: WaterMarks::new(high, low), ..Limits::default() }
}

/// A codec of lines, and the wire form of its peer.
pub(crate) trait Stack: Copy + 'static {
    type C: Pipeline<In = Slice, Out = Payload>;
    fn codec(self) -> Self::C;
    /// The first bytes of the peer.
    fn hello(self) -> Vec<u8>;
    fn say(self, plain: &[u8]) -> Vec<u8>;
    /// The bytes with which the peer ends in good order.
    fn goodbye(self) -> Vec<u8>;
    /// The decoded form of all written bytes.
    fn decoded(self, wire: &[u8]) -> Vec<u8>;
}

#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Stack for Plain {
    type C = Lines;

    fn codec(self) -> Lines {
        Lines::new()
    }

    fn hello(self) -> Vec<u8> {
        Vec::new()
    }

    fn say(self, plain: &[u8]) -> Vec<u8> {
        plain.to_vec()
    }

    fn goodbye(self) -> Vec<u8> {
        Vec::new()
    }

    fn decoded(self, wire: &[u8]) -> Vec<u8> {
        wire.to_vec()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Toy;

pub(crate) const KEY: u8 = 0xa5;

impl Stack for Toy {
    type C = Over<ToyTls, Lines>;

    fn codec(self) -> Self::C {
        Over::new(ToyTls::server(KEY), Lines::new())
    }

    fn hello(self) -> Vec<u8> {
        b"TOY?".to_vec()
    }

    fn say(self, plain: &[u8]) -> Vec<u8> {
        let wire = ToyTls::client_wire(KEY, plain, 5);
        wire[4..wire.len() - 2].to_vec()
    }

    fn goodbye(self) -> Vec<u8> {
        vec![0, 0]
    }

    fn decoded(self, wire: &[u8]) -> Vec<u8> {
        ToyTls::decode_wire(KEY, wire).0
    }
}

/// The memory of the driver and the pool without connections.
pub(crate) const SCRATCH_BYTES: usize = 84 * 1024;
