//! `Resolve`: from the name of a host to its addresses.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

/// Resolves the names of hosts. The default is the system's resolver, on a thread for blocking work.
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::http::client::{Resolve, Resolving};
/// use tidegate::http::Client;
///
/// /// Knows one host.
/// struct Fixed(SocketAddr);
///
/// impl Resolve for Fixed {
///     fn resolve(&self, _: &str, _: u16) -> Resolving {
///         let address = self.0;
///         Box::pin(async move { Ok(vec![address]) })
///     }
/// }
///
/// let client = Client::builder().resolver(Fixed(([127, 0, 0, 1], 8080).into())).build();
/// # drop(client);
/// ```
pub trait Resolve: 'static {
    /// The addresses of a host, in the order in which to try them. An IP address in the place of a name is not asked for.
    ///
    /// [`resolve_timeout`](crate::ConnectLimits::resolve_timeout) bounds how long it may take: the future is
    /// dropped then.
    fn resolve(&self, host: &str, port: u16) -> Resolving;
}

/// The future of [`Resolve::resolve`].
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

/// The system's resolver. The families of the addresses take turns (RFC 8305 §4).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let resolving = tidegate_engine::resolve(host, port);
        Box::pin(async move { resolving.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}
