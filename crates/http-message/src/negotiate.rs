//! `preferred_encoding`: which content coding a response has, by the request's `Accept-Encoding` (RFC 9110 §12.5.3).
//!
//! A value of a peer is parsed in one pass without memory of its own. Elements beyond the first 64 are ignored.

/// A content coding (RFC 9110 §8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// `br`: Brotli, RFC 7932.
    Brotli,
    /// `zstd`: Zstandard, RFC 8878.
    Zstd,
    /// `gzip`, RFC 1952.
    Gzip,
    /// `deflate`: the zlib format, RFC 1950.
    Deflate,
    /// No coding.
    Identity,
}

impl Encoding {
    /// All codings, identity as the last.
    pub const ALL: [Self; 5] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Deflate, Self::Identity];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Identity => "identity",
        }
    }

    /// The coding with this name, in any case.
    #[doc(hidden)]
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            // RFC 9110 §8.4.1.3
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|encoding| name.eq_ignore_ascii_case(encoding.as_str().as_bytes()))
    }
}

/// The coding of `offered` that the peer prefers; `None` if it accepts none of them, which is a 406 if the server insists.
///
/// `accept` is the value of `Accept-Encoding`; without one the peer gets the content as it is, if that is offered. Among
/// codings of equal weight, the first of `offered` is chosen. [`Encoding::Identity`] is acceptable unless the peer refuses
/// it, and comes last unless the peer gives it a weight.
///
/// ```
/// use tidegate::http::{Encoding, preferred_encoding};
///
/// let offered = [Encoding::Brotli, Encoding::Gzip, Encoding::Identity];
/// assert_eq!(preferred_encoding(Some(b"gzip;q=0.8, br"), &offered), Some(Encoding::Brotli));
/// assert_eq!(preferred_encoding(Some(b"compress"), &offered), Some(Encoding::Identity));
/// assert_eq!(preferred_encoding(Some(b"identity;q=0"), &[Encoding::Identity]), None);
/// ```
#[must_use]
pub fn preferred_encoding(accept: Option<&[u8]>, offered: &[Encoding]) -> Option<Encoding> {
    let mut accepted = AcceptedEncodings::new();
    if let Some(accept) = accept {
        accepted.add(accept);
    }
    accepted.preferred(offered)
}

/// The codings that a peer accepts: the weights of its `Accept-Encoding` fields.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedEncodings {
    /// By [`Encoding`], in thousandths; `None` for one that is not named.
    weights: [Option<u16>; Encoding::ALL.len()],
    /// The weight of `*`.
    others: Option<u16>,
    /// How many elements may follow.
    elements_left: u8,
    is_present: bool,
}

impl Default for AcceptedEncodings {
    fn default() -> Self {
        Self::new()
    }
}

impl AcceptedEncodings {
    /// Those of a request without the field.
    pub const fn new() -> Self {
        Self { weights: [None; Encoding::ALL.len()], others: None, elements_left: ELEMENTS_MAX, is_present: false }
    }

    /// Adds the value of one field. A malformed element is ignored.
    pub fn add(&mut self, value: &[u8]) {
        self.is_present = true;
        for element in value.split(|&byte| byte == b',') {
            let Some(left) = self.elements_left.checked_sub(1) else { return };
            self.elements_left = left;
            let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let Some(weight) = parts.next().map_or(Some(WEIGHT_MAX), weight) else { continue };
            if parts.next().is_some() {
                continue;
            }
            let place = match name {
                b"*" => &mut self.others,
                name => match Encoding::from_name(name) {
                    Some(encoding) => &mut self.weights[encoding as usize],
                    None => continue,
                },
            };
            // The first of two equal elements counts.
            place.get_or_insert(weight);
        }
    }

    /// The coding of `offered` that the peer prefers.
    pub fn preferred(&self, offered: &[Encoding]) -> Option<Encoding> {
        let mut best = None;
        for &encoding in offered {
            let weight = self.weight(encoding);
            if weight > 0 && best.is_none_or(|(_, most)| weight > most) {
                best = Some((encoding, weight));
            }
        }
        best.map(|(encoding, _)| encoding)
    }

