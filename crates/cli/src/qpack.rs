//! The flags of dynamic QPACK tables (RFC 9204).

use clap::Args;
use tidegate::{http, http3};

use crate::config::{ListenLimits, QPACK_TABLE_BYTES_MAX};

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct QpackOptions {
    /// Bytes of the dynamic QPACK table that a client may fill (SETTINGS_QPACK_MAX_TABLE_CAPACITY, RFC 9204); each connection
    /// whose client fills it costs as much memory, up to four times as much in the worst case [default: 0, no table]
    #[arg(long, value_name = "BYTES", requires = "http3", value_parser = table_bytes())]
    qpack_max_table_capacity: Option<u32>,
    /// Requests of a connection that may wait for entries of that table (SETTINGS_QPACK_BLOCKED_STREAMS) [default: 0]
    #[arg(long, value_name = "N", requires = "qpack_max_table_capacity")]
    qpack_blocked_streams: Option<u16>,
    /// Bytes of the dynamic QPACK table that the server fills for responses, of those that the client permits; each such
    /// connection costs as much memory, and lengths show fields that repeat [default: 0, no table]
    #[arg(long, value_name = "BYTES", requires = "http3", value_parser = table_bytes())]
    qpack_encoder_table_capacity: Option<u32>,
}

impl QpackOptions {
    /// Adds the flags to the limits of their listener.
    pub(crate) fn add_to(&self, limits: &mut ListenLimits) {
        limits.qpack_max_table_capacity = self.qpack_max_table_capacity;
        limits.qpack_blocked_streams = self.qpack_blocked_streams.map(u32::from);
        limits.qpack_encoder_table_capacity = self.qpack_encoder_table_capacity;
    }
}

/// The tables of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QpackTables {
    max_table_capacity: u32,
    blocked_streams: u32,
    encoder_table_capacity: u32,
}

impl QpackTables {
    pub(crate) fn of(limits: &ListenLimits) -> Self {
        Self {
            max_table_capacity: limits.qpack_max_table_capacity.unwrap_or(0),
            blocked_streams: limits.qpack_blocked_streams.unwrap_or(0),
            encoder_table_capacity: limits.qpack_encoder_table_capacity.unwrap_or(0),
        }
    }

    pub(crate) fn set_in(self, limits: &mut http::Limits) {
        limits.qpack_table_bytes_max = self.max_table_capacity;
        limits.qpack_blocked_streams_max = self.blocked_streams;
        limits.qpack_encoder_bytes_max = self.encoder_table_capacity;
    }

    /// HTTP/3 limits with these tables; the others are defaults.
    pub(crate) fn limits_of_http3(self) -> http3::Limits {
        http3::Limits {
            qpack_table_bytes_max: self.max_table_capacity,
            qpack_blocked_streams_max: self.blocked_streams,
            qpack_encoder_bytes_max: self.encoder_table_capacity,
            ..http3::Limits::default()
        }
    }
}

fn table_bytes() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(QPACK_TABLE_BYTES_MAX))
}
