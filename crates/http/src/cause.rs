//! `Cause`: why this crate has made an error, for `DebugPages`.
//!
//! A response has the number of a cause; the texts are in a table of the thread, which keeps the last ones. A release build
//! has neither: there a cause is no byte.

use std::fmt::Display;

/// The cause of an error, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cause(#[cfg(debug_assertions)] u32);

#[cfg(debug_assertions)]
impl Cause {
    /// No cause.
    pub(crate) const NONE: Self = Self(0);

    #[cold]
    pub(crate) fn new(text: impl Display) -> Self {
        TEXTS.with_borrow_mut(|texts| {
            let number = texts.back().map_or(1, |(last, _): &(u32, String)| last.wrapping_add(1).max(1));
            if texts.len() == TEXTS_MAX {
                texts.pop_front();
            }
            texts.push_back((number, text.to_string()));
            Self(number)
        })
    }

    /// The text, unless many errors have come after this one.
    pub(crate) fn text(self) -> Option<String> {
        TEXTS.with_borrow(|texts| texts.iter().find(|(number, _)| *number == self.0).map(|(_, text)| text.clone()))
    }
}

#[cfg(not(debug_assertions))]
impl Cause {
    pub(crate) const NONE: Self = Self();

    pub(crate) fn new(_text: impl Display) -> Self {
        Self()
    }

    pub(crate) fn text(self) -> Option<String> {
        None
    }
}

#[cfg(debug_assertions)]
thread_local! {
    /// The last texts, with their numbers, which begin at one.
    static TEXTS: std::cell::RefCell<std::collections::VecDeque<(u32, String)>> = const { std::cell::RefCell::new(std::collections::VecDeque::new()) };
}

/// Texts that a thread keeps. A response is complete long before so many others.
#[cfg(debug_assertions)]
const TEXTS_MAX: usize = 64;

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_the_last_causes() {
        let causes: Vec<_> = (0..2 * TEXTS_MAX).map(Cause::new).collect();
        assert_eq!(causes[0].text(), None);
        assert_eq!(causes[TEXTS_MAX].text().as_deref(), Some("64"));
        assert_eq!(causes[2 * TEXTS_MAX - 1].text().as_deref(), Some("127"));
        assert_eq!(Cause::NONE.text(), None);
    }
}
