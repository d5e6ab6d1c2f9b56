//! HTTP/1.1 on a real loop, with the test as the peer: the contract between codec and engine.

use std::error::Error;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tidegate::http1::{Incoming, Outgoing, Response, Server, Status, StreamedResponse};
use tidegate::{Channel, Context, Event, Handler, Limits, Outcome, WaterMarks, task};
use tidegate_testkit::Embedded;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A handler that answers on request of the test.
struct Later;

impl Handler<Server> for Later {
    type Post = Post;

    fn message(&mut self, _: Incoming, _: &mut Context<'_, Server, Post>) -> Outcome<Server> {
        Outcome::Continue
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Context<'_, Server, Post>) -> Outcome<Server> {
        match event {
            Event::Posted(Post::Answer) => cx.send(Response::text("late").into()).into(),
            Event::Posted(Post::Begin) => cx.send(StreamedResponse::new(Status::OK).into()).into(),
            Event::Posted(Post::Fill) => {
                while cx.is_writable() {
                    cx.send(Outgoing::Data(vec![b'x'; 1000].into())).expect("a response is in progress");
                }
                Outcome::Continue
            }
            Event::Posted(Post::Pause) => {
                cx.pause();
                Outcome::Continue
            }
            Event::Posted(Post::Resume) => {
                cx.resume();
                Outcome::Continue
            }
            event => event.by_default(cx),
        }
    }
}

/// The requests of the test.
#[derive(Debug)]
enum Post {
    Answer,
    Begin,
    Fill,
    Pause,
    Resume,
}

#[test]
fn input_behind_an_unanswered_request_stays_in_the_kernel() {
    let mut pipe = Embedded::new(Server::default(), Later);
    pipe.receive(GET);
    assert!(pipe.is_receiving(), "the end of input would be noticed");
    (0..100).for_each(|_| pipe.receive(&[b'x'; 64 * 1024]));
    assert!(!pipe.is_receiving());
    let used = pipe.pool().ledger().used();
    assert!(used < 512 * 1024, "{used} bytes are buffered");
}

#[test]
fn delayed_responses_to_pipelined_requests_are_sent_in_order() {
    let mut pipe = Embedded::new(Server::default(), Later);
    pipe.receive(&GET.repeat(3));
    for _ in 0..3 {
        assert_eq!(pipe.take_written(), b"");
        pipe.post(Post::Answer);
        assert!(pipe.take_written().ends_with(b"late"));
    }
    assert!(pipe.is_receiving() && !pipe.is_write_closed());
}

#[test]
fn the_idle_timeout_is_suspended_while_the_handler_has_paused() {
    let mut pipe = Embedded::new(Server::default(), Later);
    pipe.post(Post::Pause);
    pipe.receive(GET);
    pipe.advance(Duration::from_secs(300));
    assert!(!pipe.is_write_closed());
    pipe.post(Post::Resume);
    pipe.post(Post::Answer);
    assert!(pipe.take_written().ends_with(b"late"));
    pipe.advance(Duration::from_secs(70));
    assert!(!pipe.is_write_closed());
    pipe.advance(Duration::from_secs(10));
    assert!(pipe.is_write_closed());
}

/// Answers at once.
struct Prompt;

impl Handler<Server> for Prompt {
    type Post = ();

    fn message(&mut self, _: Incoming, cx: &mut Context<'_, Server>) -> Outcome<Server> {
        cx.send(Response::text("prompt").into()).into()
    }
}

#[test]
fn requests_received_before_a_drain_are_answered() {
    let limits = Limits { water: WaterMarks::new(100, 100), ..Limits::default() };
    let mut pipe = Embedded::with_limits(Server::default(), Prompt, limits);
    pipe.limit_peer_reads(0);
    pipe.receive(&GET.repeat(2));
    pipe.drain(Duration::from_secs(10));
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    let answers = String::from_utf8(pipe.take_written()).expect("answers are text");
    assert_eq!(answers.matches("prompt").count(), 2, "{answers}");
    assert_eq!(answers.matches("Connection: close").count(), 1, "{answers}");
    assert!(pipe.is_write_closed());
}

#[test]
fn an_idle_connection_is_drained_after_a_grace_period() {
    let mut pipe = Embedded::new(Server::default(), Later);
    pipe.advance(Duration::from_secs(60));
    pipe.drain(Duration::from_secs(10));
    pipe.advance(Duration::from_millis(900));
    assert!(!pipe.is_write_closed());
    pipe.advance(Duration::from_millis(300));
    assert!(pipe.is_write_closed());
}

#[test]
fn a_request_in_flight_at_the_start_of_a_drain_is_answered() {
    let mut pipe = Embedded::new(Server::default(), Prompt);
    pipe.drain(Duration::from_secs(10));
    pipe.advance(Duration::from_millis(900));
    pipe.receive(&GET.repeat(2));
    let answers = String::from_utf8(pipe.take_written()).expect("answers are text");
    assert_eq!(answers.matches("prompt").count(), 2, "{answers}");
    assert_eq!(answers.matches("Connection: close").count(), 1, "{answers}");
    assert!(pipe.is_write_closed());
}

#[test]
fn an_incomplete_close_delimited_body_ends_with_a_reset() {
    let mut pipe = Embedded::new(Server::default(), Later);
    pipe.receive(b"GET / HTTP/1.0\r\n\r\n");
    pipe.post(Post::Begin);
    pipe.drain(Duration::from_secs(10));
    pipe.advance(Duration::from_secs(11));
    assert!(pipe.is_reset());
}

