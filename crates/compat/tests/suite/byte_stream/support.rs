//! Tasks and notes for many tests, and the two stacks over which the tests run.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::Limits;
use tidegate_testkit::filters::ToyTls;

pub(crate) type Served = Result<(), Box<dyn std::error::Error>>;

/// The reports of tasks to their test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Vec<String>>>);

impl Journal {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.borrow_mut().push(text.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Polls a future once, in the current task, and drops it.
pub(crate) async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Limits with these water marks.
pub(crate) fn marks(high: u64, low: u64) -> Limits {
    Limits { water: WaterMarks::new(high, low), ..Limits::default() }
}

/// A pipeline whose plain bytes are a stream, and the wire form of its peer.
pub(crate) trait Stack: Copy + 'static {
    type P: Pipeline<In = Slice, Out = Payload, Codec = Raw>;
    fn pipeline(self) -> Self::P;
    /// Everything that a peer sends to transfer `plain`, with its end in good order.
    fn wire(self, plain: &[u8]) -> Vec<u8>;
    /// The plain form of everything that was written.
    fn plain(self, wire: &[u8]) -> Vec<u8>;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl Stack for Plain {
    type P = Raw;

    fn pipeline(self) -> Raw {
        Raw
    }

    fn wire(self, plain: &[u8]) -> Vec<u8> {
        plain.to_vec()
    }

    fn plain(self, wire: &[u8]) -> Vec<u8> {
        wire.to_vec()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Toy;

const KEY: u8 = 0xa5;

impl Stack for Toy {
    type P = Over<ToyTls, Raw>;

    fn pipeline(self) -> Self::P {
        Over::new(ToyTls::server(KEY), Raw)
    }

    fn wire(self, plain: &[u8]) -> Vec<u8> {
        ToyTls::client_wire(KEY, plain, 5)
    }

    fn plain(self, wire: &[u8]) -> Vec<u8> {
        ToyTls::decode_wire(KEY, wire).0
    }
}
