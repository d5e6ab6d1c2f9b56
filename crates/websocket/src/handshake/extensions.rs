//! Negotiation of permessage-deflate (RFC 7692 §7.1).

use super::HandshakeError;
use super::fields::{list, token};
use crate::config::Deflate;
use crate::permessage_deflate::{Parameters, WINDOW_BITS_MIN};

/// The name of the extension.
const NAME: &str = "permessage-deflate";

/// The parameters of one offer, or of a response, as they stand there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExtensionParameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// In an offer the value is optional.
    client_max_window_bits: Option<Option<u8>>,
}

/// An element of the field.
#[derive(Debug, PartialEq, Eq)]
enum Extension {
    Deflate(ExtensionParameters),
    /// permessage-deflate with parameters that are unknown, repeated or invalid: it is declined.
    Invalid,
    Other,
}

fn parse(element: &[u8]) -> Extension {
    let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case(NAME.as_bytes())) {
        return Extension::Other;
    }
    let mut stated = ExtensionParameters::default();
    for part in parts {
        let (name, value) = match part.iter().position(|&byte| byte == b'=') {
            Some(at) => (part[..at].trim_ascii(), Some(unquoted(part[at + 1..].trim_ascii()))),
            None => (part, None),
        };
        let is_new = match (token(name), value) {
            (Some("server_no_context_takeover"), None) => {
                !std::mem::replace(&mut stated.server_no_context_takeover, true)
            }
            (Some("client_no_context_takeover"), None) => {
                !std::mem::replace(&mut stated.client_no_context_takeover, true)
            }
            (Some("server_max_window_bits"), Some(value)) => match bits(value) {
                Some(bits) => stated.server_max_window_bits.replace(bits).is_none(),
                None => false,
            },
            (Some("client_max_window_bits"), None) => stated.client_max_window_bits.replace(None).is_none(),
            (Some("client_max_window_bits"), Some(value)) => match bits(value) {
                Some(bits) => stated.client_max_window_bits.replace(Some(bits)).is_none(),
                None => false,
            },
            _ => false,
        };
        if !is_new {
            return Extension::Invalid;
        }
    }
    Extension::Deflate(stated)
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

/// 8 to 15, without a leading zero.
fn bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// The offers of permessage-deflate in a field of a request, in order of preference.
pub(super) fn offers(value: &[u8]) -> impl Iterator<Item = ExtensionParameters> {
    list(value).filter_map(|element| match parse(element) {
        Extension::Deflate(stated) => Some(stated),
        Extension::Invalid | Extension::Other => None,
    })
}

/// The server's answer to the first offer that it can accept: the agreed parameters, and the field's value.
pub(super) fn answer(offers: &[ExtensionParameters], settings: &Deflate) -> Option<(Parameters, String)> {
    // The compressor has no window of 8 bits.
    let offer = offers.iter().find(|offer| offer.server_max_window_bits != Some(8))?;
    let window_bits = settings.window_bits.clamp(WINDOW_BITS_MIN, 15);
    let agreed = Parameters {
        server_no_context_takeover: offer.server_no_context_takeover || !settings.takeover,
        client_no_context_takeover: offer.client_no_context_takeover || !settings.peer_takeover,
        server_max_window_bits: offer.server_max_window_bits.unwrap_or(15).min(window_bits),
        client_max_window_bits: 15,
    };
    let mut value = NAME.to_owned();
    if agreed.server_no_context_takeover {
        value.push_str("; server_no_context_takeover");
    }
    if agreed.client_no_context_takeover {
        value.push_str("; client_no_context_takeover");
    }
    if agreed.server_max_window_bits < 15 || offer.server_max_window_bits.is_some() {
        value.push_str(&format!("; server_max_window_bits={}", agreed.server_max_window_bits));
    }
    Some((agreed, value))
}

/// A client's offer. The server may choose the window of its compressor: some servers accept no other offer.
pub(super) fn offer(settings: &Deflate) -> String {
    let mut value = NAME.to_owned();
    if !settings.takeover {
        value.push_str("; client_no_context_takeover");
    }
    if !settings.peer_takeover {
        value.push_str("; server_no_context_takeover");
    }
    value.push_str("; client_max_window_bits");
    value
}

