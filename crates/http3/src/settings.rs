//! SETTINGS (RFC 9114 §7.2.4, RFC 9204 §5, RFC 9220 §3, RFC 9297 §2.1.1).

use crate::connection::ConnectionRole;
use crate::error::{Error, Exceeded, Violation};
use crate::frame::{FrameHead, kind, reserved};
use crate::limits::Config;
use crate::varint;

/// The settings of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes: the largest field section that the side accepts. `None` if it has no
    /// limit.
    pub field_section_bytes_max: Option<u64>,
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY, in bytes.
    pub table_bytes_max: u64,
    /// SETTINGS_QPACK_BLOCKED_STREAMS: how many streams may wait for entries of the table.
    pub blocked_streams_max: u64,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL: a server allows extended CONNECT.
    pub extended_connect: bool,
    /// SETTINGS_H3_DATAGRAM: the side accepts HTTP datagrams.
    pub datagrams: bool,
    /// SETTINGS_WEBTRANSPORT_MAX_SESSIONS: how many sessions of WebTransport a side accepts at a time; 0 is none. Browsers know
    /// it by the numbers of several drafts, and it is sent with all of them.
    pub webtransport_sessions_max: u64,
}

impl Default for Settings {
    /// The values of a side that sends an empty SETTINGS frame.
    fn default() -> Self {
        Self {
            field_section_bytes_max: None,
            table_bytes_max: 0,
            blocked_streams_max: 0,
            extended_connect: false,
            datagrams: false,
            webtransport_sessions_max: 0,
        }
    }
}

impl Settings {
    /// Those of a server with this configuration. Clients remember them for early data (RFC 9114 §7.2.4.2): their
    /// [frame](Self::write) is for `quic::ServerConfig::application_settings`.
    #[must_use]
    pub fn of_server(config: &Config) -> Self {
        Self::of(config, ConnectionRole::Server)
    }

    pub(crate) fn of(config: &Config, role: ConnectionRole) -> Self {
        let limits = config.limits();
        Self {
            field_section_bytes_max: Some(limits.head_bytes_max.into()),
            extended_connect: role == ConnectionRole::Server && config.stream().extends_connect(),
            datagrams: config.accepts_datagrams(),
            webtransport_sessions_max: config.webtransport_limits().map_or(0, |limits| limits.sessions_max.into()),
            table_bytes_max: limits.qpack_table_bytes_max.into(),
            blocked_streams_max: match limits.qpack_table_bytes_max {
                0 => 0,
                _ => limits.qpack_blocked_streams_max.into(),
            },
        }
    }

    /// Reads the payload of a SETTINGS frame with at most `settings_max` settings.
    ///
    /// # Errors
    /// [`Violation::Settings`] for a setting that comes twice, has a number that is reserved for HTTP/2, or has a value that it cannot have;
    /// [`Violation::FrameLayout`] if the payload ends within a setting; [`Exceeded::Settings`].
    pub fn parse(mut payload: &[u8], settings_max: u32) -> Result<Self, Error> {
        let mut settings = Self::default();
        let mut numbers = Vec::new();
        while !payload.is_empty() {
            let (number, length) = varint::read(payload).ok_or(Violation::FrameLayout)?;
            payload = &payload[length..];
            let (value, length) = varint::read(payload).ok_or(Violation::FrameLayout)?;
            payload = &payload[length..];
            if numbers.len() >= settings_max as usize {
                return Err(Exceeded::Settings.into());
            }
            if numbers.contains(&number) {
                return Err(Violation::Settings.into());
            }
            numbers.push(number);
            settings.set(number, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, number: u64, value: u64) -> Result<(), Violation> {
        match number {
            // Reserved for HTTP/2 settings that have no use here (RFC 9114 §7.2.4.1).
            0 | 2..=5 => return Err(Violation::Settings),
            QPACK_MAX_TABLE_CAPACITY => self.table_bytes_max = value,
            MAX_FIELD_SECTION_SIZE => self.field_section_bytes_max = Some(value),
            QPACK_BLOCKED_STREAMS => self.blocked_streams_max = value,
            ENABLE_CONNECT_PROTOCOL => self.extended_connect = switch(value)?,
            H3_DATAGRAM => self.datagrams = switch(value)?,
            ENABLE_WEBTRANSPORT => self.accept_sessions(value.min(1)),
            WEBTRANSPORT_MAX_SESSIONS | WT_MAX_SESSIONS => self.accept_sessions(value),
            _ => {}
        }
        Ok(())
    }

    fn accept_sessions(&mut self, number: u64) {
        self.webtransport_sessions_max = self.webtransport_sessions_max.max(number);
    }

    /// Appends the SETTINGS frame. With a `grease` it has a reserved setting, which every peer ignores.
    pub fn write(&self, grease: Option<u64>, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(32);
        let mut put = |number: u64, value: u64| {
            varint::write(number, &mut payload);
            varint::write(value, &mut payload);
        };
        let or_zero =
            [(QPACK_MAX_TABLE_CAPACITY, self.table_bytes_max), (QPACK_BLOCKED_STREAMS, self.blocked_streams_max)];
        for (number, value) in or_zero.into_iter().filter(|(_, value)| *value > 0) {
            put(number, value);
        }
        if let Some(bytes) = self.field_section_bytes_max {
            put(MAX_FIELD_SECTION_SIZE, bytes);
        }
        if self.extended_connect {
            put(ENABLE_CONNECT_PROTOCOL, 1);
        }
        if self.datagrams {
            put(H3_DATAGRAM, 1);
        }
        if self.webtransport_sessions_max > 0 {
            put(ENABLE_WEBTRANSPORT, 1);
            put(WEBTRANSPORT_MAX_SESSIONS, self.webtransport_sessions_max);
            put(WT_MAX_SESSIONS, self.webtransport_sessions_max);
            WT_CREDITS.into_iter().for_each(|number| put(number, CREDIT));
        }
        if let Some(number) = grease {
            put(reserved(number), number % 64);
        }
        FrameHead { kind: kind::SETTINGS, length: payload.len() as u64 }.write(out);
        out.extend_from_slice(&payload);
    }
}

/// A value that is 0 or 1.
fn switch(value: u64) -> Result<bool, Violation> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(Violation::Settings),
    }
}

