//! `StallLabel`: names the function that runs, so that the watchdog can name the one that blocks its loop.
//!
//! A function with a route has a label, made when the router comes to its loop. An async function for all other paths
//! may be a whole application, such as an axum router: its requests are described by method and path.

use tidegate_engine::activity::{Activity, DETAIL_BYTES_MAX, Label};
use tidegate_http1::RequestHead;

use crate::endpoint::{Call, Endpoint};

/// Names a function while it runs.
#[derive(Debug)]
pub(crate) struct StallLabel {
    label: Label,
    /// For [`Label::DETAIL`]: the method and the path of the request, as far as the watchdog shows them.
    detail: Option<Box<[u8]>>,
}

impl StallLabel {
    #[inline]
    pub(crate) fn new(endpoint: &Endpoint, head: &RequestHead) -> Self {
        let label = endpoint.label.get();
        let detail = || {
            let (bytes, length) = detail(head);
            bytes[..length].into()
        };
        Self { label, detail: (label == Label::DETAIL).then(detail) }
    }

    /// Names the function that is about to be called, without memory for that. It runs until [`Activity::end`].
    #[inline]
    pub(crate) fn begin(activity: &Activity, endpoint: &Endpoint, head: &RequestHead) {
        match endpoint.label.get() {
            Label::DETAIL => begin_detail(activity, head),
            label => activity.begin(label),
        }
    }

    /// For a function that has run on this loop within this dispatch, and is not complete.
    #[cold]
    pub(crate) fn of_last(activity: &Activity, label: Label) -> Self {
        Self { label, detail: (label == Label::DETAIL).then(|| activity.last_detail().into()) }
    }

    /// Calls `function`, and names it meanwhile. A panic ends the name as well: `function` catches it.
    #[inline]
    pub(crate) fn during<T>(&self, activity: &Activity, function: impl FnOnce() -> T) -> T {
        match &self.detail {
            None => activity.begin(self.label),
            Some(detail) => activity.begin_detail(detail),
        }
        let result = function();
        activity.end();
        result
    }
}

/// A head begins with the method, a space, and the path, unless the target has an authority before it.
#[inline]
fn begin_detail(activity: &Activity, head: &RequestHead) {
    match head.start_with_path() {
        Some(start) => activity.begin_detail(start),
        None => begin_composed(activity, head),
    }
}

#[cold]
fn begin_composed(activity: &Activity, head: &RequestHead) {
    let (bytes, length) = detail(head);
    activity.begin_detail(&bytes[..length]);
}

fn detail(head: &RequestHead) -> ([u8; DETAIL_BYTES_MAX], usize) {
    let (mut bytes, mut length) = ([0; DETAIL_BYTES_MAX], 0);
    for piece in [head.method_text().as_bytes(), b" ", head.path_bytes()] {
        let taken = piece.len().min(DETAIL_BYTES_MAX - length);
        bytes[length..length + taken].copy_from_slice(&piece[..taken]);
        length += taken;
    }
    (bytes, length)
}

/// The label of the function for the paths that no route matches.
pub(crate) fn label_of_fallback(endpoint: &Endpoint, activity: &Activity, paths: &str) -> Label {
    match endpoint.call {
        Call::Sync(_) | Call::Interim(_) => activity.label(paths),
        Call::Async(_) | Call::Polled(_) => Label::DETAIL,
    }
}
