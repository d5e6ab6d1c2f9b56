//! `StreamHandler`: a connection of a server.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_codec::Pipeline;
use tidegate_engine::{Context, Event, Handler, Outcome, Remote, task};

use super::Response;
use super::counters::{Counters, count};
use super::in_flight::{InFlight, Place};
use super::limits::ServerLimits;
use super::loop_handlers::QueryService;
use super::query_handler::{Begun, QueryHandler, begin};
use crate::message_view::Message;
use crate::message_writer::EncodedMessage;
use crate::numbers::ResponseCode;

/// The connection of a server over TCP or TLS. Responses leave as they are ready, in any order (RFC 7766 §6.2.1.1); those
/// of a handler that answers at once leave in the order of the queries. While the client does not read, the loop decodes
/// no further query, so a client that sends a thousand of them fills its own kernel; nor does it while
/// [`in_flight_per_connection_max`](super::ServerLimits::in_flight_per_connection_max) queries wait for their responses. A
/// drain reads no further query, and closes the connection once those in flight are answered.
///
/// [`LoopHandlers::serve`](super::LoopHandlers::serve) makes one for each connection, whose queries count with all others of
/// the loop. A server without it makes them itself, and each has the default limits for itself:
///
/// ```
/// use std::sync::Arc;
/// use tidegate::Server;
/// use tidegate::dns::server::StreamHandler;
/// use tidegate::dns::{ServerCodec, Zone};
///
/// let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None)?);
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(move || (ServerCodec::default(), StreamHandler::new(zone.clone())))?;
/// # let _ = server.address();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StreamHandler<H> {
    handler: Rc<H>,
    counters: Arc<Counters>,
    client: Option<IpAddr>,
    remote: Option<Remote<EncodedMessage>>,
    /// Queries without a response in the connection's queue.
    in_flight: usize,
    in_flight_max: usize,
    of_loop: Rc<InFlight>,
    /// Responses that wait until the client has read others: at most those of the queries in flight, whose places they keep.
    waiting: VecDeque<(EncodedMessage, Place)>,
    is_paused: bool,
    /// No further query comes, or none is read: the connection closes with the last response.
    is_ending: bool,
}

impl<H: QueryHandler> StreamHandler<H> {
    /// A handler of one connection.
    pub fn new(handler: H) -> Self {
        let limits = ServerLimits::default();
        Self::shared(&QueryService {
            handler: Rc::new(handler),
            in_flight: Rc::new(InFlight::new(&limits)),
            counters: Arc::default(),
            in_flight_per_connection_max: limits.in_flight_per_connection_max,
        })
    }

    pub(super) fn shared(service: &QueryService<H>) -> Self {
        Self {
            handler: service.handler.clone(),
            counters: service.counters.clone(),
            client: None,
            remote: None,
            in_flight: 0,
            in_flight_max: service.in_flight_per_connection_max.max(1),
            of_loop: service.in_flight.clone(),
            waiting: VecDeque::new(),
            is_paused: false,
            is_ending: false,
        }
    }

    /// Sends the responses that wait, as far as the client reads, and reads on.
    fn send_waiting<P: Pipeline<In = Message, Out = EncodedMessage>>(
        &mut self,
        cx: &mut Context<'_, P, EncodedMessage>,
    ) -> Outcome<P> {
        while cx.is_writable()
            && let Some((message, _)) = self.waiting.pop_front()
        {
            self.in_flight -= 1;
            if let Err(error) = cx.send(message) {
                return Outcome::fail(error);
            }
        }
        if self.is_ending && self.in_flight == 0 {
            return Outcome::Close;
        }
        if self.is_paused && !cx.is_draining() && self.in_flight < self.in_flight_max {
            self.is_paused = false;
            cx.resume();
        }
        Outcome::Continue
    }
}

fn send<P: Pipeline<Out = EncodedMessage>>(
    message: EncodedMessage,
    cx: &mut Context<'_, P, EncodedMessage>,
) -> Outcome<P> {
    match cx.send(message) {
        Ok(_) => Outcome::Continue,
        Err(error) => Outcome::fail(error),
    }
}

