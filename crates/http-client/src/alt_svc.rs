//! `Alternatives`: the origins that are known to speak HTTP/3, by `Alt-Svc` (RFC 7838) or by HTTPS records.
//!
//! A response over TLS says that its origin has HTTP/3, at which port, and for how long. QUIC then races TCP: the connector
//! of `tidegate-http-upstream` begins with QUIC. Where TCP wins, UDP is probably blocked on the way, so that QUIC rests for a
//! while, and twice as long after each further loss. A connection that does not answer its first request is a loss as well:
//! the first answer alone ends the series (RFC 7838 §2.4).
//!
//! Of the alternatives in `Alt-Svc`, only those at the host of the origin are used. The number of origins is bounded: the one that ends first makes
//! room.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate_http_upstream::{Origin, ServiceEndpoint};

/// The alternatives of a client.
#[derive(Debug, Default)]
pub(super) struct Alternatives(RefCell<HashMap<(Box<str>, u16), Alternative>>);

/// HTTP/3 of one origin.
#[derive(Debug, Clone)]
struct Alternative {
    endpoint: ServiceEndpoint,
    until: Instant,
    /// Until when the last `Alt-Svc` of the server counts, so that no HTTPS record replaces it.
    said_until: Option<Instant>,
    /// How often QUIC was of no use in a row, and until when it rests for that.
    losses: u32,
    rests_until: Option<Instant>,
}

/// The content of `Alt-Svc`, as far as it is about HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AltSvc {
    /// There is no alternative.
    None,
    Http3 {
        port: u16,
        fresh: Duration,
    },
}

impl Alternatives {
    /// Where an origin has HTTP/3, unless QUIC rests.
    pub(super) fn endpoint(&self, origin: &Origin, now: Instant) -> Option<ServiceEndpoint> {
        let mut origins = self.0.borrow_mut();
        let key = key(origin);
        let found = origins.get(&key)?;
        if found.until <= now {
            // The rest stays: a server cannot end it by another value of its field. So does a withdrawal.
            if [found.rests_until, found.said_until].into_iter().flatten().all(|until| until <= now) {
                origins.remove(&key);
            }
            return None;
        }
        found.rests_until.is_none_or(|until| until <= now).then(|| found.endpoint.clone())
    }

    /// A response has these values of `Alt-Svc`: they replace those before.
    pub(super) fn learn<'a>(&self, origin: &Origin, values: impl Iterator<Item = &'a [u8]>, now: Instant) {
        let mut said = None;
        for value in values {
            match parse(value, origin) {
                found @ AltSvc::Http3 { .. } if !matches!(said, Some(AltSvc::Http3 { .. })) => said = Some(found),
                found => said = said.or(Some(found)),
            }
        }
        match said {
            None => {}
            Some(AltSvc::Http3 { port, fresh }) => {
                let until = now + fresh;
                self.keep(origin, ServiceEndpoint { host: None, port }, until, Some(until));
            }
            Some(AltSvc::None) => {
                if let Some(known) = self.0.borrow_mut().get_mut(&key(origin)) {
                    (known.until, known.said_until) = (now, Some(now + WITHDRAWAL));
                }
            }
        }
    }

    /// An origin has HTTP/3 at an endpoint by its HTTPS records. The last `Alt-Svc` of the server comes first, while it lasts.
    pub(super) fn learn_endpoint(&self, origin: &Origin, endpoint: ServiceEndpoint, until: Instant, now: Instant) {
        let said_until = self.0.borrow().get(&key(origin)).and_then(|known| known.said_until);
        if said_until.is_none_or(|said_until| said_until <= now) {
            self.keep(origin, endpoint, until, None);
        }
    }

    fn keep(&self, origin: &Origin, endpoint: ServiceEndpoint, until: Instant, said_until: Option<Instant>) {
        let (mut origins, key) = (self.0.borrow_mut(), key(origin));
        if let Some(known) = origins.get_mut(&key) {
            // A loss is about the way to the server, and stays, whatever the port is.
            (known.endpoint, known.until, known.said_until) = (endpoint, until, said_until);
            return;
        }
        if origins.len() >= ORIGINS_MAX
            && let Some(first) = origins.iter().min_by_key(|(_, one)| one.until).map(|(key, _)| key.clone())
        {
            origins.remove(&first);
        }
        origins.insert(key, Alternative { endpoint, until, said_until, losses: 0, rests_until: None });
    }

    /// TCP has won a race, or a QUIC connection has not answered, or does not serve the origin. A race that began before the
    /// last loss adds nothing to it.
    pub(super) fn on_loss(&self, origin: &Origin, now: Instant) {
        let mut origins = self.0.borrow_mut();
        let Some(known) = origins.get_mut(&key(origin)) else { return };
        if known.rests_until.is_some_and(|until| until > now) {
            return;
        }
        let rest = REST.saturating_mul(1 << known.losses.min(LOSSES_MAX));
        known.rests_until = Some(now + rest);
        known.losses = known.losses.saturating_add(1);
    }

    /// A QUIC connection has answered a request.
    pub(super) fn on_answer(&self, origin: &Origin) {
        if let Some(known) = self.0.borrow_mut().get_mut(&key(origin)) {
            (known.losses, known.rests_until) = (0, None);
        }
    }
}

