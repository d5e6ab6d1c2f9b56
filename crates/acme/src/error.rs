//! `InvalidAcme`: why settings cannot be used. `IssueError`: why an attempt failed. `InvalidChain`: why an issued chain is
//! refused.

use std::error::Error;
use std::fmt;
use std::io;

use instant_acme::Problem;
use tidegate_engine::BlockingError;

/// Why the settings of an [`Acme`](crate::Acme) cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidAcme {
    /// The URL of the directory is not one of `https` with a host.
    Directory,
    /// There is no name.
    NoNames,
    /// There are more names than [`names_max`](crate::AcmeLimits::names_max).
    TooManyNames,
    /// This is neither a DNS name nor an IP address.
    Name(Box<str>),
    /// A wildcard needs DNS-01 as the only kind of challenge.
    Wildcard(Box<str>),
    /// DNS-01 needs a [`DnsProvider`](crate::DnsProvider).
    NoDnsProvider,
    /// There is no kind of challenge.
    NoChallenges,
    /// The store cannot be read.
    Store(io::Error),
}

/// Why an attempt to get a certificate failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum IssueError {
    /// The authority refuses a request, or reports that a validation failed: the text is its own.
    Refused(Box<str>),
    /// The authority's rate limit is reached.
    RateLimited(Box<str>),
    /// The authority does not know the account of the store: it has lost it, or is another one now.
    UnknownAccount(Box<str>),
    /// The authority refuses one fresh nonce after the other.
    StaleNonce(Box<str>),
    /// The authority's response is malformed, or is none of ACME.
    Malformed(Box<str>),
    /// The chain that the authority has issued is refused.
    Chain(InvalidChain),
    /// The authority offers no configured kind of challenge for a name.
    NoChallenge,
    /// The authority cannot be reached: the text is that of the HTTP client.
    Unreachable(Box<str>),
    /// The attempt took longer than [`attempt_timeout`](crate::AcmeLimits::attempt_timeout).
    Timeout,
    /// The record of DNS-01 cannot be set.
    Dns(io::Error),
    /// The store cannot be read or written.
    Store(io::Error),
    /// A record in the store is malformed.
    Record(&'static str),
    /// A key or a request for a certificate cannot be made.
    Crypto,
    /// No thread was free for work that blocks.
    Busy,
}

/// Why an issued chain is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidChain {
    /// It is no PEM text with one to ten certificates.
    Pem,
    /// A certificate is malformed.
    Certificate,
    /// The first certificate is not for the key of the order.
    Key,
    /// The first certificate lacks a name of the order.
    Name,
    /// A certificate is not valid now, has no signature of the next one, or may not be used for servers.
    Signature,
    /// The first certificate does not end later than the one in use.
    NotNewer,
}

impl IssueError {
    pub(crate) fn malformed(reason: &'static str) -> Self {
        Self::Malformed(reason.into())
    }

    pub(crate) fn of_problem(problem: &Problem) -> Self {
        let text = printable(&problem.to_string());
        match problem.r#type.as_deref() {
            Some(RATE_LIMITED) => Self::RateLimited(text),
            Some(BAD_NONCE) => Self::StaleNonce(text),
            Some(UNKNOWN_ACCOUNT) => Self::UnknownAccount(text),
            _ => Self::Refused(text),
        }
    }
}

/// Text of the authority for logs: without control characters, and short.
pub(crate) fn printable(text: &str) -> Box<str> {
    let safe = text.chars().take(TEXT_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char });
    safe.collect::<String>().into()
}

impl fmt::Display for InvalidAcme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("the directory of the authority is no URL of https with a host"),
            Self::NoNames => f.write_str("there is no name to have a certificate for"),
            Self::TooManyNames => f.write_str("there are more names than AcmeLimits::names_max"),
            Self::Name(name) => write!(f, "`{name}` is neither a DNS name nor an IP address"),
            Self::Wildcard(name) => {
                write!(f, "`{name}` is a wildcard, which needs DNS-01 as the only kind of challenge")
            }
            Self::NoDnsProvider => f.write_str("DNS-01 needs a program or a provider that sets its records"),
            Self::NoChallenges => f.write_str("there is no kind of challenge: TLS-ALPN-01, HTTP-01 or DNS-01"),
            Self::Store(error) => write!(f, "the store of accounts and keys cannot be used: {error}"),
        }
    }
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "the authority refuses: {text}"),
            Self::RateLimited(text) => write!(f, "the authority's rate limit is reached: {text}"),
            Self::UnknownAccount(text) => write!(f, "the authority does not know the account: {text}"),
            Self::StaleNonce(text) => write!(f, "the authority refuses fresh nonces: {text}"),
            Self::Malformed(text) => write!(f, "the authority's response is malformed: {text}"),
            Self::Chain(reason) => write!(f, "the issued chain is refused: {reason}"),
            Self::NoChallenge => f.write_str("the authority offers no configured kind of challenge for a name"),
            Self::Unreachable(text) => write!(f, "the authority cannot be reached: {text}"),
            Self::Timeout => f.write_str("the attempt took too long; the next one continues its order"),
            Self::Dns(error) => write!(f, "the record of DNS-01 cannot be set: {}", printable(&error.to_string())),
            Self::Store(error) => write!(f, "the store of accounts and keys cannot be used: {error}"),
            Self::Record(name) => write!(f, "the record `{name}` in the store is malformed: remove it"),
            Self::Crypto => f.write_str("a key, or a request for a certificate, cannot be made"),
            Self::Busy => f.write_str("no thread was free for work that blocks"),
        }
    }
}

impl fmt::Display for InvalidChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pem => "it is no PEM text with one to ten certificates",
            Self::Certificate => "a certificate is malformed",
            Self::Key => "the first certificate is for another key",
            Self::Name => "the first certificate lacks a name",
            Self::Signature => "a certificate is not valid now, not signed by the next one, or not for servers",
            Self::NotNewer => "the first certificate ends no later than the one in use",
        })
    }
}

impl Error for InvalidAcme {}
impl Error for IssueError {}
impl Error for InvalidChain {}

impl From<instant_acme::Error> for IssueError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error as E;
        match error {
            E::Api(problem) => Self::of_problem(&problem),
            E::Crypto | E::KeyRejected => Self::Crypto,
            E::Other(error) => match error.downcast::<Self>() {
                Ok(own) => *own,
                Err(error) => Self::Malformed(printable(&error.to_string())),
            },
            error => Self::Malformed(printable(&error.to_string())),
        }
    }
}

impl From<InvalidChain> for IssueError {
    fn from(error: InvalidChain) -> Self {
        Self::Chain(error)
    }
}

impl From<io::Error> for IssueError {
    fn from(error: io::Error) -> Self {
        Self::Store(error)
    }
}

impl From<BlockingError> for IssueError {
    fn from(_: BlockingError) -> Self {
        Self::Busy
    }
}

// RFC 8555 §6.7.
const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Characters of the authority's text that a log has.
const TEXT_CHARS_MAX: usize = 500;
