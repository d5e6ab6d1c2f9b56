//! `Running`: names the function that runs, so that the watchdog can name the one that blocks its loop.
//!
//! A function with a route has a label, made when the router comes to its loop. An async function for all other paths may
//! be a whole application, such as a router of axum: its requests are described by method and path.

use tidegate_engine::activity::{Activity, DETAIL_BYTES_MAX, Label};
use tidegate_http1::RequestHead;

use crate::endpoint::{Call, Endpoint};

/// Names a function while it runs.
#[derive(Debug)]
pub(crate) struct Running {
    label: Label,
    /// For [`Label::DETAIL`]. In a box, so that functions with a route move two words.
    detail: Option<Box<Detail>>,
}

/// The method and the path of a request, as far as the watchdog shows them.
#[derive(Debug)]
struct Detail {
    bytes: [u8; DETAIL_BYTES_MAX],
    length: u8,
}

impl Running {
    #[inline]
    pub(crate) fn new(endpoint: &Endpoint, head: &RequestHead) -> Self {
        let label = endpoint.label.get();
        Self { label, detail: (label == Label::DETAIL).then(|| Detail::of(head)) }
    }

    /// Calls `function`, and names it meanwhile. A panic ends the name as well: `function` catches it.
    #[inline]
    pub(crate) fn during<T>(&self, activity: &Activity, function: impl FnOnce() -> T) -> T {
        match &self.detail {
            None => activity.begin(self.label),
            Some(detail) => activity.begin_detail(&detail.bytes[..detail.length.into()]),
        }
        let result = function();
        activity.end();
        result
    }
}

impl Detail {
    #[inline(never)]
    fn of(head: &RequestHead) -> Box<Self> {
        let (mut bytes, mut length) = ([0; DETAIL_BYTES_MAX], 0);
        for piece in [head.method_text().as_bytes(), b" ", head.path_bytes()] {
            let taken = piece.len().min(DETAIL_BYTES_MAX - length);
            bytes[length..length + taken].copy_from_slice(&piece[..taken]);
            length += taken;
        }
        Box::new(Self { bytes, length: length as u8 })
    }
}

/// The label of the function for the paths that no route matches.
pub(crate) fn label_of_fallback(endpoint: &Endpoint, activity: &Activity, paths: &str) -> Label {
    match endpoint.call {
        Call::Sync(_) => activity.label(paths),
        Call::Async(_) | Call::Polled(_) | Call::Interim(_) => Label::DETAIL,
    }
}

const _: () = assert!(DETAIL_BYTES_MAX <= u8::MAX as usize);