    /// In parts of a thousandth, so that an implied identity is below every explicit weight.
    fn weight(&self, encoding: Encoding) -> u32 {
        if !self.is_present {
            return u32::from(encoding == Encoding::Identity);
        }
        match self.weights[encoding as usize].or(self.others) {
            Some(weight) => u32::from(weight) * 2,
            None => u32::from(encoding == Encoding::Identity),
        }
    }
}

/// The weight of a parameter `q=VALUE` in thousandths, if it is one (RFC 9110 §12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else { return None };
    let (whole, fraction) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => WEIGHT_MAX,
        _ => return None,
    };
    for (digit, value) in fraction.iter().zip([100, 10, 1]) {
        thousandths += u16::from(char::from(*digit).to_digit(10)? as u8) * value;
    }
    (thousandths <= WEIGHT_MAX).then_some(thousandths)
}

const WEIGHT_MAX: u16 = 1000;

/// Elements of `Accept-Encoding` that are considered. No client sends a tenth as many.
const ELEMENTS_MAX: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Encoding; 4] = [Encoding::Brotli, Encoding::Zstd, Encoding::Gzip, Encoding::Identity];

    fn preferred(accept: &str) -> Option<Encoding> {
        preferred_encoding(Some(accept.as_bytes()), &ALL)
    }

    #[test]
    fn the_highest_weight_is_preferred_and_then_the_first_offered() {
        for (accept, expected) in [
            ("br", Encoding::Brotli),
            ("gzip, zstd, br", Encoding::Brotli),
            ("br;q=1, gzip;q=0.8", Encoding::Brotli),
            ("br;q=0.5,gzip;q=0.501", Encoding::Gzip),
            ("GZIP", Encoding::Gzip),
            ("x-gzip", Encoding::Gzip),
            (" zstd ; q=0.3 ,, br ;q=0.2", Encoding::Zstd),
            ("*", Encoding::Brotli),
            ("br;q=0, *;q=0.1", Encoding::Zstd),
            ("br;q=0.001", Encoding::Brotli),
            ("br;q=0.5, identity;q=0.6", Encoding::Identity),
            ("br;q=0", Encoding::Identity),
            ("", Encoding::Identity),
            ("compress, snappy", Encoding::Identity),
            ("*;q=0, gzip", Encoding::Gzip),
        ] {
            assert_eq!(preferred(accept), Some(expected), "{accept}");
        }
        assert_eq!(preferred_encoding(None, &ALL), Some(Encoding::Identity));
        assert_eq!(preferred_encoding(None, &[Encoding::Gzip]), None);
    }

    #[test]
    fn refused_identity_leaves_nothing() {
        for accept in ["identity;q=0", "*;q=0", "*;q=0.0, br;q=0", "identity;q=0.000, br;q=0"] {
            assert_eq!(preferred_encoding(Some(accept.as_bytes()), &[Encoding::Identity]), None, "{accept}");
        }
        assert_eq!(preferred("identity;q=0, gzip"), Some(Encoding::Gzip));
    }

    #[test]
    fn malformed_elements_are_ignored() {
        for accept in [
            "br;q=2",
            "br;q=1.001",
            "br;q=0.5555",
            "br;q=-1",
            "br;q=",
            "br;q",
            "br;q=.5",
            "br;q=0,5",
            "br;x=1",
            "br;q=1;q=1",
            "br br",
            ";;;;",
            "br;q=0x1",
            "\u{e9}",
            "br;q=1.5",
        ] {
            assert_eq!(preferred(accept), Some(Encoding::Identity), "{accept}");
        }
    }

    #[test]
    fn elements_beyond_the_bound_are_ignored() {
        let many = "x,".repeat(usize::from(ELEMENTS_MAX) - 1);
        assert_eq!(preferred(&format!("{many}br")), Some(Encoding::Brotli));
        assert_eq!(preferred(&format!("{many}x,br")), Some(Encoding::Identity));
    }
}
