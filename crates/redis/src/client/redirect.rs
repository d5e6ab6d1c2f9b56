//! `Redirect`: replies that say that another server executes a command, or that none does at present.
//!
//! None of them follows an execution, so the command may be sent again. A script can fail with the same codes after it has
//! written: Redis appends the script's name to the error of a command in it, and sends an error that the script returns
//! itself as it is. Such errors are no redirects here, except MOVED and ASK of the slot that the command has.

use crate::client::error_kind::ErrorKind;
use crate::client::slots::{SLOTS, address};

/// Another server, or another time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot belongs to that server from now on.
    Moved(u16, Box<str>),
    /// That server has the keys of this command, after ASKING.
    Ask(Box<str>),
    /// No server executes the command at present, or this one is no master any more.
    Later,
    /// A replica cannot answer: its master can.
    ToMaster,
}

/// The redirect in the text of an error from a server at this host.
pub(crate) fn redirect_of(text: &[u8], host: &str, is_replica: bool) -> Option<Redirect> {
    let mut words = text.split(|byte| *byte == b' ');
    let code = words.next()?;
    let kind = ErrorKind::of_code(code);
    if kind == ErrorKind::Moved {
        let mut next = || std::str::from_utf8(words.next()?).ok();
        let slot = next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        let (name, port) = next()?.rsplit_once(':')?;
        if next().is_some() {
            return None;
        }
        let address = address(Some(name), port.parse().ok()?, host)?;
        return Some(if code == b"ASK" { Redirect::Ask(address) } else { Redirect::Moved(slot, address) });
    }
    let is_from_script = memchr::memmem::find(text, b"script").is_some();
    match kind {
        _ if is_from_script => None,
        ErrorKind::ReadOnly | ErrorKind::MasterDown | ErrorKind::Loading if is_replica => Some(Redirect::ToMaster),
        ErrorKind::ReadOnly | ErrorKind::TryAgain | ErrorKind::ClusterDown => Some(Redirect::Later),
        _ => None,
    }
}

impl Redirect {
    /// Whether the error cannot be one that a script has returned after it has written.
    pub(crate) fn is_certain_for_script(&self, text: &[u8], slot: Option<u16>) -> bool {
        match self {
            Self::Moved(..) | Self::Ask(_) => {
                let of_text = text.split(|byte| *byte == b' ').nth(1).and_then(|slot| std::str::from_utf8(slot).ok());
                of_text.and_then(|slot| slot.parse().ok()) == slot && slot.is_some()
            }
            Self::Later | Self::ToMaster => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_read_and_texts_that_lie_are_none() {
        let of = |text: &str| redirect_of(text.as_bytes(), "10.0.0.9", false);
        assert_eq!(of("MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved(3999, "127.0.0.1:6381".into())));
        assert_eq!(of("MOVED 0 :6381"), Some(Redirect::Moved(0, "10.0.0.9:6381".into())));
        assert_eq!(of("ASK 1 ::1:6381"), Some(Redirect::Ask("[::1]:6381".into())));
        assert_eq!(of("TRYAGAIN Multiple keys request during rehashing of slot"), Some(Redirect::Later));
        assert_eq!(of("READONLY You can't write against a read only replica."), Some(Redirect::Later));
        for text in [
            "MOVED",
            "MOVED 1",
            "MOVED 16384 a:1",
            "MOVED -1 a:1",
            "MOVED 1 a",
            "MOVED 1 a:0",
            "MOVED 1 a:65536",
            "MOVED 1 ?:1",
            "ASK 1 a:1 b",
            "READONLY You can't write against a read only replica. script: abc, on @user_script:1.",
            "LOADING Redis is loading the dataset in memory",
            "ERR unknown command",
            "",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(redirect_of(b"LOADING x", "h", true), Some(Redirect::ToMaster));
    }
}
