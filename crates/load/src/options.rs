//! `Options`: the flags of `load`, and the forms of their values.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tidegate::Backend;

use super::results::HttpVersion;
use super::sources::RequestSource;
use super::url::{ResolverName, Url};

/// The flags of `load`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("versions").args(["http2", "http3"]).multiple(true)))]
pub struct Options {
    /// The URL to request: http://HOST[:PORT]/PATH, or https; several of one server are requested in turn. With ws or
    /// wss, messages are sent on WebSockets, and the server is expected to send them back. With
    /// redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss, commands of Redis are sent
    #[arg(value_name = "URL", required_unless_present_any = ["requests", "har", "curl"])]
    pub(crate) urls: Vec<Url>,
    /// HTTP requests from a file, in turn: lines of METHOD URL [BODY], or of JSON: {"method": "PUT", "url":
    /// "/a", "headers": {"A": "b"}, "body": "c"}. A URL of a path alone is one of the URL of the load
    #[arg(long, value_name = "FILE", conflicts_with_all = ["har", "curl", "method", "body"])]
    pub(crate) requests: Option<PathBuf>,
    /// The requests of a HAR file, in turn, as browsers save it: those to the server of the URL, or of the first request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["curl", "method", "body"])]
    pub(crate) har: Option<PathBuf>,
    /// The request of a line of curl, as browsers copy it: 'curl https://…'
    #[arg(long, value_name = "LINE", conflicts_with_all = ["urls", "method", "body"])]
    pub(crate) curl: Option<String>,
    #[arg(skip)]
    pub(crate) sources: Vec<RequestSource>,
    /// Resolver of the host's name: dns asks the servers of /etc/resolv.conf, with /etc/hosts; system is that of the C library,
    /// with /etc/nsswitch.conf
    #[arg(long, value_name = "NAME", value_enum, default_value = "dns")]
    pub(crate) resolver: ResolverName,
    /// With https or wss: trust every server, whatever its certificate is
    #[arg(long, conflicts_with = "root")]
    pub(crate) insecure: bool,
    /// With https or wss: a PEM file of the certificates to trust [default: the root certificates of the system, or of
    /// SSL_CERT_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) root: Option<PathBuf>,
    /// With https or wss: append the secrets of all connections to FILE, in the format of SSLKEYLOGFILE, for Wireshark
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key_log: Option<PathBuf>,
    /// Connections that send requests, over all threads [default: 10, and 1 with --subscribers]
    #[arg(short, long, value_name = "N", value_parser = count)]
    pub(crate) connections: Option<usize>,
    /// Threads, each with an event loop [default: 2, and at most one per connection]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Duration: 30, 30s, 2m, 1h [default: 10s; with -n as long as it takes]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Send exactly N requests over all connections, and end when the last one is over
    #[arg(short = 'n', long, value_name = "N", value_parser = total, conflicts_with_all = ["never_read", "idle", "broadcast", "subscribers"])]
    pub(crate) total: Option<u64>,
    /// A header field of the request, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub(crate) headers: Vec<String>,
    /// Method of the request [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Body of the request, or @FILE. With ws the message: a text if it is UTF-8, otherwise binary
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// With ws, or with --subscribers: the length of the message, which is a text [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "body", value_parser = clap::value_parser!(u32).range(0..=67_108_864))]
    pub(crate) message_bytes: Option<u32>,
    /// With ws: the first connection sends messages, and the server delivers each to all connections, its sender
    /// included, as /chat of `tidegate serve` does in a room. The figures count deliveries, and latency is that of a
    /// delivery
    #[arg(long, conflicts_with_all = ["never_read", "idle", "rate", "body"])]
    pub(crate) broadcast: bool,
    /// With redis: the commands by weight, of get, set, incr, mget, lpush, hset, zadd and ping; or one whole command
    /// with the placeholders __key__, __number__ (of a key) and __value__, and its weight as the last word: 'EXPIRE
    /// __key__ 60 :5'; may be repeated [default: get:80,set:20]
    #[arg(long, value_name = "LIST", conflicts_with = "subscribers")]
    pub(crate) commands: Vec<String>,
    /// With redis: how many different keys there are [default: 100k]
    #[arg(long, value_name = "N", value_parser = total)]
    pub(crate) keys: Option<u64>,
    /// With redis: the length of a value [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=67_108_864))]
    pub(crate) value_bytes: Option<u32>,
    /// With redis: N further connections subscribe to a channel, on which the others publish. The figures count
    /// deliveries, and latency is that from sending a message to its delivery
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["idle", "rate"])]
    pub(crate) subscribers: Option<usize>,
    /// With --subscribers: messages per second over all connections that publish [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = rate, requires = "subscribers")]
    pub(crate) publish: Option<f64>,
    /// Requests that a connection sends at once (pipelining) before it waits for the responses; with ws, messages
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) pipeline: u32,
    /// Speak HTTP/2: by ALPN with https, by prior knowledge with http
    #[arg(long, conflicts_with = "pipeline")]
    pub(crate) http2: bool,
    /// Speak HTTP/3, with https: each connection is one of QUIC, and has a UDP socket of its own
    #[arg(long)]
    pub(crate) http3: bool,
    /// Bytes of the dynamic QPACK table that the server may fill for the heads of responses
    /// (SETTINGS_QPACK_MAX_TABLE_CAPACITY, RFC 9204) [default: 0, no table]
    #[arg(long, value_name = "BYTES", requires = "http3", value_parser = table_bytes())]
    pub(crate) qpack_max_table_capacity: Option<u32>,
    /// Streams of a connection that may wait for entries of that table (SETTINGS_QPACK_BLOCKED_STREAMS) [default: 0]
    #[arg(long, value_name = "N", requires = "qpack_max_table_capacity")]
    pub(crate) qpack_blocked_streams: Option<u16>,
    /// Bytes of the dynamic QPACK table that the load fills for the heads of its requests, of those that the server permits
    /// [default: 0, no table]
    #[arg(long, value_name = "BYTES", requires = "http3", value_parser = table_bytes())]
    pub(crate) qpack_encoder_table_capacity: Option<u32>,
    /// With --http2 and --http3: streams that each connection keeps open, each with a request, or as many as the server
    /// permits
    #[arg(short = 'm', long, value_name = "N", default_value = "1", requires = "versions",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) streams: u32,
    /// Constant request rate per second over all connections (open loop), whether or not the server keeps up; latency
    /// starts at the scheduled send time, unanswered requests included [default: closed loop, as fast as it goes]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Reach the rate of --rate or --publish evenly within this time; without one of them, open the connections evenly
    /// over it
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["never_read", "broadcast"])]
    pub(crate) ramp: Option<Duration>,
    /// Timeout of connecting, and of the responses to the requests that were sent at once
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Print the latency distribution
    #[arg(long)]
    pub(crate) latency: bool,
    /// Keep N further connections open that make one request each and are then idle; to a loopback address they connect
    /// from several 127.0.0.x. They are opened before the measured time, 64 per thread concurrently; each of these 64
    /// lanes ends at its first connection that fails
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    pub(crate) idle: usize,
    /// Connections send the pipelined requests once, and never read
    #[arg(long, conflicts_with = "rate")]
    pub(crate) never_read: bool,
    /// Accept responses of any length; otherwise all must be as long as the first
    #[arg(long)]
    pub(crate) any_length: bool,
    /// I/O backend of the load generator: epoll, uring or auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) backend: Backend,
    /// Write the results to a file as JSON; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Compare with the results in a file that an earlier --json wrote: each figure with its ratio, and a verdict
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write an HTML page with charts to a file; - prints it instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Options {
    /// The first URL: it names the server.
    pub(crate) fn url(&self) -> &Url {
        &self.urls[0]
    }

    /// Connections that send requests. Without `--connections` there are no more than requests.
    pub(crate) fn connections(&self) -> usize {
        self.connections.unwrap_or_else(|| {
            let usual = if self.subscribers.is_some() { 1 } else { CONNECTIONS };
            self.total.map_or(usual, |total| usize::try_from(total).unwrap_or(usual).min(usual))
        })
    }

    /// The HTTP version.
    pub(crate) fn version(&self) -> HttpVersion {
        match (self.http3, self.http2) {
            (true, _) => HttpVersion::Http3,
            (false, true) => HttpVersion::Http2,
            (false, false) => HttpVersion::Http1,
        }
    }

    pub(crate) fn duration(&self) -> Duration {
        self.duration.unwrap_or(if self.total.is_some() { FOREVER } else { DURATION })
    }

    /// Requests a second over all connections.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate.or(self.publish)
    }

    /// Connections that receive messages and send none.
    pub(crate) fn listeners(&self) -> usize {
        match self.subscribers {
            Some(subscribers) => subscribers,
            None if self.broadcast => self.connections().saturating_sub(1),
            None => 0,
        }
    }
}

