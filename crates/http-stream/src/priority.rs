//! Priorities (RFC 9218): how urgent a response is, and whether its parts are of use before the rest.

/// The parameters of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether its parts are of use before the rest.
    pub is_incremental: bool,
}

impl Priority {
    /// The parameters of a `Priority` field, a dictionary of structured fields. A value that is not valid, and a parameter
    /// that is not known, are ignored (RFC 9218 §4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self { urgency: URGENCY_DEFAULT, is_incremental: false };
        for member in value.split(|byte| *byte == b',') {
            // Parameters of a member have no meaning.
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

const URGENCY_DEFAULT: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_leniently() {
        for (value, urgency, is_incremental) in [
            ("u=5, i", 5, true),
            ("i,u=0", 0, true),
            ("", 3, false),
            ("u=8", 3, false),
            ("u=-1, i=?0", 3, false),
            ("u=2;x=1, y=\"z\"", 2, false),
            ("i=1", 3, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
