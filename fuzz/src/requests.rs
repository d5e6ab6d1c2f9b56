//! Requests on a simulated network: an HTTP/1.1 server with deadlines, drains and faults, and a client that sends
//! arbitrary bytes.
//!
//! The bytes choose the network, whether there is a filter, and how the server answers; the rest is the client's
//! output, in pieces with pauses between them. In every case the handler sees a prefix of the requests that the codec
//! alone decodes from the same bytes, and in the end all connections are closed and nothing is left, as in
//! `connections.rs`.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::{
    Channel, ChannelError, Client, CloseReason, Context, Event, Handler, Limits, Outcome, SendError, task,
};
use tidegate_http1::{Chunk, Config, Incoming, Outgoing, Response, Server, Status, StreamedResponse};
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;

use crate::choices::Choices;
use crate::connections::{Scene, limits};
use crate::http1::{CONFIGS, seen_with};

/// One client, and a server that answers.
pub fn requests(data: &[u8]) {
    let mut choices = Choices::new(data);
    let scene = Scene::new(&mut choices);
    let options = choices.byte();
    let config = &CONFIGS[usize::from(options & 7)];
    let server = {
        let config = Arc::clone(config);
        move || Server::new(Arc::clone(&config))
    };
    if options & FILTERED == 0 {
        play(scene, choices, options, config, server, Raw);
    } else {
        let server = move || Over::new(ToyTls::server(KEY), server());
        play(scene, choices, options, config, server, Over::new(ToyTls::client(KEY), Raw));
    }
}

fn play<C, D>(
    scene: Scene,
    mut choices: Choices<'_>,
    options: u8,
    config: &Config,
    server: impl Fn() -> C + 'static,
    client: D,
) where
    C: Pipeline<In = Incoming, Out = Outgoing>,
    D: Pipeline<In = Slice, Out = Payload>,
{
    let way = *choices.pick(&[Way::AtTheEnd, Way::AtOnce, Way::Later, Way::InPieces, Way::Fails]);
    let limits = limits(&mut choices);
    let (made, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let make = {
        let (made, closed, seen) = (Rc::clone(&made), Rc::clone(&closed), Rc::clone(&seen));
        move |_: &Address| {
            made.set(made.get() + 1);
            (server(), Answering { way, closed: Rc::clone(&closed), seen: Rc::clone(&seen) })
        }
    };
    let address = scene.server.listen(PORT, limits, make).expect("the port is free");
    let drain = (options & DRAINS != 0).then(|| Duration::from_millis(choices.length(4096) as u64 * 8));
    let manner = Sending {
        piece: 1 + choices.length(600),
        pause: Duration::from_millis(choices.length(4096) as u64 * 4),
        ends: options & STAYS_OPEN == 0,
        patience: Duration::from_secs(choices.length(200) as u64),
    };
    let wire = choices.take(WIRE_BYTES_MAX);
    let come: Rc<RefCell<Vec<u8>>> = Rc::default();
    let is_over = Rc::new(Cell::new(false));
    let run = {
        let (come, is_over, wire) = (Rc::clone(&come), Rc::clone(&is_over), wire.to_vec());
        async move {
            // An error is a valid outcome.
            if let Ok(channel) = Client::at(address).limits(client_limits()).connect(client).await {
                let _ = manner.send(channel, &wire, &come).await;
            }
            is_over.set(true);
        }
    };
    // Dropping the handle detaches the task.
    drop(scene.client.spawn(run));
    if let Some(after) = drain {
        scene.network.run_for(after);
        scene.server.drain(Duration::from_secs(100));
    }
    assert!(scene.network.run_until(PATIENCE, || is_over.get()), "the client never finishes");
    scene.end();
    assert_eq!(closed.get(), made.get(), "`closed` runs once per handler");
    check(config, wire, &seen.borrow(), &come.borrow());
}

/// The handler has seen a prefix of the requests in `wire`, and the client has received HTTP or nothing.
fn check(config: &Config, wire: &[u8], seen: &[String], come: &[u8]) {
    let meant: Vec<_> = seen_with(config.clone(), wire)
        .requests
        .into_iter()
        .map(|request| format!("{} {}", request.method, request.target))
        .collect();
    // The body of the last request may be incomplete; a codec that collects bodies does not report that request.
    let whole = seen.len().min(meant.len());
    assert_eq!(seen[..whole], meant[..whole], "the handler saw other requests than were sent");
    assert!(seen.len() <= meant.len() + 1, "more requests than were sent: {seen:?} {meant:?}");
    assert!(come.is_empty() || b"HTTP/1.1 ".starts_with(&come[..come.len().min(9)]), "the client received no HTTP");
}

/// When and how a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    AtTheEnd,
    /// Before its body has arrived.
    AtOnce,
    Later,
    InPieces,
    Fails,
}

