//! The end of a client's loop: each command has a result.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll, Waker};

use tidegate_engine::{Backend, Client as Target, EventLoop, Server};
use tidegate_redis::{
    AggregateKind, Answer, CallContext, Client, ClientBuilder, ClientError, Command, Failure, Handler, OutgoingReply,
    ServerCodec, Service,
};

/// A cluster of one server, which never answers GET.
struct Silent {
    port: Arc<AtomicU16>,
}

impl Service for Silent {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        let (aggregate, integer) =
            (|count| OutgoingReply::Aggregate(AggregateKind::Array, count), |number| OutgoingReply::Integer(number));
        match command.name() {
            b"GET" => Answer::later(pending()),
            b"CLUSTER" => OutgoingReply::All(vec![
                aggregate(1),
                aggregate(3),
                integer(0),
                integer(16_383),
                aggregate(3),
                OutgoingReply::bulk("127.0.0.1"),
                integer(self.port.load(Ordering::Relaxed).into()),
                OutgoingReply::bulk("id"),
            ])
            .into(),
            _ => Answer::Unknown,
        }
    }
}

/// The result that an idempotent command in flight has after the end of its loop.
fn result_after_the_end(
    backend: Backend,
    connect: fn(&str, Target) -> ClientBuilder,
    choose: fn(&Client) -> Client,
) -> Option<Poll<Result<tidegate_redis::OwnedValue, ClientError>>> {
    let mut event_loop = EventLoop::on(backend).ok()?;
    let port = Arc::<AtomicU16>::default();
    let of_server = port.clone();
    let make = move || (ServerCodec::default(), Handler::new(Silent { port: of_server.clone() }));
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).backend(backend).start(make).expect("it starts");
    let address = server.address().ip().expect("an IP address");
    port.store(address.port(), Ordering::Relaxed);
    let target = Target::at(server.address().clone());
    let late = event_loop.block_on(async move {
        let owner = connect(&address.to_string(), target).start();
        let client = choose(&owner);
        // Both are sent in one turn, so the second is in flight when the first has its reply.
        let first = client.cmd("ECHO").arg("a").key("a").send();
        let late = client.cmd("GET").arg("a").idempotent().send();
        first.await.expect("a reply");
        Some(late)
    });
    drop(event_loop);
    let late = late.expect("the loop runs").expect("it is there");
    let result = pin!(late).poll(&mut Context::from_waker(Waker::noop()));
    server.drain(std::time::Duration::ZERO);
    Some(result)
}

#[test]
fn an_idempotent_command_in_flight_fails_when_its_loop_ends() {
    let one = |_: &str, target| Client::over(target);
    let cluster = |address: &str, _| Client::cluster([address]).expect("an address");
    for backend in [Backend::Epoll, Backend::Uring] {
        let shared = result_after_the_end(backend, one, Client::clone);
        let dedicated = result_after_the_end(backend, one, |client| (*client.dedicated()).clone());
        let of_cluster = result_after_the_end(backend, cluster, Client::clone);
        let ended = Some(Poll::Ready(Err(ClientError::MaybeExecuted(Failure::LoopEnded))));
        for (kind, result) in [("shared", shared), ("dedicated", dedicated), ("cluster", of_cluster)] {
            assert!(result.is_none() || result == ended, "{kind} {backend:?}: {result:?}");
        }
    }
}
