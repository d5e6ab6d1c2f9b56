//! `Activity`: the application code that a loop executes now, so that the watchdog can name it.
//!
//! A loop that hangs reports nothing, so it publishes in advance: a protocol that calls functions of an application
//! stores a label before each call, and clears it afterwards. That is one store each way. A call that no label
//! describes well gets the label [`Label::DETAIL`] and a few bytes of text, such as the path of its request. The
//! watchdog's thread reads both while the loop hangs, when they do not change; a label read at any other time may be
//! torn, and is not used.
//!
//! A turn that was slow, and has ended, is logged with the call that began last in it. From then on the loop measures calls
//! for a while, and a slow turn is logged with its longest call: reading the clock costs more than most calls, so a loop
//! whose turns are short does not read it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The code that a loop executes now. A clone belongs to the same loop. Protocols that call functions of an application
/// use it; applications have no need to.
///
/// ```
/// use tidegate::engine::activity::{Activity, Label};
///
/// let activity = Activity::of_this_loop();
/// let route = activity.label("GET /tides");
/// activity.begin(route);
/// assert_eq!(activity.current().as_deref(), Some("GET /tides"));
/// activity.begin_detail(b"GET /ebb");
/// assert_eq!(activity.current().as_deref(), Some("GET /ebb"));
/// activity.end();
/// assert_eq!(activity.current(), None);
/// ```
#[derive(Clone, Default)]
pub struct Activity(Arc<PublishedActivity>);

/// Names something that a loop executes. It belongs to the [`Activity`] that has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

impl Label {
    /// A call that [`Activity::begin_detail`] describes.
    pub const DETAIL: Self = Self(1);
    /// Nothing that has a name.
    pub const NONE: Self = Self(0);
}

#[derive(Default)]
struct PublishedActivity {
    /// The number of a [`Label`].
    label: AtomicU32,
    detail_bytes: AtomicU32,
    detail: [AtomicU64; DETAIL_WORDS],
    /// Whether calls are measured.
    is_measuring: AtomicBool,
    /// The call that has begun while calls are measured, and the longest one of this turn.
    measured: Mutex<CallTimes>,
    /// The texts of labels from [`FIRST_LABEL`] on.
    texts: Mutex<LabelTexts>,
}

#[derive(Default)]
struct LabelTexts {
    in_order: Vec<Arc<str>>,
    /// The place of each text: a table of 10,000 routes asks for as many labels.
    places: HashMap<Arc<str>, u32>,
}

impl LabelTexts {
    /// The place of a text, which is added unless there are too many.
    fn place(&mut self, text: &str) -> Option<u32> {
        if let Some(place) = self.places.get(text) {
            return Some(*place);
        }
        let place = Some(self.in_order.len()).filter(|place| *place < LABELS_MAX)? as u32;
        let text: Arc<str> = text.into();
        self.in_order.push(text.clone());
        self.places.insert(text, place);
        Some(place)
    }
}

#[derive(Default)]
struct CallTimes {
    begun: Option<Instant>,
    longest: Duration,
    name: Option<String>,
}

impl Activity {
    /// The label of a text. The same text has the same label, so repeated rebuilds of routes add none. Beyond
    /// [`LABELS_MAX`] texts the label is [`Label::NONE`].
    #[must_use]
    pub fn label(&self, text: &str) -> Label {
        let mut texts = self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.place(text).map_or(Label::NONE, |place| Label(FIRST_LABEL + place))
    }

    /// A call begins. It ends with [`end`](Self::end), or where the next one begins.
    #[inline]
    pub fn begin(&self, label: Label) {
        if self.0.is_measuring.load(Relaxed) {
            self.measure_begin();
        }
        self.0.label.store(label.0, Relaxed);
    }

    /// A call begins that a text describes: of it the first [`DETAIL_BYTES_MAX`] bytes.
    pub fn begin_detail(&self, text: &[u8]) {
        let text = &text[..text.len().min(DETAIL_BYTES_MAX)];
        let (words, rest) = text.as_chunks();
        for (place, word) in self.0.detail.iter().zip(words) {
            place.store(u64::from_le_bytes(*word), Relaxed);
        }
        if let Some(place) = self.0.detail.get(words.len()) {
            let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            place.store(last, Relaxed);
        }
        self.0.detail_bytes.store(text.len() as u32, Relaxed);
        self.begin(Label::DETAIL);
    }

    /// The text that [`begin_detail`](Self::begin_detail) has stored last, on the loop's own thread.
    #[must_use]
    pub fn last_detail(&self) -> Vec<u8> {
        let words = self.0.detail.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        words.take(self.0.detail_bytes.load(Relaxed) as usize).collect()
    }

    /// The call that began last has ended.
    #[inline]
    pub fn end(&self) {
        if self.0.is_measuring.load(Relaxed) {
            self.measure_end();
        }
        self.0.label.store(self.0.label.load(Relaxed) | ENDED, Relaxed);
    }

