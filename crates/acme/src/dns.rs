//! `DnsProvider`: sets the records by which DNS-01 validates a name.

use std::io;

/// Sets the records of DNS-01 (RFC 8555 §8.4) at the name servers of a domain. Its methods may block: they are called on
/// threads for blocking work.
///
/// ```
/// use std::io;
/// use tidegate::acme::DnsProvider;
///
/// struct Printed;
///
/// impl DnsProvider for Printed {
///     fn set(&self, name: &str, value: &str) -> io::Result<()> {
///         println!("{name} IN TXT \"{value}\"");
///         Ok(())
///     }
///
///     fn remove(&self, _: &str, _: &str) -> io::Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait DnsProvider: Send + Sync + 'static {
    /// Adds a TXT record, and returns once all name servers of the domain have it: the authority asks them at once. `name`
    /// is such as `_acme-challenge.example.org`. Records with other values stay: a name and its wildcard have one each.
    ///
    /// # Errors
    /// The record cannot be set. The attempt fails, and another one follows.
    fn set(&self, name: &str, value: &str) -> io::Result<()>;

    /// Removes the record with this value. A process that is killed in the middle of an attempt leaves it there.
    ///
    /// # Errors
    /// The record cannot be removed, which is logged.
    fn remove(&self, name: &str, value: &str) -> io::Result<()>;
}

/// The name of the record for a name, or for a wildcard.
pub(crate) fn record_name(name: &str) -> String {
    format!("_acme-challenge.{}", name.strip_prefix(WILDCARD).unwrap_or(name))
}

/// The first label of a wildcard.
pub(crate) const WILDCARD: &str = "*.";

#[cfg(test)]
mod tests {
    use super::record_name;

    #[test]
    fn a_wildcard_has_the_record_of_its_domain() {
        assert_eq!(record_name("a.test"), "_acme-challenge.a.test");
        assert_eq!(record_name("*.a.test"), "_acme-challenge.a.test");
    }
}
