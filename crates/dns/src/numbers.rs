//! The registered numbers: record types, classes, operation codes and response codes.

use std::fmt;
use std::str::FromStr;

use crate::error::DnsError;

macro_rules! numbers {
    ($(#[$docs:meta])* $name:ident($inner:ty), $generic:literal { $($(#[$item:meta])* $constant:ident = $value:literal $text:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl $name {
            $($(#[$item])* pub const $constant: Self = Self($value);)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str($text),)*
                    other => write!(f, concat!($generic, "{}"), other),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = DnsError;

            /// Reads the mnemonic, in any case, or the generic form of RFC 3597 §5.
            fn from_str(text: &str) -> Result<Self, DnsError> {
                $(if text.eq_ignore_ascii_case($text) { return Ok(Self($value)); })*
                let prefix = text.get(..$generic.len()).filter(|prefix| prefix.eq_ignore_ascii_case($generic));
                let number = prefix.map(|prefix| &text[prefix.len()..]).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
                number.and_then(|number| number.parse().ok()).map(Self).ok_or(DnsError::DataText)
            }
        }
    };
}

numbers! {
    /// The type of a record or of a question. Any number is valid; those with a constant have a mnemonic.
    ///
    /// ```
    /// use tidegate::dns::RecordType;
    ///
    /// assert_eq!("aaaa".parse(), Ok(RecordType::AAAA));
    /// assert_eq!((RecordType::HTTPS.to_string(), RecordType(4711).to_string()), ("HTTPS".into(), "TYPE4711".into()));
    /// ```
    RecordType(u16), "TYPE" {
        /// An IPv4 address.
        A = 1 "A",
        /// A name server of a zone.
        NS = 2 "NS",
        /// The canonical name of an alias.
        CNAME = 5 "CNAME",
        /// The start of a zone of authority.
        SOA = 6 "SOA",
        /// A pointer to another name.
        PTR = 12 "PTR",
        /// The processor and operating system of a host.
        HINFO = 13 "HINFO",
        /// A mail exchange.
        MX = 15 "MX",
        /// Texts.
        TXT = 16 "TXT",
        /// A responsible person.
        RP = 17 "RP",
        /// A location of an AFS database.
        AFSDB = 18 "AFSDB",
        /// An IPv6 address.
        AAAA = 28 "AAAA",
        /// A location.
        LOC = 29 "LOC",
        /// The host and port of a service.
        SRV = 33 "SRV",
        /// A rule that rewrites names.
        NAPTR = 35 "NAPTR",
        /// The alias of all names below a name.
        DNAME = 39 "DNAME",
        /// The pseudo-record of EDNS.
        OPT = 41 "OPT",
        /// A delegation signer.
        DS = 43 "DS",
        /// The fingerprint of an SSH key.
        SSHFP = 44 "SSHFP",
        /// The signature of a set of records.
        RRSIG = 46 "RRSIG",
        /// The next name of a signed zone.
        NSEC = 47 "NSEC",
        /// A key of a zone.
        DNSKEY = 48 "DNSKEY",
        /// The next hashed name of a signed zone.
        NSEC3 = 50 "NSEC3",
        /// The parameters of hashed names.
        NSEC3PARAM = 51 "NSEC3PARAM",
        /// The association of a TLS certificate.
        TLSA = 52 "TLSA",
        /// The association of an S/MIME certificate.
        SMIMEA = 53 "SMIMEA",
        /// The DS that a child asks for.
        CDS = 59 "CDS",
        /// The DNSKEY that a child asks for.
        CDNSKEY = 60 "CDNSKEY",
        /// An OpenPGP key.
        OPENPGPKEY = 61 "OPENPGPKEY",
        /// A service binding.
        SVCB = 64 "SVCB",
        /// A service binding for HTTP.
        HTTPS = 65 "HTTPS",
        /// A sender policy, replaced by TXT.
        SPF = 99 "SPF",
        /// A signature of a transaction.
        TSIG = 250 "TSIG",
        /// An incremental transfer of a zone.
        IXFR = 251 "IXFR",
        /// A transfer of a zone.
        AXFR = 252 "AXFR",
        /// All types, in a question.
        ANY = 255 "ANY",
        /// The authorities that may issue certificates.
        CAA = 257 "CAA",
    }
}

impl RecordType {
    /// Whether only questions or a single message have this type, so that no zone and no cache has records of it
    /// (RFC 6895 §3.1, and OPT).
    #[must_use]
    pub const fn is_meta(self) -> bool {
        self.0 == 0 || self.0 == Self::OPT.0 || (self.0 >= 128 && self.0 <= 255)
    }
}

numbers! {
    /// The class of a record or of a question.
    Class(u16), "CLASS" {
        /// The Internet.
        IN = 1 "IN",
        /// Chaosnet; servers answer for their version in it.
        CH = 3 "CH",
        /// Hesiod.
        HS = 4 "HS",
        /// None, in updates.
        NONE = 254 "NONE",
        /// All classes, in a question.
        ANY = 255 "ANY",
    }
}

numbers! {
    /// The operation of a message.
    Opcode(u8), "OPCODE" {
        /// A query.
        QUERY = 0 "QUERY",
        /// The status of a server.
        STATUS = 2 "STATUS",
        /// A changed zone.
        NOTIFY = 4 "NOTIFY",
        /// An update of a zone.
        UPDATE = 5 "UPDATE",
        /// Stateful operations (RFC 8490).
        DSO = 6 "DSO",
    }
}

numbers! {
    /// The response code, with the upper eight bits that EDNS adds.
    ResponseCode(u16), "RCODE" {
        /// No error; with no record of the type this means that the name exists or has names below it.
        NOERROR = 0 "NOERROR",
        /// The server could not read the query.
        FORMERR = 1 "FORMERR",
        /// The server failed.
        SERVFAIL = 2 "SERVFAIL",
        /// The name does not exist.
        NXDOMAIN = 3 "NXDOMAIN",
        /// The server does not implement the operation.
        NOTIMP = 4 "NOTIMP",
        /// The server refuses by policy.
        REFUSED = 5 "REFUSED",
        /// The server is not authoritative for the zone.
        NOTAUTH = 9 "NOTAUTH",
        /// The EDNS version is not supported.
        BADVERS = 16 "BADVERS",
        /// The server cookie is missing or wrong.
        BADCOOKIE = 23 "BADCOOKIE",
    }
}