struct Answering {
    way: Way,
    closed: Rc<Cell<u32>>,
    seen: Rc<RefCell<Vec<String>>>,
}

impl Answering {
    fn begin<C: Pipeline<In = Incoming, Out = Outgoing>>(&self, cx: &mut Context<'_, C>) -> Outcome<C> {
        match self.way {
            Way::AtTheEnd | Way::AtOnce => said(cx.send(Response::text("ok").into())),
            Way::Later => {
                cx.deadline_after(PAUSE);
                Outcome::Continue
            }
            Way::InPieces => {
                cx.deadline_after(PAUSE);
                said(cx.send(StreamedResponse::new(Status::OK).into()))
            }
            Way::Fails => Outcome::fail("as configured"),
        }
    }
}

impl<C: Pipeline<In = Incoming, Out = Outgoing>> Handler<C> for Answering {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => {
                self.seen.borrow_mut().push(format!("{} {}", head.method_text(), head.target()));
                if head.has_body() && self.way != Way::AtOnce { Outcome::Continue } else { self.begin(cx) }
            }
            Incoming::Data(_) | Incoming::Trailers(_) | Incoming::Preface => Outcome::Continue,
            Incoming::End => self.begin(cx),
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Deadline if self.way == Way::InPieces => match said(cx.send(Chunk::new(b"piece by piece").into())) {
                Outcome::Continue => said(cx.send(Outgoing::End)),
                outcome => outcome,
            },
            Event::Deadline => said(cx.send(Response::text("late").into())),
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        self.closed.set(self.closed.get() + 1);
    }
}

/// The outcome of a send. Not every message is a valid response to every request, since a successful CONNECT has no
/// body; then the connection fails.
fn said<C: Pipeline, T, E: Error + 'static>(result: Result<T, SendError<Outgoing, E>>) -> Outcome<C> {
    result.into()
}

/// How a client sends.
#[derive(Debug, Clone, Copy)]
struct Sending {
    piece: usize,
    pause: Duration,
    /// Shuts down its write half after the wire.
    ends: bool,
    /// How long it waits for more from the server.
    patience: Duration,
}

impl Sending {
    async fn send<D>(self, mut channel: Channel<D>, wire: &[u8], come: &RefCell<Vec<u8>>) -> Result<(), ChannelError>
    where
        D: Pipeline<In = Slice, Out = Payload>,
    {
        for piece in wire.chunks(self.piece) {
            channel.ready().await?;
            channel.send(piece.to_vec().into())?;
            if !self.pause.is_zero() {
                task::sleep(self.pause).await;
            }
        }
        if self.ends {
            channel.shutdown_write();
        }
        while let Some(bytes) = channel.recv().within(self.patience).await? {
            come.borrow_mut().extend_from_slice(&bytes);
        }
        Ok(())
    }
}

fn client_limits() -> Limits {
    Limits { connections_max: 16, memory_max: usize::MAX, ..Limits::default() }
}

const DRAINS: u8 = 8;
const STAYS_OPEN: u8 = 16;
const FILTERED: u8 = 32;

const KEY: u8 = 0x5a;
const PORT: u16 = 80;
const PAUSE: Duration = Duration::from_millis(1500);

/// Longer input finds nothing more.
const WIRE_BYTES_MAX: usize = 1024;

/// Longer than any sum of pauses and deadlines.
const PATIENCE: Duration = Duration::from_secs(20_000);
