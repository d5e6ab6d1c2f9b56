//! `[[listen]]`: where the server listens, and how connections begin there.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::proxy_protocol::{Networks, Policy};
use tidegate::sniff::FIRST_BYTES_MAX;
use tidegate::{Address, ConnectionRate, IpNet};

use super::keys::{Key, Keys, Kind, info};
use super::mistakes::{Located, Mistakes, Place};
use super::reader::{Reader, boolean};
use super::upstream::numbers;
use super::value::Data;
use crate::acme::AcmeSettings;

/// Where the server listens, and how connections begin there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Listen {
    pub(crate) place: Place,
    pub(crate) addresses: Vec<Located<Address>>,
    pub(crate) ipv6_only: bool,
    pub(crate) is_https: bool,
    /// It passes connections or datagrams on below HTTP.
    pub(crate) forwards: Option<Forwards>,
    /// The upstream of those; with TLS, of the names that `sni` does not have.
    pub(crate) upstream: Option<Located<String>>,
    /// Server names (SNI), each with its upstream.
    pub(crate) sni: Vec<(Located<String>, Located<String>)>,
    /// Rules for the first bytes of a connection that is passed on.
    pub(crate) first_bytes: Vec<FirstBytes>,
    pub(crate) certificates: Vec<CertificateFiles>,
    /// The names of a certificate that is made at the start.
    pub(crate) self_signed: Option<Vec<String>>,
    /// A certificate that an authority issues.
    pub(crate) acme: Option<AcmeSettings>,
    pub(crate) client_ca: Option<Located<PathBuf>>,
    pub(crate) ticket_keys: Vec<Located<PathBuf>>,
    pub(crate) versions: Vec<String>,
    /// Whether HTTP/3 is served over UDP as well.
    pub(crate) http3: bool,
    /// Whether it takes early data.
    pub(crate) http3_early_data: bool,
    /// The file that gets the secrets of connections, which only a flag sets.
    pub(crate) tls_key_log: Option<PathBuf>,
    /// The folder of files of QUIC connections, which only a flag sets.
    #[cfg(feature = "qlog")]
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) redirect_https: Option<RedirectHttps>,
    pub(crate) proxy_protocol: HeaderMode,
    pub(crate) proxy_trusted: Option<Networks>,
    pub(crate) allow: Vec<IpNet>,
    pub(crate) deny: Vec<IpNet>,
    pub(crate) connections_per_address: Option<u32>,
    pub(crate) connection_rate_per_address: Option<ConnectionRate>,
    pub(crate) limits: ListenLimits,
}

/// The traffic that a listener below HTTP passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwards {
    Tcp,
    Udp,
    /// TLS as it comes, by the server name of its ClientHello.
    TlsPassthrough,
}

/// Whether connections begin with a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum HeaderMode {
    #[default]
    Off,
    Optional,
    Required,
}

/// The port of a redirect to https.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectHttps {
    /// That of the first https listener.
    First,
    Port(u16),
}

/// A certificate chain with its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) place: Place,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Keys for CertificateFiles {
    const TITLE: &'static str = "a certificate";
    const TEXT: &'static str = "A certificate of an https listener; the names in it say which clients get it.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "cert",
            Kind::Path,
            "The chain (PEM), the certificate of the server first.",
            |to, value, reader| {
                to.cert = reader.path(value).value;
            },
        )
        .required(),
        Key::<Self>::new("key", Kind::Path, "Its private key (PEM).", |to, value, reader| {
            to.key = reader.path(value).value;
        })
        .required(),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }
}

/// The upstream of connections that begin in one way.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FirstBytes {
    place: Place,
    pub(crate) rule: FirstBytesRule,
    pub(crate) upstream: Located<String>,
}

/// How a connection begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum FirstBytesRule {
    /// Neither key is set, or both are.
    #[default]
    None,
    Http1,
    Http2,
    Tls,
    StartsWith(String),
}

