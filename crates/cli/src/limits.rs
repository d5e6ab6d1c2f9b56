//! The flags of `serve` that bound a peer's use of resources: deadlines of any protocol, and rates.

use std::time::Duration;

use clap::Args;
use tidegate::{Deadlines, Limits, Rate, Shaping};

/// Deadlines of connections, and rates.
#[derive(Debug, Args)]
pub(crate) struct LimitOptions {
    /// Seconds without a byte in either direction after which a connection closes, also during a request
    /// [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    silence_timeout: Option<u32>,
    /// Seconds that a peer has to complete a request's head, or a piece of a body, that has begun to arrive; it gets as
    /// long again if it sends at --read-rate-min [default: no limit beside --request-timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    read_timeout: Option<u32>,
    /// Minimum rate at which the rest must arrive within --read-timeout, in bytes per second; 0 for one byte
    /// [default: 240]
    #[arg(long, value_name = "BYTES")]
    read_rate_min: Option<u32>,
    /// Seconds that the TLS handshake and a PROXY header may take from the start of a connection [default: 60; of TLS
    /// 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    handshake_timeout: Option<u32>,
    /// Seconds that a connection may last, give or take a tenth; then it ends after the request in progress
    /// [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    age_max: Option<u32>,
    /// Seconds that a connection may take to end after --age-max [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    age_grace: Option<u32>,
    /// Rate at which each connection receives and sends, in bytes per second, with k, M or G for powers of 1000 and with
    /// :BURST for the bytes that may exceed it at once: 1M, 500k:64k. in=RATE and out=RATE give one direction; may be
    /// repeated [default: no limit; BURST is 100 ms of the rate, at least 16384]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate_per_connection: Vec<Rates>,
    /// Rate at which the connections of each event loop receive and send together, as --rate-per-connection; those that
    /// wait are served in turn [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate_per_loop: Vec<Rates>,
}

/// A rate for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    receive: Option<Rate>,
    send: Option<Rate>,
}

impl LimitOptions {
    /// Sets the limits of the flags.
    pub(crate) fn apply(&self, limits: &mut Limits) {
        let after = |seconds: u32| Duration::from_secs(seconds.into());
        let Deadlines { read_rate_min, handshake_timeout, age_grace, .. } = limits.deadlines;
        limits.deadlines = Deadlines {
            idle_timeout: self.silence_timeout.map(after),
            read_timeout: self.read_timeout.map(after),
            read_rate_min: self.read_rate_min.unwrap_or(read_rate_min),
            handshake_timeout: self.handshake_timeout().or(handshake_timeout),
            age_max: self.age_max.map(after),
            age_grace: self.age_grace.map_or(age_grace, after),
        };
        let [connection, of_loop] = [&self.rate_per_connection, &self.rate_per_loop].map(|rates| {
            // Of several for one direction, the last counts.
            let receive = rates.iter().rev().find_map(|rates| rates.receive);
            (receive, rates.iter().rev().find_map(|rates| rates.send))
        });
        let ((receive, send), (loop_receive, loop_send)) = (connection, of_loop);
        limits.shaping = Shaping { receive, send, loop_receive, loop_send };
    }

    pub(crate) fn handshake_timeout(&self) -> Option<Duration> {
        self.handshake_timeout.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

fn seconds() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn parse_rate(text: &str) -> Result<Rates, String> {
    let parsed = || {
        let (direction, rate) = text.split_once('=').map_or((None, text), |(name, rate)| (Some(name), rate));
        let (rate, burst) = match rate.split_once(':') {
            Some((rate, burst)) => (rate, Some(parse_bytes(burst)?)),
            None => (rate, None),
        };
        let rate = Rate::per_second(parse_bytes(rate)?);
        let rate = Some(burst.map_or(rate, |burst| rate.burst(burst)));
        match direction {
            None => Some(Rates { receive: rate, send: rate }),
            Some("in") => Some(Rates { receive: rate, send: None }),
            Some("out") => Some(Rates { receive: None, send: rate }),
            Some(_) => None,
        }
    };
    parsed().ok_or_else(|| "not a rate, such as 1M, 500k:64k or out=1M".into())
}

/// A number of bytes above zero, with a unit or without one.
fn parse_bytes(text: &str) -> Option<u64> {
    let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let found = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (digits, unit) = found.unwrap_or((text, 1_u64));
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use tidegate::Rate;

    use super::{Rates, parse_rate};

    #[test]
    fn a_rate_has_a_unit_a_burst_and_a_direction_or_none_of_them() {
        let both = |rate| Rates { receive: Some(rate), send: Some(rate) };
        for (text, expected) in [
            ("1500", both(Rate::per_second(1_500))),
            ("2M", both(Rate::per_second(2_000_000))),
            ("500k:64k", both(Rate::per_second(500_000).burst(64_000))),
            ("in=1G", Rates { receive: Some(Rate::per_second(1_000_000_000)), send: None }),
            ("out=1M:20000", Rates { receive: None, send: Some(Rate::per_second(1_000_000).burst(20_000)) }),
        ] {
            assert_eq!(parse_rate(text), Ok(expected), "{text}");
        }
        for text in
            ["", "k", "0", "1T", "1M:", "1M:0", "up=1M", "=1M", "out=", "-1", "+1", "1.5M", "1M:1:1", "99999999999G"]
        {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
