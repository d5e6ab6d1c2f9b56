//! `DnsProvider`: sets the records by which DNS-01 validates a name.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Sets the records of DNS-01 (RFC 8555 §8.4) at the name servers of a domain. Its methods may block: each call has a
/// thread of its own.
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

    /// Removes the record with this value, also after [`set`](Self::set) has failed: a part of the name servers may have it. A
    /// process that is killed in the middle of an attempt leaves it there.
    ///
    /// # Errors
    /// The record cannot be removed, which is logged.
    fn remove(&self, name: &str, value: &str) -> io::Result<()>;
}

/// The name of the record for a name, or for a wildcard.
pub(crate) fn record_name(name: &str) -> String {
    format!("_acme-challenge.{}", name.strip_prefix(WILDCARD).unwrap_or(name))
}

/// Runs work on a thread of its own: it may take minutes, which the few threads for blocking work do not have.
///
/// # Errors
/// There is no thread, or the work panics.
pub(crate) async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let shared = Arc::<DnsThread<T>>::default();
    let finish = DnsThreadEnd(shared.clone());
    std::thread::Builder::new().name("acme-dns".to_owned()).spawn(move || finish.with(Ok(work())))?;
    poll_fn(|cx| {
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// The state that a thread and the future of its result share.
struct DnsThread<T> {
    state: Mutex<DnsThreadState<T>>,
}

struct DnsThreadState<T> {
    result: Option<io::Result<T>>,
    waker: Option<Waker>,
}

/// Reports the result of a thread: an error if it is dropped without one.
struct DnsThreadEnd<T>(Arc<DnsThread<T>>);

impl<T> Default for DnsThread<T> {
    fn default() -> Self {
        Self { state: Mutex::new(DnsThreadState { result: None, waker: None }) }
    }
}

impl<T> DnsThreadEnd<T> {
    fn with(&self, result: io::Result<T>) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result.get_or_insert(result);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for DnsThreadEnd<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.with(Err(io::Error::other("the provider of DNS-01 panics")));
        }
    }
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