impl Keys for FirstBytes {
    const TITLE: &'static str = "first-bytes";
    const TEXT: &'static str = "The upstream of connections whose first bytes match, and no rule before.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "protocol",
            Kind::Choice(&["http/1.1", "http/2", "tls"]),
            "The protocol that the bytes begin.",
            |to, value, reader| {
                let rule = match &*reader.text(value) {
                    "http/2" => FirstBytesRule::Http2,
                    "tls" => FirstBytesRule::Tls,
                    _ => FirstBytesRule::Http1,
                };
                to.set(rule, reader);
            },
        ),
        Key::<Self>::new(
            "starts-with",
            Kind::Text,
            "The bytes themselves, up to 256, such as `SSH-`; `\\u0000` is a zero byte.",
            |to, value, reader| {
                let prefix = reader.text(value);
                if prefix.is_empty() || prefix.len() > FIRST_BYTES_MAX {
                    reader.mistake(value.place, format!("`starts-with` has 1 to {FIRST_BYTES_MAX} bytes"));
                }
                to.set(FirstBytesRule::StartsWith(prefix), reader);
            },
        ),
        Key::<Self>::new("upstream", Kind::Text, "The upstream of these connections.", |to, value, reader| {
            to.upstream = reader.located(value);
        })
        .required(),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if self.rule == FirstBytesRule::None {
            mistakes.add(self.place, "a rule for first bytes has one of `protocol` and `starts-with`");
        }
    }
}

impl FirstBytes {
    fn set(&mut self, rule: FirstBytesRule, reader: &mut Reader<'_>) {
        if self.rule != FirstBytesRule::None {
            reader.mistake(self.place, "`protocol` and `starts-with` exclude each other");
        }
        self.rule = rule;
    }
}

const SECONDS: Kind = Kind::Seconds { min: 1, max: 10 * 365 * 86_400 };
const COUNT: Kind = Kind::Integer { min: 1, max: u32::MAX as i64 };
const BYTES: Kind = Kind::Integer { min: 1, max: i64::MAX };
const QPACK_TABLE: Kind = Kind::Integer { min: 0, max: QPACK_TABLE_BYTES_MAX as i64 };

numbers! {
    /// The limits of one listener; those of the command, unless set.
    ListenLimits, "limits of a listener", "Limits of one listener; unless set, those of the command's flags.":
    connections, "connections" COUNT, "", "Connections at once.";
    body_bytes as u64, "body-bytes" BYTES, "", "Bytes of a request's body.";
    head_bytes, "head-bytes" COUNT, "", "Bytes of a request's head.";
    headers, "headers" COUNT, "", "Fields of a request's head.";
    streams, "streams" COUNT, "", "Streams of an HTTP/2 connection at once.";
    head_timeout, "head-timeout" SECONDS, "", "Until a request's head is complete.";
    body_timeout, "body-timeout" SECONDS, "", "How far a body may fall behind its least rate.";
    idle_timeout, "idle-timeout" SECONDS, "", "How long a connection may be idle between requests; an hour for `tcp` and `tls-passthrough`, a minute for a flow of `udp`, unless set.";
    write_timeout, "write-timeout" SECONDS, "", "Without progress in sending to a client.";
    handshake_timeout, "handshake-timeout" SECONDS, "", "Until the TLS handshake, or the ClientHello that is passed on, and a PROXY header are complete.";
    flows, "flows" COUNT, "", "Of `udp`: flows at once; for one more the one that was idle longest ends. 4,096, or an eighth of the descriptors, unless set.";
    hello_bytes, "hello-bytes" Kind::Integer { min: 1, max: 1 << 24 }, "16384", "Of `tls-passthrough`: bytes of a ClientHello with the headers of its records.";
    qpack_max_table_capacity, "qpack-max-table-capacity" QPACK_TABLE, "0", "Of `http3`: bytes of the dynamic QPACK table that a client may fill (SETTINGS_QPACK_MAX_TABLE_CAPACITY, RFC 9204). Each connection whose client fills it costs as much memory, up to four times as much in the worst case.";
    qpack_blocked_streams, "qpack-blocked-streams" Kind::Integer { min: 0, max: u16::MAX as i64 }, "0", "Of `http3`: requests of a connection that may wait for entries of that table (SETTINGS_QPACK_BLOCKED_STREAMS).";
    qpack_encoder_table_capacity, "qpack-encoder-table-capacity" QPACK_TABLE, "0", "Of `http3`: bytes of the dynamic QPACK table that the server fills for responses, of those that the client permits. Each such connection costs as much memory, and lengths show fields that repeat.";
    datagram_bytes, "datagram-bytes" Kind::Integer { min: 1, max: u16::MAX as i64 }, "9216", "Of `udp`: bytes of a datagram; a longer one is dropped.";
}