#[test]
fn a_close_with_unsent_bytes_is_not_counted_as_done() {
    let limits = Limits { write_timeout: Duration::from_secs(5), ..Limits::default() };
    let mut pipe = Embedded::with_limits(Server::default(), Later, limits);
    pipe.limit_peer_reads(0);
    pipe.receive(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    pipe.post(Post::Answer);
    pipe.advance(Duration::from_secs(6));
    assert!(pipe.is_reset());
    assert_eq!((pipe.counts().closed_done, pipe.counts().closed_write_timeout), (0, 1));
}

#[test]
fn without_a_minimum_rate_a_slow_reader_does_not_time_out() {
    let limits = Limits { write_rate_min: 0, ..Limits::default() };
    let mut pipe = Embedded::with_limits(Server::default(), Prompt, limits);
    pipe.limit_peer_reads(50);
    pipe.set_unacknowledged(50);
    pipe.receive(GET);
    for unread in (0..50).rev() {
        pipe.advance(Duration::from_secs(59));
        assert!(!pipe.is_closed(), "{unread} bytes are unread");
        pipe.set_unacknowledged(unread);
    }
    pipe.advance(Duration::from_secs(121));
    assert!(pipe.is_reset(), "the peer has stopped reading");
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

/// The engine reports the edge once per iteration, and counts iterations modulo 256: in one of 256 cases the edge comes
/// an iteration later.
#[test]
fn input_sent_while_receives_were_paused_is_in_time_in_every_iteration() {
    for runs in 0..256 {
        let limits = Limits { water: WaterMarks::new(10_000, 5_000), write_timeout: 2 * HOUR, ..Limits::default() };
        let mut pipe = Embedded::with_limits(Server::default(), Later, limits);
        pipe.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
        pipe.post(Post::Begin);
        pipe.limit_peer_reads(0);
        pipe.post(Post::Fill);
        assert!(!pipe.is_receiving());
        pipe.receive(b"hello");
        pipe.advance(HOUR);
        // Three iterations each, so that the next input falls into each of the 256.
        (0..runs).for_each(|_| pipe.run());
        pipe.limit_peer_reads(usize::MAX);
        pipe.advance(Duration::from_secs(29));
        assert!(!pipe.is_write_closed(), "after {runs} runs, and {} turns", pipe.counts().turns);
        pipe.advance(Duration::from_secs(1));
        assert!(pipe.is_write_closed(), "after {runs} runs: the missing input does not come");
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A task that receives a body, and pauses for `pause` after each piece.
fn taking(pause: Duration) -> Embedded<std::convert::Infallible> {
    let serve = async move |mut channel: Channel<Server>| {
        while let Some(incoming) = channel.recv().await? {
            match incoming {
                Incoming::End => drop(channel.send(Response::text("taken").into())?),
                _ => task::sleep(pause).await,
            }
        }
        Ok::<(), Box<dyn Error>>(())
    };
    let mut pipe = Embedded::serving(Server::default(), serve);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    pipe.advance(pause);
    pipe
}

/// The minimum rate is 240 bytes a second, with a grace period of half a minute.
#[test]
fn the_pauses_of_a_task_do_not_extend_the_deadline_of_a_slow_sender() {
    let mut pipe = taking(Duration::from_secs(1));
    let comes = |_: &i32| {
        pipe.receive(b"a");
        pipe.advance(Duration::from_secs(29));
        !pipe.is_write_closed()
    };
    assert_eq!((0..100).take_while(comes).count(), 1, "28 seconds late with each byte but the first");
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 408 "));
}

#[test]
fn a_slow_task_does_not_make_its_peer_time_out() {
    let minutes = Duration::from_secs(300);
    let mut pipe = taking(minutes);
    // The peer has sent everything before the task requests it.
    pipe.receive(&[b'a'; 1_000_000]);
    let mut pauses = 0;
    let answer = loop {
        match pipe.take_written() {
            nothing if nothing.is_empty() && pauses < 20 => pauses += 1,
            answer => break answer,
        }
        pipe.advance(minutes);
    };
    assert!(pauses > 10 && answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{pauses} {}", answer.escape_ascii());
}

#[test]
fn a_task_that_drops_a_ready_recv_does_not_make_its_peer_time_out() {
    let serve = async move |mut channel: Channel<Server>| {
        channel.recv().await?;
        // Waits until input has arrived, and drops the future without taking the message.
        let (mut receiving, mut waits) = (Box::pin(channel.recv()), false);
        let turning_away = poll_fn(|cx| match std::mem::replace(&mut waits, true) {
            false => receiving.as_mut().poll(cx).map(drop),
            true => Poll::Ready(()),
        });
        turning_away.await;
        drop(receiving);
        task::sleep(Duration::from_secs(300)).await;
        while let Some(incoming) = channel.recv().await? {
            if matches!(incoming, Incoming::End) {
                channel.send(Response::text("taken").into())?;
            }
        }
        Ok::<(), Box<dyn Error>>(())
    };
    let mut pipe = Embedded::serving(Server::default(), serve);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
    pipe.receive(b"hello");
    pipe.advance(Duration::from_secs(300));
    pipe.advance(Duration::from_secs(29));
    assert!(!pipe.is_write_closed());
    pipe.receive(b", sea");
    pipe.receive(b"!");
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 200 OK\r\n"));
}