/// The agreed parameters of the response to such an offer; `None` if it has no extension.
pub(super) fn agreed<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    settings: Option<&Deflate>,
) -> Result<Option<Parameters>, HandshakeError> {
    let mut agreed = None;
    for element in values.flat_map(list) {
        let (Extension::Deflate(stated), Some(settings), None) = (parse(element), settings, agreed) else {
            return Err(HandshakeError::Extension);
        };
        let ignores = !settings.peer_takeover && !stated.server_no_context_takeover;
        // A response has the value (RFC 7692 §7.1.2.2).
        let client_max_window_bits = match stated.client_max_window_bits {
            None => 15,
            Some(Some(bits)) => bits,
            Some(None) => return Err(HandshakeError::Extension),
        };
        if ignores {
            return Err(HandshakeError::Extension);
        }
        agreed = Some(Parameters {
            server_no_context_takeover: stated.server_no_context_takeover,
            client_no_context_takeover: stated.client_no_context_takeover || !settings.takeover,
            server_max_window_bits: stated.server_max_window_bits.unwrap_or(15),
            client_max_window_bits,
        });
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(field: &str, settings: &Deflate) -> Option<String> {
        let offers: Vec<_> = offers(field.as_bytes()).collect();
        answer(&offers, settings).map(|(_, value)| value)
    }

    #[test]
    fn a_server_answers_the_first_offer_that_it_can_accept() {
        let default = Deflate::default();
        let both = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        for (field, expected) in [
            ("permessage-deflate", Some(both.to_owned())),
            ("PERMESSAGE-DEFLATE ; client_max_window_bits", Some(both.to_owned())),
            ("x-webkit-deflate-frame, permessage-deflate; client_max_window_bits=10", Some(both.to_owned())),
            ("permessage-deflate; server_max_window_bits=10", Some(format!("{both}; server_max_window_bits=10"))),
            ("permessage-deflate; server_max_window_bits=\"15\"", Some(format!("{both}; server_max_window_bits=15"))),
            ("permessage-deflate; server_max_window_bits=8, permessage-deflate", Some(both.to_owned())),
            ("permessage-deflate; server_max_window_bits=8", None),
            ("permessage-deflate; server_max_window_bits", None),
            ("permessage-deflate; server_max_window_bits=16", None),
            ("permessage-deflate; server_max_window_bits=09", None),
            ("permessage-deflate; client_max_window_bits=7", None),
            ("permessage-deflate; server_no_context_takeover=1", None),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
            ("permessage-deflate; unknown", None),
            ("permessage-deflate;", None),
            ("permessage-bzip2", None),
            ("", None),
        ] {
            assert_eq!(answered(field, &default), expected, "{field}");
        }
        let keeps = Deflate { takeover: true, peer_takeover: true, window_bits: 12, ..Deflate::default() };
        let answer = |field| answered(field, &keeps).unwrap();
        assert_eq!(answer("permessage-deflate"), "permessage-deflate; server_max_window_bits=12");
        let asked = answer("permessage-deflate; server_no_context_takeover");
        assert_eq!(asked, "permessage-deflate; server_no_context_takeover; server_max_window_bits=12");
    }

    #[test]
    fn a_client_accepts_its_own_offer() {
        let default = Deflate::default();
        let accepted = |field: &str| agreed([field.as_bytes()].into_iter(), Some(&default));
        let parameters = accepted("permessage-deflate; server_no_context_takeover; server_max_window_bits=9").unwrap();
        let parameters = parameters.unwrap();
        assert!(parameters.server_no_context_takeover && parameters.client_no_context_takeover);
        assert_eq!((parameters.server_max_window_bits, parameters.client_max_window_bits), (9, 15));
        let narrow = accepted("permessage-deflate; server_no_context_takeover; client_max_window_bits=10").unwrap();
        assert_eq!(narrow.unwrap().client_max_window_bits, 10);
        assert_eq!(agreed(std::iter::empty(), Some(&default)), Ok(None));
        for field in [
            "permessage-deflate",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits=7",
            "permessage-deflate; server_no_context_takeover; x",
            "permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover",
            "permessage-bzip2",
        ] {
            assert_eq!(accepted(field), Err(HandshakeError::Extension), "{field}");
        }
        let field = b"permessage-deflate; server_no_context_takeover";
        assert_eq!(agreed([&field[..]].into_iter(), None), Err(HandshakeError::Extension), "nothing was offered");
    }
}