impl Keys for Listen {
    const TITLE: &'static str = "[[listen]]";
    const TEXT: &'static str = "Where the server listens, and how connections begin there.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("address", Kind::OneOrMore(&Kind::Text), "`IP:PORT`, `[IPV6]:PORT`, `localhost:PORT`, `unix:PATH` or `unix:@NAME`; one, or a list. Sockets that the environment passes (`LISTEN_FDS`) serve the addresses that they are bound to.", |to, value, reader| {
            to.addresses = reader.parsed(value, "an address: write IP:PORT, such as [::]:443, localhost:PORT or unix:PATH", |text| text.parse().ok());
        })
        .required()
        .known_as(&["bind", "port", "addresses"]),
        Key::<Self>::new("protocol", Kind::Choice(&["http", "https", "tcp", "tls-passthrough", "udp"]), "HTTP in the clear or encrypted, for routes; or connections, TLS as it comes, or datagrams that are passed on to an upstream.", |to, value, reader| {
            let protocol = reader.text(value);
            to.is_https = protocol == "https";
            to.forwards = match &*protocol {
                "tcp" => Some(Forwards::Tcp),
                "tls-passthrough" => Some(Forwards::TlsPassthrough),
                "udp" => Some(Forwards::Udp),
                _ => None,
            };
        })
        .default("\"http\""),
        Key::<Self>::new("upstream", Kind::Text, "The upstream of `tcp` and `udp`, with servers such as `tcp://10.0.0.1:5432`; with `tls-passthrough` that of names which `sni` does not have, which are refused unless it is set.", |to, value, reader| {
            to.upstream = Some(reader.located(value));
        })
        .known_as(&["target", "proxy-pass", "backend"]),
        Key::<Self>::new("sni", Kind::Map(&Kind::Text), "Of `tls-passthrough`: the upstream of each server name. `*.sea.example` is for all names below; an exact name comes first, then the longest domain.", |to, value, reader| {
            to.sni = reader.entries(value).iter().map(|(name, upstream)| {
                (Located::new(name.text.clone(), name.place), reader.located(upstream))
            }).collect();
        })
        .known_as(&["names", "server-names"]),
        Key::<Self>::new("first-bytes", Kind::List(&Kind::Table(info::<FirstBytes>)), "Of `tcp` and `tls-passthrough`: upstreams by the first bytes of a connection, before its server name. The first rule that matches decides. Every client of the port has to speak first.", |to, value, reader| {
            to.first_bytes = reader.tables(value);
        })
        .known_as(&["sniff", "match"]),
        Key::<Self>::new("certificates", Kind::List(&Kind::Table(info::<CertificateFiles>)), "Certificates of an https listener: a client gets the one with the name that it requests (SNI), otherwise the first.", |to, value, reader| {
            to.certificates = reader.tables(value);
        })
        .known_as(&["tls", "cert", "ssl-certificate"]),
        Key::<Self>::new("self-signed", Kind::Either(&[Kind::Boolean, Kind::List(&Kind::Text)]), "Make a certificate at the start, to try https: for localhost, or for these names. No client trusts it.", |to, value, reader| {
            to.self_signed = match &value.data {
                Data::List(_) => Some(reader.texts(value).into_iter().map(|name| name.value).collect()),
                _ => reader.boolean(value).then(|| vec!["localhost".to_owned(), "127.0.0.1".to_owned()]),
            };
        }),
        Key::<Self>::new("acme", Kind::Table(info::<AcmeSettings>), "A certificate that an authority issues and renews.", |to, value, reader| {
            to.acme = Some(reader.table(value));
        })
        .known_as(&["lets-encrypt", "tls-auto"]),
        Key::<Self>::new("client-ca", Kind::Path, "Refuse clients without a certificate that one in this file (PEM) vouches for.", |to, value, reader| {
            to.client_ca = Some(reader.path(value));
        }),
        Key::<Self>::new("ticket-keys", Kind::OneOrMore(&Kind::Path), "Keys of session tickets, 80 or 48 random bytes each: the first encrypts, all decrypt. One of the process, unless set.", |to, value, reader| {
            to.ticket_keys = reader.paths(value);
        }),
        Key::<Self>::new("versions", Kind::List(&Kind::Choice(&["http/1.1", "http/2"])), "The HTTP versions that an https listener offers.", |to, value, reader| {
            to.versions = reader.texts(value).into_iter().map(|version| version.value).collect();
        })
        .default("[\"http/2\", \"http/1.1\"]"),
        Key::<Self>::new("http3", Kind::Boolean, "Serve HTTP/3 as well, at the same addresses over UDP; responses over TCP name it in `Alt-Svc`.", |to, value, reader| to.http3 = reader.boolean(value)).default("false"),
        Key::<Self>::new("http3-early-data", Kind::Boolean, "Take early data (0-RTT) over HTTP/3: requests with GET, HEAD or OPTIONS and without a body are answered before the handshake is complete, with `Early-Data: 1` for the upstream, which may answer 425. An attacker can repeat such a request.", |to, value, reader| to.http3_early_data = reader.boolean(value)).default("false"),
        Key::<Self>::new("redirect-https", Kind::Either(&[Kind::Boolean, Kind::Integer { min: 1, max: 65_535 }]), "Answer each request with a redirect (308) to https: at the port of the first https listener, or at this one.", |to, value, reader| {
            to.redirect_https = match boolean(value) {
                Some(is_set) => is_set.then_some(RedirectHttps::First),
                None => Some(RedirectHttps::Port(reader.count(value) as u16)),
            };
        }),
        Key::<Self>::new("proxy-protocol", Kind::Choice(&["off", "optional", "required"]), "Whether connections begin with a PROXY header.", |to, value, reader| {
            let values = [("off", HeaderMode::Off), ("optional", HeaderMode::Optional), ("required", HeaderMode::Required)];
            to.proxy_protocol = reader.choice(value, &values, HeaderMode::Off);
        })
        .default("\"off\""),
        Key::<Self>::new("proxy-trusted", Kind::List(&Kind::Text), "Networks whose PROXY headers count, and `unix` for Unix sockets; this machine, unless set.", |to, value, reader| {
            let networks: Vec<Located<Networks>> =
                reader.parsed(value, "a network, such as 10.0.0.0/8, nor `unix`", |text| text.parse().ok());
            to.proxy_trusted = Some(networks.iter().fold(Networks::default(), |all, one| all.and_all(&one.value)));
        }),
        Key::<Self>::new("ipv6-only", Kind::Boolean, "Accept only IPv6 at `[::]`. A passed socket there has to be one of IPv6 alone (`BindIPv6Only=ipv6-only` in its unit).", |to, value, reader| to.ipv6_only = reader.boolean(value)).default("false"),
        Key::<Self>::new("allow", Kind::List(&Kind::Text), "Networks whose clients may connect; all, unless set.", |to, value, reader| to.allow = reader.networks(value)),
        Key::<Self>::new("deny", Kind::List(&Kind::Text), "Networks whose clients may not connect, also where `allow` has them.", |to, value, reader| to.deny = reader.networks(value)),
        Key::<Self>::new("connections-per-address", COUNT, "Connections at once of one IPv4 address or one IPv6 /64.", |to, value, reader| {
            to.connections_per_address = Some(reader.count(value));
        }),
        Key::<Self>::new("connection-rate-per-address", Kind::Text, "New connections of one address, such as `10/s:50`: a rate for each second (`s`) or minute (`m`), and a burst.", |to, value, reader| {
            to.connection_rate_per_address = reader.rate(value);
        }),
        Key::<Self>::new("limits", Kind::Table(info::<ListenLimits>), "Limits of this listener.", |to, value, reader| to.limits = reader.table(value)),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        let sources = [!self.certificates.is_empty(), self.acme.is_some(), self.self_signed.is_some()];
        let has_certificate = sources.contains(&true);
        if self.is_https && !has_certificate {
            mistakes.add(self.place, "an https listener has `certificates`, `acme`, or `self-signed`");
        }
        if sources.iter().filter(|is_set| **is_set).count() > 1 {
            mistakes.add(self.place, "`certificates`, `acme` and `self-signed` exclude each other");
        }
        let is_of_tls =
            has_certificate || self.client_ca.is_some() || !self.ticket_keys.is_empty() || !self.versions.is_empty();
        if !self.is_https && self.forwards.is_none() && (is_of_tls || self.http3) {
            let keys = "`certificates`, `acme`, `self-signed`, `client-ca`, `ticket-keys`, `versions` and `http3`";
            mistakes.add(self.place, format!("{keys} need `protocol = \"https\"`"));
        }
        if self.http3_early_data && !self.http3 {
            mistakes.add(self.place, "`http3-early-data` needs `http3 = true`");
        }
        if let Some(key) = self.limits.qpack_key().filter(|_| !self.http3) {
            mistakes.add(self.place, format!("`limits.{key}` needs `http3 = true`"));
        }
        if self.limits.qpack_blocked_streams.is_some_and(|count| count > 0)
            && self.limits.qpack_max_table_capacity.unwrap_or(0) == 0
        {
            mistakes.add(self.place, "`limits.qpack-blocked-streams` needs `limits.qpack-max-table-capacity`");
        }
        if self.is_https && self.redirect_https.is_some() {
            mistakes.add(self.place, "an https listener cannot redirect to https");
        }
        if self.proxy_trusted.is_some() && self.proxy_protocol == HeaderMode::Off {
            mistakes.add(self.place, "`proxy-trusted` needs `proxy-protocol`");
        }
    }
}

