//! `ServerConnection`: the connection to one server, and the queries that went over it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::{Rc, Weak};

use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome, Remote, task};

use super::name_server::ResponsePipeline;
use super::{IDLE, Shared};
use crate::message_view::Message;
use crate::message_writer::EncodedMessage;
use crate::resolver::Transport;

/// An open connection to a server.
#[derive(Debug, Clone)]
pub(super) struct OpenConnection {
    pub(super) remote: Remote<EncodedMessage>,
    pub(super) sent: Rc<SentQueries>,
}

/// The IDs of the queries that went over one connection and have no response. The handler of the connection has them too: when
/// it closes, these queries are lost, and no query of the connection that replaces it.
#[derive(Debug, Default)]
pub(super) struct SentQueries(RefCell<HashSet<u16>>);

impl SentQueries {
    pub(super) fn insert(&self, id: u16) {
        self.0.borrow_mut().insert(id);
    }

    fn remove(&self, id: u16) {
        self.0.borrow_mut().remove(&id);
    }

    pub(super) fn take(&self) -> HashSet<u16> {
        self.0.take()
    }
}

/// The handler of a connection to a server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    shared: Weak<Shared>,
    server: usize,
    sent: Rc<SentQueries>,
}

impl ServerConnection {
    pub(super) fn new(shared: &Rc<Shared>, server: usize, sent: Rc<SentQueries>) -> Self {
        Self { shared: Rc::downgrade(shared), server, sent }
    }

    /// Whether a lookup waits for a response of the server.
    fn is_waited_for(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.resolver.borrow().is_waiting(self.server, Transport::Stream))
    }
}

impl<P: ResponsePipeline> Handler<P> for ServerConnection {
    type Post = EncodedMessage;

    fn message(&mut self, message: Message, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        let Some(shared) = self.shared.upgrade() else { return Outcome::Close };
        self.sent.remove(message.view().header().id);
        shared.resolver.borrow_mut().handle_stream_message(self.server, message.wire(), cx.now());
        Shared::pump(&shared);
        if cx.is_draining() && !self.is_waited_for() {
            return Outcome::Close;
        }
        cx.deadline_after(IDLE);
        Outcome::Continue
    }

    fn event(&mut self, event: Event<EncodedMessage>, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        match event {
            Event::Posted(message) => {
                cx.deadline_after(IDLE);
                match cx.send(message) {
                    Ok(_) => Outcome::Continue,
                    Err(error) => Outcome::fail(error),
                }
            }
            Event::Deadline => Outcome::Close,
            // It closes with the last response.
            Event::Drain if self.is_waited_for() => Outcome::Continue,
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        let Some(shared) = self.shared.upgrade() else { return };
        // The loop calls this within its own borrow of the connection, so a task does the rest.
        let (server, sent) = (self.server, self.sent.clone());
        drop(task::spawn(async move { Shared::on_closed(&shared, server, &sent) }));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use tidegate_engine::{Client, Limits};
    use tidegate_testkit::network::Network;

    use super::super::name_server::{StreamConnector, StreamTransport};
    use super::*;
    use crate::server::StreamHandler;
    use crate::{CacheConfig, NameServer, RecordType, ResolverConfig, ServerCodec, SharedCache, StubResolver, Zone};

    #[test]
    fn a_connection_that_is_reported_as_closed_late_takes_no_query_of_the_next_one() {
        let network = Network::new(1);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.9").node());
        let file = "tides.example. 60 SOA . . 1 2 3 4 5\nwww.tides.example. 60 A 192.0.2.1\nftp.tides.example. 60 A 192.0.2.2\n";
        let zone = Arc::new(Zone::parse(file, None).unwrap());
        let serve = move |_: &_| (ServerCodec::default(), StreamHandler::new(zone.clone()));
        let address = server.listen(53, Limits::default(), serve).unwrap();
        let task = client.spawn(async move {
            let (config, cache) = (ResolverConfig::default(), SharedCache::new(CacheConfig::default()));
            let servers = vec![NameServer::over_streams(Client::at(address))];
            let open = |_| Err(std::io::ErrorKind::Unsupported.into());
            let resolver = StubResolver::simulated(servers, config, cache, 1, open);
            let www = resolver.lookup(&"www.tides.example".parse().unwrap(), RecordType::A).await;
            let old = resolver.shared.servers[0].connection.take().unwrap();
            let (name, counts) = ("ftp.tides.example".parse().unwrap(), resolver.counts());
            let ftp = resolver.begin(&name, RecordType::A);
            Shared::on_closed(&resolver.shared, 0, &old.sent);
            let waiting = resolver.shared.servers[0].queue.borrow().len();
            let ftp = StubResolver::wait(ftp).await;
            (www.is_ok(), counts.stream_queries, waiting, ftp.is_ok(), resolver.counts().stream_queries)
        });
        // The second lookup has one query, which the first connection does not take along.
        assert_eq!(network.run_task(Duration::from_secs(60), task), (true, 1, 1, true, 2));
    }

    /// Closes each connection as it opens.
    struct Closing(Rc<Cell<u32>>);

    impl Handler<ServerCodec> for Closing {
        type Post = EncodedMessage;

        fn open(&mut self, _: &mut Context<'_, ServerCodec, EncodedMessage>) -> Outcome<ServerCodec> {
            self.0.set(self.0.get() + 1);
            Outcome::Close
        }

        fn message(&mut self, _: Message, _: &mut Context<'_, ServerCodec, EncodedMessage>) -> Outcome<ServerCodec> {
            Outcome::Close
        }
    }

    #[test]
    fn a_server_that_closes_each_connection_at_once_gets_one_for_each_attempt() {
        let network = Network::new(1);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.9").node());
        let opened = Rc::<Cell<u32>>::default();
        let count = opened.clone();
        let serve = move |_: &_| (ServerCodec::default(), Closing(count.clone()));
        let address = server.listen(53, Limits::default(), serve).unwrap();
        let task = client.spawn(async move {
            let (config, cache) = (ResolverConfig::default(), SharedCache::new(CacheConfig::default()));
            let mut server = NameServer::over_streams(Client::at(address.clone()));
            // The connection may be closed already when the task of the lookup has it.
            server.transport = StreamTransport::Connection(StreamConnector::of(move |handler| {
                let client = Client::at(address.clone());
                Box::pin(async move {
                    let remote = client.connect_with(crate::ClientCodec::default(), handler).await.ok()?;
                    while !remote.is_closed() {
                        task::sleep(Duration::from_millis(1)).await;
                    }
                    Some(remote)
                })
            }));
            let open = |_| Err(std::io::ErrorKind::Unsupported.into());
            let resolver = StubResolver::simulated(vec![server], config, cache, 1, open);
            let looked_up = resolver.lookup(&"www.tides.example".parse().unwrap(), RecordType::A).await;
            task::sleep(Duration::from_secs(60)).await;
            (looked_up.is_err(), resolver.counts().stream_queries)
        });
        let (has_failed, queries) = network.run_task(Duration::from_secs(300), task);
        assert!(has_failed);
        assert_eq!(u64::from(opened.get()), queries);
    }
}
