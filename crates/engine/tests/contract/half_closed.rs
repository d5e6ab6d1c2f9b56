//! Streams of a protocol that reads on behind its own end. An HTTP/2 stream does not: a server that has responded has
//! no use for the rest of the request.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_engine::{Event, Outcome};

use crate::multiplexer::{DATA, Multiplexer, PING, RESET, Toy};
use crate::stack::Stack;
use crate::stage::{Call, Cx, Stage};
use crate::streams::{NARROW, connect, frames, limits, listen, open, text};

/// For a handler that has paused, and a peer that resets a stream that both sides have ended.
pub(crate) fn a_reset_of_an_ended_stream_has_no_effect<S: Stack>(stage: &Stage) {
    let (server, raw_peer, remote) = (stage.server(), stage.raw_peer(), Rc::new(RefCell::new(None)));
    let (place, lines_received) = (remote.clone(), Rc::new(RefCell::new(Vec::new())));
    let notes = lines_received.clone();
    let to = listen::<S, Toy, _>(stage, &server, NARROW, limits(), move || {
        let (place, notes) = (place.clone(), notes.clone());
        move |call: Call, cx: &mut Cx<'_, <Toy as Multiplexer>::Server>| {
            match call {
                Call::Open => {
                    cx.pause();
                    cx.shutdown_write();
                    *place.borrow_mut() = Some(cx.remote());
                }
                Call::Message(line) => notes.borrow_mut().push(text(&line)),
                Call::Event(Event::Posted(_)) => cx.resume(),
                call => return call.by_default(cx),
            }
            Outcome::Continue
        }
    });
    let end = connect::<S, Toy>(stage, &raw_peer, &to, NARROW);
    open::<S, Toy>(&raw_peer, end, 1);
    raw_peer.send(end, &S::encoded(&Toy::frame(DATA, 1, 1, b"ebb\nflow\n")));
    stage.until("our side has ended", || {
        frames::<S, Toy>(&raw_peer, end).iter().any(|frame| (frame.0, frame.1) == (DATA, 1))
    });
    raw_peer.send(end, &S::encoded(&Toy::frame(RESET, 0, 1, &[0; 4])));
    raw_peer.send(end, &S::encoded(&Toy::frame(PING, 0, 0, b"")));
    stage.until("the reset was read", || frames::<S, Toy>(&raw_peer, end).iter().any(|frame| frame.0 == PING));
    remote.borrow().as_ref().expect("it has opened").post(1).expect("the stream is there");
    assert_eq!(stage.reason(1), "done");
    assert_eq!(*lines_received.borrow(), ["ebb", "flow"]);
}