impl Listen {
    /// The same without places, to be compared with another reading of the file.
    pub(crate) fn without_places(&self) -> Self {
        let mut listen = Self { place: Place::FLAG, ..self.clone() };
        listen.certificates.iter_mut().for_each(|files| files.place = Place::FLAG);
        listen.acme.iter_mut().for_each(|acme| acme.place = Place::FLAG);
        listen
    }

    /// The same without the upstreams, which may change while the listener stays.
    pub(crate) fn without_upstreams(&self) -> Self {
        Self { upstream: None, sni: Vec::new(), first_bytes: Vec::new(), ..self.without_places() }
    }

    /// Whether both have an address in common.
    pub(crate) fn has_address_of(&self, other: &Self) -> bool {
        self.addresses.iter().any(|one| other.addresses.iter().any(|other| one.value == other.value))
    }

    /// The upstreams that it names.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Located<String>> {
        let of_rules = self.first_bytes.iter().map(|rule| &rule.upstream);
        self.upstream.iter().chain(self.sni.iter().map(|(_, upstream)| upstream)).chain(of_rules)
    }

    /// Its addresses with their scheme, as the file has them.
    pub(crate) fn name(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(|address| address.value.to_string()).collect();
        format!("{}{}", self.scheme(), addresses.join(" "))
    }

    /// The scheme of its addresses, for readers.
    pub(crate) fn scheme(&self) -> &'static str {
        match (self.forwards, self.is_https) {
            (Some(Forwards::Tcp), _) => "tcp://",
            (Some(Forwards::Udp), _) => "udp://",
            (Some(Forwards::TlsPassthrough), _) => "tls://",
            (None, true) => "https://",
            (None, false) => "http://",
        }
    }
}

impl HeaderMode {
    /// The policy of a listener; headers of this machine count, unless networks are named.
    pub(crate) fn policy(self, trusted: Option<&Networks>) -> Policy {
        let trusted = trusted.cloned().unwrap_or_else(Networks::local);
        match self {
            Self::Off => Policy::off(),
            Self::Optional => Policy::optional(trusted),
            Self::Required => Policy::required(trusted),
        }
    }
}

impl ListenLimits {
    /// The first key of QPACK that is set.
    fn qpack_key(&self) -> Option<&'static str> {
        let keys = [
            ("qpack-max-table-capacity", self.qpack_max_table_capacity),
            ("qpack-blocked-streams", self.qpack_blocked_streams),
            ("qpack-encoder-table-capacity", self.qpack_encoder_table_capacity),
        ];
        keys.into_iter().find_map(|(key, set)| set.map(|_| key))
    }

    /// A number of seconds that is set.
    pub(crate) fn seconds(set: Option<u32>) -> Option<Duration> {
        set.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// Bytes of a dynamic QPACK table; `http3::Limits` has the same bound.
pub(crate) const QPACK_TABLE_BYTES_MAX: u32 = 1024 * 1024;