impl<H, P> Handler<P> for StreamHandler<H>
where
    H: QueryHandler + 'static,
    P: Pipeline<In = Message, Out = EncodedMessage>,
{
    type Post = EncodedMessage;

    fn message(&mut self, query: Message, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        count(&self.counters.stream_queries);
        if self.client.is_none() {
            self.client = cx.peer().ip().map(|address| address.ip().to_canonical());
        }
        let can_wait = self.of_loop.has_room(self.client);
        match begin(&*self.handler, query.view(), self.client, None, cx.now(), can_wait) {
            Begun::Ready(message) => send(message, cx),
            Begun::Waiting(parts, future) if can_wait => {
                self.in_flight += 1;
                if self.in_flight >= self.in_flight_max {
                    self.is_paused = true;
                    cx.pause();
                }
                let place = Place::take(&self.of_loop, self.client);
                let remote = self.remote.get_or_insert_with(|| cx.remote()).clone();
                drop(task::spawn(async move {
                    let response = future.await;
                    drop(place);
                    // The connection may have closed.
                    let _ = remote.post(parts.encode(&response, None));
                }));
                Outcome::Continue
            }
            Begun::Waiting(parts, _) => {
                count(&self.counters.overloaded);
                send(parts.encode(&Response::of_code(ResponseCode::SERVFAIL), None), cx)
            }
        }
    }

    fn event(&mut self, event: Event<EncodedMessage>, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        match event {
            Event::Posted(message) => {
                self.waiting.push_back((message, Place::take(&self.of_loop, self.client)));
                self.send_waiting(cx)
            }
            Event::Writable if !self.waiting.is_empty() => self.send_waiting(cx),
            // The client sends no further query, and may still read the responses.
            Event::ReadClosed if self.in_flight > 0 => {
                self.is_ending = true;
                Outcome::Continue
            }
            Event::Drain if self.in_flight > 0 => {
                (self.is_ending, self.is_paused) = (true, true);
                cx.pause();
                Outcome::Continue
            }
            event => event.by_default(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_engine::{Client, Limits};
    use tidegate_testkit::network::Network;

    use super::*;
    use crate::server::{ClientQuery, Reply};
    use crate::{ClientCodec, Header, MessageWriter, Question, Rdata, Record, RecordType, ServerCodec};

    /// Each name has 50,000 bytes, which are there later.
    struct Long;

    impl QueryHandler for Long {
        fn query(&self, query: &ClientQuery<'_>) -> Reply {
            let text = vec![[7_u8; 250]; 200];
            let data = Rdata::txt(text.iter().map(|part| &part[..])).unwrap();
            let answers = vec![Record::new(query.question.name.clone(), 60, data)];
            Reply::later(async { Response { answers, ..Response::of_code(ResponseCode::NOERROR) } })
        }
    }

    /// A client that sends queries and reads no response but the first.
    struct Unread;

    impl Handler<ClientCodec> for Unread {
        type Post = EncodedMessage;

        fn message(&mut self, _: Message, cx: &mut Context<'_, ClientCodec, EncodedMessage>) -> Outcome<ClientCodec> {
            cx.pause();
            Outcome::Continue
        }

        fn event(
            &mut self,
            event: Event<EncodedMessage>,
            cx: &mut Context<'_, ClientCodec, EncodedMessage>,
        ) -> Outcome<ClientCodec> {
            match event {
                Event::Posted(query) => send(query, cx),
                event => event.by_default(cx),
            }
        }
    }

    #[test]
    fn responses_that_a_client_does_not_read_keep_the_places_of_their_queries() {
        let network = Network::new(1);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.9").node());
        let limits = ServerLimits::default();
        let service = Rc::new(QueryService {
            handler: Rc::new(Long),
            in_flight: Rc::new(InFlight::new(&limits)),
            counters: Arc::default(),
            in_flight_per_connection_max: limits.in_flight_per_connection_max,
        });
        let of_server = service.clone();
        let serve = move |_: &_| (ServerCodec::default(), StreamHandler::shared(&of_server));
        let address = server.listen(53, Limits::default(), serve).unwrap();
        let task = client.spawn(async move {
            let remote = Client::at(address).connect_with(ClientCodec::default(), Unread).await.unwrap();
            for id in 0..100 {
                let question = Question::new("long.example".parse().unwrap(), RecordType::TXT);
                remote.post(MessageWriter::new(Header::query(id)).question(&question).unwrap().finish()).unwrap();
            }
            task::sleep(Duration::from_secs(5)).await;
            remote
        });
        let remote = network.run_task(Duration::from_secs(60), task);
        let waiting = service.in_flight.places();
        assert!(waiting > 10, "{waiting} of 100 responses wait");
        drop((remote, client));
        network.run_for(Duration::from_secs(60));
        assert_eq!(service.in_flight.places(), 0, "the connection has closed");
    }
}