fn table_bytes() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=1024 * 1024)
}

/// A number that may end in k or M.
fn count(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1_000_000)),
    };
    let count: Option<usize> = number.parse().ok().and_then(|number: usize| number.checked_mul(unit));
    count.filter(|&count| count <= COUNT_MAX).ok_or_else(|| "write a number up to a million, 10k for instance".into())
}

/// A positive number that may end in k or M.
fn total(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1_000_000)),
    };
    let total: Option<u64> = number.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    total
        .filter(|total| (1..=TOTAL_MAX).contains(total))
        .ok_or_else(|| "write a number from 1 on, 100k for instance".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = match text.strip_suffix(['k', 'K']) {
        Some(number) => number.parse().ok().map(|number: f64| number * 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => number.parse().ok().map(|number: f64| number * 1e6),
            None => text.parse().ok(),
        },
    };
    rate.filter(|rate| (0.001..=1e9).contains(rate)).ok_or_else(|| "write requests a second, 50000 or 50k".into())
}

/// Parses a duration as flags have it: `500ms`, `30s`, `2m`, `1h`, or seconds without a unit.
///
/// # Errors
/// A suggestion if the text is no duration, or zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a time with a unit: 500ms, 30s, 2m or 1h".into()),
    };
    let time = number.parse().ok().map(|number: f64| number * seconds).filter(|time| (0.001..=1e6).contains(time));
    time.map(Duration::from_secs_f64).ok_or_else(|| "write a time above zero: 500ms, 30s, 2m or 1h".into())
}

/// The default number of connections, and the default duration.
const CONNECTIONS: usize = 10;
const DURATION: Duration = Duration::from_secs(10);

/// Longer than any load.
pub(crate) const FOREVER: Duration = Duration::from_secs(1_000_000);

/// The maximum of a number of connections: more than any process has descriptors.
const COUNT_MAX: usize = 1_000_000;

/// The maximum of a number of requests or keys: twelve digits.
const TOTAL_MAX: u64 = 999_999_999_999;