const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
const MAX_FIELD_SECTION_SIZE: u64 = 6;
const QPACK_BLOCKED_STREAMS: u64 = 7;
const ENABLE_CONNECT_PROTOCOL: u64 = 8;
const H3_DATAGRAM: u64 = 0x33;

/// SETTINGS_ENABLE_WEBTRANSPORT of draft 2, which Chrome and aioquic know.
const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
/// SETTINGS_WEBTRANSPORT_MAX_SESSIONS of draft 7, which Chrome knows.
const WEBTRANSPORT_MAX_SESSIONS: u64 = 0xc671_706a;
/// SETTINGS_WT_MAX_SESSIONS of drafts 13 and 14, without which Safari opens no session.
const WT_MAX_SESSIONS: u64 = 0x14e9_cd29;
/// SETTINGS_WT_INITIAL_MAX_DATA, _STREAMS_UNI and _STREAMS_BIDI of the same drafts: Safari sends nothing without credit for a
/// session. The windows and limits of QUIC are those that count, so the credit is never used up.
const WT_CREDITS: [u64; 3] = [0x2b61, 0x2b64, 0x2b65];
const CREDIT: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(settings: &[(u64, u64)]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (number, value) in settings {
            varint::write(*number, &mut payload);
            varint::write(*value, &mut payload);
        }
        payload
    }

    #[test]
    fn settings_are_read_as_written() {
        let settings = Settings {
            field_section_bytes_max: Some(16_384),
            table_bytes_max: 4_096,
            blocked_streams_max: 16,
            extended_connect: true,
            datagrams: true,
            webtransport_sessions_max: 16,
        };
        for (settings, grease) in [(settings, Some(7)), (settings, None), (Settings::default(), Some(u64::MAX))] {
            let mut wire = Vec::new();
            settings.write(grease, &mut wire);
            let (head, length) = FrameHead::read(&wire).expect("a frame");
            assert_eq!((head.kind, head.length as usize), (kind::SETTINGS, wire.len() - length));
            assert_eq!(Settings::parse(&wire[length..], 16), Ok(settings));
        }
    }

    #[test]
    fn numbers_of_http2_and_wrong_values_are_refused() {
        for number in [0, 2, 3, 4, 5] {
            assert_eq!(Settings::parse(&payload(&[(number, 0)]), 8), Err(Violation::Settings.into()), "{number}");
        }
        for number in [8, 0x33] {
            assert_eq!(Settings::parse(&payload(&[(number, 2)]), 8), Err(Violation::Settings.into()), "{number}");
        }
        assert_eq!(Settings::parse(&payload(&[(6, 1), (6, 1)]), 8), Err(Violation::Settings.into()), "twice");
        assert_eq!(Settings::parse(&payload(&[(0x21, 1), (0x21, 2)]), 8), Err(Violation::Settings.into()));
        assert!(Settings::parse(&payload(&[(0x21, 1), (9, 2), (varint::MAX, varint::MAX)]), 8).is_ok(), "unknown ones");
    }

    #[test]
    fn a_payload_that_ends_within_a_setting_is_refused() {
        let whole = payload(&[(6, 16_384), (0x33, 1)]);
        for end in 0..whole.len() {
            let expected = matches!(end, 0 | 5);
            assert_eq!(Settings::parse(&whole[..end], 8).is_ok(), expected, "{end}");
        }
    }

    #[test]
    fn settings_have_a_bound() {
        let many: Vec<_> = (0..9).map(|number| (reserved(number), 0)).collect();
        assert_eq!(Settings::parse(&payload(&many), 8), Err(Exceeded::Settings.into()));
        assert!(Settings::parse(&payload(&many[..8]), 8).is_ok());
    }
}
