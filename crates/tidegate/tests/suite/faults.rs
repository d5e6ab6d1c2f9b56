//! Errors that derive `Fault`.

use std::error::Error;

use tidegate::codec::{Blame, Fault};
use tidegate::framing::FramingError;

const BYTES_MAX: usize = 7;

/// One variant of each form.
#[derive(Debug, PartialEq, Fault)]
#[fault(crate = tidegate::codec)]
pub(crate) enum Wrong {
    /// Without fields.
    #[fault(peer, "a {{bare}} error \u{7e} of the peer")]
    Bare,
    /// Fields by number, out of order, and one that no text names.
    #[fault(caller, "{2} before {0:#04x}, {0}")]
    Numbered(u8, u16, &'static str),
    /// Fields by name, and a constant.
    #[fault(limit, "{found:?} and not {BYTES_MAX}")]
    Named { found: Option<u32>, other: u8 },
    #[fault(system, "no more {0}")]
    Generic(String, Result<u8, String>),
    #[fault(from)]
    Framing(FramingError),
}

#[test]
fn each_variant_has_its_blame_and_its_text() {
    let named = Wrong::Named { found: Some(8), other: 1 };
    for (error, blame, text) in [
        (Wrong::Bare, Blame::Peer, "a {bare} error ~ of the peer"),
        (Wrong::Numbered(3, 4, "ebb"), Blame::Caller, "ebb before 0x03, 3"),
        (named, Blame::Limit, "Some(8) and not 7"),
        (Wrong::Generic("descriptors".into(), Ok(1)), Blame::System, "no more descriptors"),
    ] {
        assert_eq!((error.blame(), error.to_string()), (blame, text.to_owned()), "{error:?}");
    }
}

#[test]
fn an_error_within_decides_the_blame_and_the_text() {
    fn decode() -> Result<(), Wrong> {
        Err(FramingError::TooLong { bytes_max: 3 })?
    }
    let (error, within) = (decode().unwrap_err(), FramingError::TooLong { bytes_max: 3 });
    assert_eq!(error, Wrong::Framing(within));
    assert_eq!((error.blame(), error.to_string()), (within.blame(), within.to_string()));
    let boxed: Box<dyn Error + Send + Sync> = error.into();
    assert!(boxed.is::<Wrong>());
}
