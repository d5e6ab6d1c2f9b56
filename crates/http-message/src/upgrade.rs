//! `Upgrade`: the successor on a connection that leaves HTTP.

use std::error::Error;
use std::fmt;
use std::future::Future;

use tidegate_codec::{DynOver, Filters, Pipeline};
use tidegate_engine::{Channel, Handler, Switch};

/// The successor on a connection after a response: the codec of another protocol, with a handler or a task. A response
/// carries it: `Response::upgrade` and `Response::tunnel` of `tidegate::http`.
///
/// The pipeline is a [`DynOver`]: the codec over the filters that the connection has, such as TLS, whose types are erased.
/// Bytes that the peer has sent behind its request are the first that the codec decodes.
pub struct Upgrade(Switch<Filters>);

impl Upgrade {
    /// A codec, and a task that serves the connection.
    pub fn channel<C, F, E>(codec: C, serve: impl FnOnce(Channel<DynOver<C>>) -> F + 'static) -> Self
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self(Switch::channel(move |filters: Filters| filters.stack(codec), serve))
    }

    #[doc(hidden)]
    #[must_use]
    pub fn into_switch(self) -> Switch<Filters> {
        self.0
    }

    /// A codec and a handler.
    pub fn handler<C: Pipeline, H: Handler<DynOver<C>>>(codec: C, handler: H) -> Self {
        Self(Switch::handler(move |filters: Filters| (filters.stack(codec), handler)))
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}
