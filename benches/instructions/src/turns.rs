//! Complete turns of an event loop, from received to sent bytes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_engine::{Channel, ChannelError, Context, EventLoop, Handler, Limits, Outcome};
use tidegate_http1::{Config, Incoming, Response, Server, Status};
use tidegate_sys::Socket;

use crate::codecs::{REQUEST, RESPONSE, SHORT};
use crate::counted::count_this;
use crate::wire::{Peer, Wire, address};

/// `DEPTH` requests in one turn, answered by a handler.
pub(crate) fn handled<const DEPTH: usize>(rounds: usize) {
    handle(REQUEST, DEPTH, rounds);
}

/// The same with minimal requests.
pub(crate) fn handled_short<const DEPTH: usize>(rounds: usize) {
    handle(SHORT, DEPTH, rounds);
}

fn handle(request: &[u8], depth: usize, rounds: usize) {
    let (mut event_loop, peer) = wired(request.repeat(depth), 0);
    adopt(&mut event_loop, Arc::default());
    turn(&mut event_loop, &peer, depth, rounds);
}

/// One request on each of [`CROWD`] connections in one turn.
pub(crate) fn crowd(rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.to_vec(), 0);
    let config = Arc::default();
    for _ in 0..CROWD {
        adopt(&mut event_loop, Arc::clone(&config));
    }
    turn(&mut event_loop, &peer, CROWD, rounds);
}

fn adopt(event_loop: &mut EventLoop, config: Arc<Config>) {
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), Server::new(config), Site);
    adopted.expect("it takes any stream");
}

/// `DEPTH` requests in one turn, answered by a task over a channel.
pub(crate) fn pulled<const DEPTH: usize>(rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.repeat(DEPTH), 1);
    let (live, config) = (Arc::new(AtomicUsize::new(0)), Arc::new(Config::default()));
    let listening =
        event_loop.serve(Socket::Simulated(0), Limits::default(), live, move || Server::new(config.clone()), site);
    listening.expect("the wire accepts any listener");
    turn(&mut event_loop, &peer, DEPTH, rounds);
}

/// A loop over a wire with `arriving` streams, to each of which the wire delivers `bytes`.
pub(crate) fn wired(bytes: Vec<u8>, arriving: u32) -> (EventLoop, Rc<Peer>) {
    let (pool, peer) = (Pool::new(), Peer::new());
    let wire = Wire::new(&peer, &pool, bytes, arriving);
    (EventLoop::new(Box::new(wire), pool), peer)
}

/// Turns the loop, which receives `requests` requests in each turn.
pub(crate) fn turn(event_loop: &mut EventLoop, peer: &Peer, requests: usize, rounds: usize) {
    // Warm-up: accept and open the connections.
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    for _ in 0..rounds {
        peer.pass(BETWEEN);
        peer.deliver();
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert_eq!(
        peer.received(),
        (rounds * requests * RESPONSE.len()) as u64,
        "each turn answers all requests that it received"
    );
}

struct Site;

impl Handler<Server> for Site {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, Server>) -> Outcome<Server> {
        match message {
            // One comparison of the whole path, as in `tidegate serve`.
            Incoming::Head(head) if head.path_bytes() == b"/plaintext" => {
                cx.send(Response::text("Hello, World!").into()).into()
            }
            Incoming::Head(_) => cx.send(Response::new(Status::NOT_FOUND).into()).into(),
            Incoming::Data(_) | Incoming::Trailers(_) | Incoming::End | Incoming::Preface => Outcome::Continue,
        }
    }
}

async fn site(mut channel: Channel<Server>) -> Result<(), ChannelError> {
    while let Some(message) = channel.recv().await? {
        if let Incoming::Head(head) = message {
            let is_known = head.path_bytes() == b"/plaintext";
            let response = if is_known { Response::text("Hello, World!") } else { Response::new(Status::NOT_FOUND) };
            channel.send(response.into())?;
        }
    }
    Ok(())
}

pub(crate) const CROWD: usize = 64;

/// The time between turns: in some turns a new second begins, and the date changes.
pub(crate) const BETWEEN: Duration = Duration::from_micros(100);