    /// The call that has begun and not ended.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        self.name(self.0.label.load(Relaxed))
    }

    /// A turn begins, in which no call has begun.
    pub(crate) fn begin_turn(&self) {
        self.0.label.store(Label::NONE.0, Relaxed);
        if self.0.is_measuring.load(Relaxed) {
            *self.measured() = CallTimes::default();
        }
    }

    /// The call to name if the turn was slow: the longest one, with its time, if calls are measured, or else the one that
    /// began last.
    pub(crate) fn of_slow_turn(&self) -> Option<(String, Option<Duration>)> {
        let mut measured = self.measured();
        let longest = measured.longest;
        match measured.name.take() {
            Some(name) => Some((name, Some(longest))),
            None => self.name(self.0.label.load(Relaxed) & !ENDED).map(|name| (name, None)),
        }
    }

    /// Measures calls from now on, or no longer.
    pub(crate) fn measure(&self, is_measuring: bool) {
        self.0.is_measuring.store(is_measuring, Relaxed);
        *self.measured() = CallTimes::default();
    }

    #[cold]
    fn measure_begin(&self) {
        self.measure_end();
        self.measured().begun = Some(Instant::now());
    }

    #[cold]
    fn measure_end(&self) {
        let mut measured = self.measured();
        let Some(begun) = measured.begun.take() else { return };
        let took = begun.elapsed();
        if took > measured.longest {
            measured.longest = took;
            measured.name = self.name(self.0.label.load(Relaxed));
        }
    }

    fn measured(&self) -> std::sync::MutexGuard<'_, CallTimes> {
        self.0.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, label: u32) -> Option<String> {
        if label & ENDED != 0 {
            return None;
        }
        match Label(label) {
            Label::NONE => None,
            Label::DETAIL => Some(String::from_utf8_lossy(&self.last_detail()).into_owned()),
            Label(number) => {
                let texts = self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
                texts.in_order.get((number - FIRST_LABEL) as usize).map(|text| text.to_string())
            }
        }
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activity").field(&self.current()).finish()
    }
}

/// Texts for which a loop has labels.
pub const LABELS_MAX: usize = 65_536;

/// Bytes of a text that describes one call.
pub const DETAIL_BYTES_MAX: usize = DETAIL_WORDS * 8;

const DETAIL_WORDS: usize = 8;
/// The first label with a text.
const FIRST_LABEL: u32 = 2;
/// Is added to the label of a call that has ended.
const ENDED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_the_same_label() {
        let activity = Activity::default();
        let (one, other) = (activity.label("GET /a"), activity.label("GET /b"));
        assert_ne!(one, other);
        assert_eq!(activity.label("GET /a"), one);
        activity.begin(other);
        assert_eq!(activity.clone().current().as_deref(), Some("GET /b"));
    }

    #[test]
    fn a_detail_is_cut_off_at_its_bound_and_a_shorter_one_replaces_it_whole() {
        let activity = Activity::default();
        activity.begin_detail(&[b'x'; DETAIL_BYTES_MAX + 1]);
        assert_eq!(activity.current().map(|text| text.len()), Some(DETAIL_BYTES_MAX));
        for text in ["", "7 bytes", "8 bytes.", "9 bytes.."] {
            activity.begin_detail(text.as_bytes());
            assert_eq!(activity.current().as_deref(), Some(text));
        }
    }

    #[test]
    fn a_slow_turn_names_the_last_call_and_the_longest_one_once_calls_are_measured() {
        const HOUR: Duration = Duration::from_secs(3600);
        let activity = Activity::default();
        let (slow, quick) = (activity.label("GET /slow"), activity.label("GET /quick"));
        let turn = || {
            activity.begin_turn();
            activity.begin(slow);
            // The call began an hour ago, if calls are measured: no delay of the machine makes another one longer.
            if let Some(begun) = &mut activity.measured().begun {
                *begun -= HOUR;
            }
            activity.end();
            activity.begin(quick);
            activity.end();
            assert_eq!(activity.current(), None);
        };
        turn();
        assert_eq!(activity.of_slow_turn(), Some(("GET /quick".to_owned(), None)));
        activity.measure(true);
        turn();
        let (name, took) = activity.of_slow_turn().unwrap();
        assert_eq!(name, "GET /slow");
        assert!(took.is_some_and(|took| took >= HOUR), "{took:?}");
        activity.begin_turn();
        assert_eq!(activity.of_slow_turn(), None, "no call has begun in this turn");
        activity.measure(false);
        turn();
        assert_eq!(activity.of_slow_turn(), Some(("GET /quick".to_owned(), None)));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let activity = Activity::default();
        activity.begin_detail(b"GET /\xff");
        assert_eq!(activity.current().as_deref(), Some("GET /\u{fffd}"));
    }
}
