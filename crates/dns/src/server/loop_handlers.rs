//! `LoopHandlers`: the query handlers of all loops of a server, which its listeners of every transport share.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tidegate_codec::Pipeline;
use tidegate_engine::{Listener, ServedListener, task};
use tidegate_sys::Address;

use super::Response;
use super::counters::{Counters, ServerMetrics, count};
use super::handler::StreamHandler;
use super::in_flight::{InFlight, Place};
use super::limits::ServerLimits;
use super::query_handler::{Begun, QueryHandler, begin};
use crate::error::DnsError;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::numbers::ResponseCode;

/// The query handlers of a [`DnsServer`](super::DnsServer), one a loop. A clone has the same. All listeners of the server
/// share them, with their queries in flight: also one over TLS, and one of a protocol that carries messages in requests of
/// its own.
///
/// ```no_run
/// use std::sync::Arc;
/// use tidegate::dns::server::DnsServer;
/// use tidegate::dns::{ServerCodec, Zone};
/// use tidegate::tls::ServerConfig;
/// use tidegate::{Listener, Over};
///
/// # fn start(tls: ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None)?);
/// let server = DnsServer::bind("127.0.0.1:0")?;
/// let handlers = server.handlers(move |_loop| zone.clone());
///
/// // DNS over TLS (RFC 7858).
/// let tls = tls.with_alpn(["dot"]);
/// let over_tls =
///     handlers.serve(Listener::bind("127.0.0.1:853")?, move || Over::new(tls.accept(), ServerCodec::default()));
/// let server = server.listener(over_tls).start_with(&handlers)?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
pub struct LoopHandlers<H> {
    id: u64,
    limits: ServerLimits,
    metrics: ServerMetrics,
    make: Arc<dyn Fn(usize) -> H + Send + Sync>,
}

/// Answers queries on one loop, for a protocol that carries messages in requests of its own, such as DNS over HTTPS.
#[derive(Debug)]
pub struct QueryService<H> {
    pub(super) handler: Rc<H>,
    pub(super) in_flight: Rc<InFlight>,
    pub(super) counters: Arc<Counters>,
    pub(super) in_flight_per_connection_max: usize,
}

impl<H: QueryHandler + 'static> LoopHandlers<H> {
    pub(super) fn new(
        limits: ServerLimits,
        metrics: &ServerMetrics,
        make: impl Fn(usize) -> H + Send + Sync + 'static,
    ) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, limits, metrics: metrics.clone(), make: Arc::new(make) }
    }

    /// Serves streams of messages behind their lengths: over TCP, or TLS. `pipeline` makes the pipeline of each connection,
    /// with a [`ServerCodec`](crate::ServerCodec) at its upper end.
    pub fn serve<P: Pipeline<In = crate::Message, Out = EncodedMessage>>(
        &self,
        listener: Listener,
        pipeline: impl Fn() -> P + Send + Sync + 'static,
    ) -> ServedListener {
        let (handlers, pipeline) = (self.clone(), Arc::new(pipeline));
        listener.handle_each(move |number| {
            let (service, pipeline) = (handlers.on_loop(number), pipeline.clone());
            move |_: &Address| (pipeline(), StreamHandler::shared(&service))
        })
    }

    /// The handler of this thread's loop; `None` if no listener of the server runs on it.
    #[must_use]
    pub fn of_this_loop(&self) -> Option<Rc<QueryService<H>>> {
        SERVICES.with_borrow(|services| {
            let mut of_server = services.iter().filter(|(other, _)| *other == self.id);
            of_server.find_map(|(_, service)| service.upgrade()?.downcast().ok())
        })
    }

    /// The handler of this thread's loop. The first listener there makes it.
    pub(super) fn on_loop(&self, number: usize) -> Rc<QueryService<H>> {
        self.of_this_loop().unwrap_or_else(|| {
            let service = Rc::new(QueryService {
                handler: Rc::new((self.make)(number)),
                in_flight: Rc::new(InFlight::new(&self.limits)),
                counters: self.metrics.register(),
                in_flight_per_connection_max: self.limits.in_flight_per_connection_max,
            });
            let weak: Weak<dyn Any> = Rc::downgrade(&(service.clone() as Rc<dyn Any>));
            SERVICES.with_borrow_mut(|services| {
                services.retain(|(_, service)| service.strong_count() > 0);
                services.push((self.id, weak));
            });
            service
        })
    }
}

impl<H: QueryHandler + 'static> QueryService<H> {
    /// The response to a message. `client` counts its queries in flight. Without room for one more, the handler answers from
    /// its cache, or the response is SERVFAIL. Dropping the future gives the query up.
    ///
    /// # Errors
    /// [`DnsError`] if the bytes are no query.
    pub async fn answer(&self, query: &[u8], client: Option<IpAddr>) -> Result<EncodedMessage, DnsError> {
        let message = MessageView::parse(query)
            .and_then(|message| if message.header().is_response { Err(DnsError::Direction) } else { Ok(message) });
        let message = message.inspect_err(|_| count(&self.counters.malformed))?;
        count(&self.counters.https_queries);
        let client = client.map(|client| client.to_canonical());
        let can_wait = self.in_flight.has_room(client);
        match begin(&*self.handler, message, client, None, task::now(), can_wait) {
            Begun::Ready(message) => Ok(message),
            Begun::Waiting(parts, future) if can_wait => {
                let place = Place::take(&self.in_flight, client);
                let response = future.await;
                drop(place);
                Ok(parts.encode(&response, None))
            }
            Begun::Waiting(parts, _) => {
                count(&self.counters.overloaded);
                Ok(parts.encode(&Response::of_code(ResponseCode::SERVFAIL), None))
            }
        }
    }
}

/// The message in a text of base64url without padding, such as the parameter `dns` of a GET request (RFC 8484 §6). `None`
/// for another text, and for a message of more than 65,535 bytes.
#[must_use]
pub fn from_base64url(text: &[u8]) -> Option<Vec<u8>> {
    let message = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    (message.len() <= usize::from(u16::MAX)).then_some(message)
}

impl<H> Clone for LoopHandlers<H> {
    fn clone(&self) -> Self {
        Self { id: self.id, limits: self.limits, metrics: self.metrics.clone(), make: self.make.clone() }
    }
}

impl<H> fmt::Debug for LoopHandlers<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandlers").field("limits", &self.limits).finish_non_exhaustive()
    }
}

thread_local! {
    /// The services of this thread's loop by the numbers of their servers.
    static SERVICES: RefCell<Vec<(u64, Weak<dyn Any>)>> = const { RefCell::new(Vec::new()) };
}

/// Numbers servers of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
