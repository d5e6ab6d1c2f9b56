//! `ConfigError`: why TLS cannot be configured, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why certificates, or the configuration of a role, cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file is longer than any file of certificates or keys is: 1 MiB.
    TooLong(PathBuf),
    /// There is no certificate in the PEM text.
    NoCertificate(PathBuf),
    /// There is no private key in the PEM text.
    NoKey(PathBuf),
    /// The PEM text is malformed.
    Pem(PathBuf),
    /// The provider cannot use the private key.
    Key(PathBuf, rustls::Error),
    /// The private key is not that of the first certificate.
    KeyMismatch(PathBuf),
    /// The first certificate is malformed.
    Certificate(PathBuf),
    /// There are no root certificates to verify peers with.
    NoRoots,
    /// An ALPN protocol name is empty, or longer than 255 bytes.
    ProtocolName,
    /// rustls refuses the configuration.
    Tls(rustls::Error),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::TooLong(path) => {
                write!(f, "{} is longer than 1 MiB: it is no certificate and no key", path.display())
            }
            Self::NoCertificate(path) => {
                write!(f, "{} has no certificate: it needs a section BEGIN CERTIFICATE", path.display())
            }
            Self::NoKey(path) => write!(
                f,
                "{} has no private key: it needs a section BEGIN PRIVATE KEY that is not encrypted",
                path.display()
            ),
            Self::Pem(path) => write!(f, "{} is not valid PEM", path.display()),
            Self::Key(path, error) => write!(f, "cannot use the private key in {}: {error}", path.display()),
            Self::KeyMismatch(path) => {
                write!(f, "the private key does not belong to the first certificate in {}", path.display())
            }
            Self::Certificate(path) => write!(f, "the first certificate in {} is malformed", path.display()),
            Self::NoRoots => f.write_str("there are no root certificates to verify peers with"),
            Self::ProtocolName => f.write_str("an ALPN protocol name has 1 to 255 bytes"),
            Self::Tls(error) => write!(f, "cannot configure TLS: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Key(_, error) | Self::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}