pub(super) fn key(origin: &Origin) -> (Box<str>, u16) {
    (origin.host.clone(), origin.port)
}

/// RFC 7838 §3. Alternatives that cannot be read, or used, are passed over.
fn parse(value: &[u8], origin: &Origin) -> AltSvc {
    split(value, b',').find_map(|entry| alternative(entry, origin)).unwrap_or(AltSvc::None)
}

/// HTTP/3 at the host of the origin.
fn alternative(entry: &[u8], origin: &Origin) -> Option<AltSvc> {
    let mut parts = split(entry, b';');
    let authority = unquoted(parts.next()?.trim_ascii().strip_prefix(b"h3=")?)?;
    let colon = authority.iter().rposition(|byte| *byte == b':')?;
    let (host, port) = (std::str::from_utf8(&authority[..colon]).ok()?, &authority[colon + 1..]);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if !bare.is_empty() && !bare.eq_ignore_ascii_case(origin.name()) {
        return None;
    }
    let port = u16::try_from(number(port)?).ok().filter(|port| *port > 0)?;
    let mut fresh = FRESH;
    for parameter in parts {
        if let Some(age) = parameter.trim_ascii().strip_prefix(b"ma=") {
            let age = unquoted(age).unwrap_or_else(|| age.to_vec());
            fresh = Duration::from_secs(number(&age)?).min(FRESH_MAX);
        }
    }
    Some(if fresh.is_zero() { AltSvc::None } else { AltSvc::Http3 { port, fresh } })
}

/// Splits at a separator outside of quoted strings.
fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |byte| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match byte {
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        !is_quoted && *byte == separator
    })
}

/// The text of a quoted string (RFC 9110 §5.6.4).
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\\' { *bytes.next()? } else { *byte });
    }
    Some(plain)
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    // More digits than a number has are a long time.
    Some(text.parse().unwrap_or(u64::MAX))
}

/// How long an alternative is fresh that does not say so (RFC 7838 §3.1), and the longest time.
const FRESH: Duration = Duration::from_secs(86_400);
const FRESH_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How long HTTPS records do not bring back an alternative that the server has withdrawn.
const WITHDRAWAL: Duration = Duration::from_secs(3_600);

/// Origins whose alternatives are known.
pub(super) const ORIGINS_MAX: usize = 1024;

/// How long QUIC rests after its first loss, and how often that time doubles: up to 5 hours.
const REST: Duration = Duration::from_secs(300);
const LOSSES_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: &str) -> Origin {
        let (tunnels, via, may_be_http2, is_http3) = (false, None, true, false);
        let (is_secure, host, port, at) = (true, host.into(), 443, None);
        let (endpoint, alternative) = (None, None);
        Origin { is_secure, host, port, at, tunnels, via, may_be_http2, is_http3, endpoint, alternative }
    }

    fn port(alternatives: &Alternatives, origin: &Origin, now: Instant) -> Option<u16> {
        alternatives.endpoint(origin, now).map(|endpoint| endpoint.port)
    }

    #[test]
    fn a_field_names_the_port_and_the_time() {
        let day = 86_400;
        for (value, expected) in [
            (r#"h3=":443""#, Some((443, day))),
            (r#"h3=":8443"; ma=60"#, Some((8443, 60))),
            (r#"h3=":443";ma="60"; persist=1"#, Some((443, 60))),
            (r#"h2=":443", h3-29=":1",h3=":2" ; ma=7"#, Some((2, 7))),
            (r#"h2="a,;h3=b:1", h3="Sea.Example:443""#, Some((443, day))),
            (r#"h3=":443"; x="\",h3=\":9\"", h3=":1""#, Some((443, day))),
            (r#"h3="\:443""#, Some((443, day))),
            (r#"h3=":443"; ma=99999999999999999999999"#, Some((443, 30 * day))),
            (r#"h3="other.example:443", h3=":1""#, Some((1, day))),
            ("clear", None),
            ("", None),
            (r#"h3=":443"; ma=0"#, None),
            (r#"h3=":443"; ma=-1"#, None),
            (r#"h3=":443"; ma="#, None),
            (r#"H3=":443""#, None),
            ("h3=:443", None),
            (r#"h3=":443"#, None),
            (r#"h3=":0""#, None),
            (r#"h3=":65536""#, None),
            (r#"h3=":+1""#, None),
            (r#"h3="sea.example""#, None),
            (r#"h3="""#, None),
        ] {
            let expected = expected
                .map_or(AltSvc::None, |(port, seconds)| AltSvc::Http3 { port, fresh: Duration::from_secs(seconds) });
            assert_eq!(parse(value.as_bytes(), &origin("sea.example")), expected, "{value}");
        }
        assert_ne!(parse(br#"h3="[::1]:1""#, &origin("::1")), AltSvc::None);
        assert_eq!(parse(b"h3=\"\xff\xfe:1\"", &origin("a")), AltSvc::None);
    }

    #[test]
    fn an_alternative_ends_and_can_be_cleared_and_replaced() {
        let (alternatives, origin, now) = (Alternatives::default(), origin("sea.example"), Instant::now());
        let learn =
            |values: &[&'static str]| alternatives.learn(&origin, values.iter().map(|value| value.as_bytes()), now);
        let at = |seconds| port(&alternatives, &origin, now + Duration::from_secs(seconds));
        learn(&[r#"h3=":1"; ma=10"#]);
        learn(&[]);
        assert_eq!((at(9), at(10), at(0)), (Some(1), None, None));
        learn(&[r#"h2=":443""#, r#"h3=":2""#, r#"h3=":3""#]);
        assert_eq!(at(0), Some(2));
        learn(&["clear"]);
        assert_eq!(at(0), None);
        learn(&[r#"h3=":2""#]);
        learn(&[r#"h2=":443""#]);
        assert_eq!(at(0), None);
    }

    #[test]
    fn the_field_of_a_server_comes_before_its_records_while_it_lasts() {
        let (alternatives, origin, now) = (Alternatives::default(), origin("sea.example"), Instant::now());
        let (time, second) = (|seconds| now + Duration::from_secs(seconds), Duration::from_secs(1));
        let learn = |value: &'static str| alternatives.learn(&origin, [value.as_bytes()].into_iter(), now);
        let record = |at, port| {
            alternatives.learn_endpoint(&origin, ServiceEndpoint { host: None, port }, at + 9_999 * second, at);
        };
        record(now, 5);
        assert_eq!(port(&alternatives, &origin, now), Some(5));
        learn(r#"h3=":1"; ma=10"#);
        record(now, 5);
        assert_eq!(port(&alternatives, &origin, now), Some(1));
        record(time(10), 5);
        assert_eq!(port(&alternatives, &origin, time(10)), Some(5));
        learn("clear");
        for seconds in [0, 3_599] {
            assert_eq!(port(&alternatives, &origin, time(seconds)), None);
            record(time(seconds), 5);
            assert_eq!(port(&alternatives, &origin, time(seconds)), None, "{seconds}");
        }
        record(time(3_600), 5);
        assert_eq!(port(&alternatives, &origin, time(3_600)), Some(5));
    }

    #[test]
    fn quic_rests_after_a_loss_longer_each_time_but_not_for_ever() {
        let (alternatives, origin, now) = (Alternatives::default(), origin("sea.example"), Instant::now());
        let learn = || alternatives.learn(&origin, [&br#"h3=":1"; ma=2592000"#[..]].into_iter(), now);
        let at = |seconds| port(&alternatives, &origin, now + Duration::from_secs(seconds));
        learn();
        let mut begun = 0;
        for rest in [300, 600, 1200, 2400, 4800, 9600, 19_200, 19_200] {
            // A burst of races is one loss.
            for _ in 0..10 {
                alternatives.on_loss(&origin, now + Duration::from_secs(begun));
            }
            learn();
            assert_eq!((at(begun + rest - 1), at(begun + rest)), (None, Some(1)), "{rest}");
            begun += rest;
        }
        alternatives.on_answer(&origin);
        assert_eq!(at(0), Some(1));
        alternatives.on_loss(&origin, now);
        assert_eq!((at(299), at(300)), (None, Some(1)));
    }

    #[test]
    fn a_loss_stays_whatever_a_server_says_of_its_port() {
        let (alternatives, origin, now) = (Alternatives::default(), origin("sea.example"), Instant::now());
        let learn = |value: &'static str| alternatives.learn(&origin, [value.as_bytes()].into_iter(), now);
        let at = |seconds| port(&alternatives, &origin, now + Duration::from_secs(seconds));
        learn(r#"h3=":1""#);
        alternatives.on_loss(&origin, now);
        for value in [r#"h3=":2""#, "clear", r#"h3=":2""#] {
            learn(value);
            assert_eq!(at(0), None, "{value}");
        }
        assert_eq!((at(299), at(300)), (None, Some(2)));
        alternatives.on_loss(&origin, now + Duration::from_secs(300));
        assert_eq!((at(899), at(900)), (None, Some(2)), "the second loss in a row");
    }

    #[test]
    fn origins_with_any_port_of_an_alternative_share_connections() {
        let at = |port| ServiceEndpoint { host: None, port };
        let with = |port: Option<u16>| Origin { alternative: port.map(at), ..origin("sea.example") };
        let origins: std::collections::HashSet<_> = (1..1000).map(|port| with(Some(port))).collect();
        assert_eq!(origins.len(), 1);
        assert_ne!(with(Some(1)), with(None));
    }

    #[test]
    fn origins_have_a_bound() {
        let (alternatives, now) = (Alternatives::default(), Instant::now());
        for number in 0..2 * ORIGINS_MAX as u64 {
            let value = format!("h3=\":1\"; ma={}", 1000 + number);
            alternatives.learn(&origin(&number.to_string()), [value.as_bytes()].into_iter(), now);
        }
        assert_eq!(alternatives.0.borrow().len(), ORIGINS_MAX);
        assert_eq!(port(&alternatives, &origin("0"), now), None);
        assert_eq!(port(&alternatives, &origin("2047"), now), Some(1));
    }
}
