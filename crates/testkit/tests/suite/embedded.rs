//! `Embedded`: the test is the peer and moves the clock.

use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Over, Slice};
use tidegate_engine::{Channel, ChannelError, Client, CloseReason, Context, Event, Handler, Limits, Outcome};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

/// Echoes lines; `later` after ten seconds, `die` never.
#[derive(Default)]
struct Echo {
    late: u32,
}

impl Handler<Lines> for Echo {
    type Post = &'static str;

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines, Self::Post>) -> Outcome<Lines> {
        match &*line {
            b"later" => cx.deadline_after(Duration::from_secs(10)),
            b"die" => panic!("on request"),
            b"silence" => {}
            b"peer" => drop(cx.send(cx.peer().to_string().into())),
            b"date" => drop(cx.send(String::from_utf8_lossy(cx.time().date()).into_owned().into())),
            b"pause" => cx.pause(),
            _ => drop(cx.send(line.into())),
        }
        Outcome::Continue
    }

    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, Lines, Self::Post>) -> Outcome<Lines> {
        match event {
            Event::Deadline => {
                self.late += 1;
                drop(cx.send(format!("late {}", self.late).into()));
                cx.deadline_after(Duration::from_secs(10));
            }
            Event::Posted("resume") => cx.resume(),
            Event::Posted(text) => drop(cx.send(text.into())),
            Event::ReadClosed | Event::Drain => return Outcome::Close,
            _ => {}
        }
        Outcome::Continue
    }
}

fn pipe() -> Embedded<&'static str> {
    Embedded::new(Lines::new(), Echo::default())
}

#[test]
fn written_bytes_are_returned_once() {
    let mut pipe = pipe();
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
    assert_eq!(pipe.take_written(), b"");
    pipe.receive_bytewise(b"flow\n");
    assert_eq!(pipe.take_written(), b"flow\n");
}

#[test]
fn bytes_wait_while_the_connection_does_not_receive() {
    let mut pipe = pipe();
    pipe.receive(b"pause\n");
    assert!(!pipe.is_receiving());
    pipe.receive(b"ebb\n");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"");
    assert!(!pipe.is_write_closed(), "the end waits as well, behind the bytes");
    pipe.post("resume");
    assert_eq!(pipe.take_written(), b"ebb\n");
    assert!(pipe.is_closed());
}

#[test]
fn the_peer_takes_as_much_as_the_test_lets_it() {
    let mut pipe = pipe();
    pipe.limit_peer_reads(2);
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"eb");
    pipe.limit_peer_reads(1);
    assert_eq!(pipe.take_written(), b"b");
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written(), b"\n");
}

#[test]
fn the_clock_moves_only_when_advanced_and_stops_at_each_deadline() {
    let mut pipe = pipe();
    pipe.receive(b"later\n");
    assert_eq!(pipe.take_written(), b"");
    pipe.advance(Duration::from_secs(35));
    assert_eq!(pipe.take_written(), b"late 1\nlate 2\nlate 3\n", "three deadlines, each set when the one before came");
    pipe.advance(Duration::from_millis(4_999));
    assert_eq!(pipe.take_written(), b"");
    pipe.advance(Duration::from_millis(1));
    assert_eq!(pipe.take_written(), b"late 4\n");
}

#[test]
fn the_date_begins_with_1970_and_moves_with_the_time() {
    let mut pipe = pipe();
    pipe.receive(b"date\n");
    assert_eq!(pipe.take_written(), b"Thu, 01 Jan 1970 00:00:00 GMT\n");
    pipe.advance(Duration::from_secs(86_400 + 61));
    pipe.receive(b"date\n");
    assert_eq!(pipe.take_written(), b"Fri, 02 Jan 1970 00:01:01 GMT\n");
}

#[test]
fn the_loop_is_idle_only_after_every_message_is_handled() {
    let mut pipe = pipe();
    // The driver sees none of these, however many turns they take.
    pipe.receive(&b"silence\n".repeat(50_000));
    assert_eq!(pipe.counts().messages, 50_000);
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
}

#[test]
fn each_way_to_end_is_distinguished() {
    let mut ended = pipe();
    ended.receive_fin();
    assert!(ended.is_write_closed() && ended.is_closed() && !ended.is_reset());

    let mut lingers = pipe();
    lingers.drain(Duration::from_secs(60));
    assert!(lingers.is_write_closed() && !lingers.is_closed());
    lingers.advance(Duration::from_secs(10));
    assert!(lingers.is_closed() && !lingers.is_reset());

    let mut cut_off = pipe();
    cut_off.limit_peer_reads(0);
    cut_off.receive(b"ebb\n");
    cut_off.advance(Limits::default().write_timeout);
    assert!(cut_off.is_closed() && cut_off.is_reset());

    let mut reset = pipe();
    reset.reset();
    assert!(reset.is_closed());
    assert_eq!(reset.counts().closed_broken, 1);
}

#[test]
fn a_panic_of_the_handler_ends_the_connection_and_not_the_test() {
    let mut pipe = pipe();
    pipe.receive(b"ebb\ndie\n");
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert_eq!((pipe.take_written(), pipe.counts().closed_panicked), (b"ebb\n".to_vec(), 1));
}

#[test]
fn posts_come_from_the_test_and_from_threads() {
    let mut pipe = pipe();
    pipe.post("from the test");
    let remote = pipe.remote();
    std::thread::spawn(move || remote.post("from a thread").unwrap()).join().unwrap();
    pipe.advance(Duration::from_millis(1));
    assert_eq!(pipe.take_written(), b"from the test\nfrom a thread\n");
}

#[test]
fn connecting_from_an_embedded_loop_fails_at_once() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel| async move {
        let error = Client::to("127.0.0.1:1")?.connect(Lines::new()).await.expect_err("there is no network");
        channel.send(error.to_string().into())?;
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    let written = String::from_utf8(pipe.take_written()).expect("it is text");
    assert!(written.starts_with("cannot connect to 127.0.0.1:1"), "{written}");
    assert!(pipe.is_write_closed());
}

#[test]
fn a_closed_connection_ignores_later_actions_of_the_test() {
    let mut pipe = pipe();
    pipe.receive_fin();
    pipe.receive(b"ebb\n");
    pipe.post("nobody");
    pipe.limit_peer_reads(0);
    pipe.reset();
    pipe.advance(Duration::from_secs(100));
    pipe.drain(Duration::from_secs(1));
    pipe.advance(Duration::from_secs(100));
    assert_eq!(pipe.take_written(), b"");
    assert_eq!(pipe.pool().ledger().used() / 100_000, 0);
}

#[test]
fn dropping_the_connection_notifies_the_handler() {
    struct Closing(std::sync::mpsc::Sender<String>);

    impl Handler<Lines> for Closing {
        type Post = ();

        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::Continue
        }

        fn closed(&mut self, reason: &CloseReason) {
            self.0.send(reason.to_string()).unwrap();
        }
    }

    let (sender, receiver) = std::sync::mpsc::channel();
    drop(Embedded::new(Lines::new(), Closing(sender)));
    assert_eq!(receiver.recv().unwrap(), "the event loop ended");
}

#[test]
#[should_panic(expected = "has not come to rest")]
fn a_handler_that_never_becomes_idle_fails_its_test() {
    struct Restless;

    impl Handler<Lines> for Restless {
        type Post = ();

        fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
            cx.remote().post(()).unwrap();
            Outcome::Continue
        }

        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::Continue
        }

        fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
            if let Event::Posted(()) = event {
                cx.send("again".into()).unwrap();
                cx.remote().post(()).unwrap();
            }
            Outcome::Continue
        }
    }

    let _ = Embedded::new(Lines::new(), Restless);
}

#[test]
fn a_peer_with_a_codec_exchanges_messages() {
    let mut peer = pipe().peer(Lines::new());
    peer.send("ebb".into()).unwrap();
    peer.send("later".into()).unwrap();
    peer.send("flow".into()).unwrap();
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"ebb"[..]));
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"flow"[..]));
    assert!(peer.recv().unwrap().is_none());
    peer.advance(Duration::from_secs(10)).unwrap();
    peer.pipe().post("posted");
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"late 1"[..]));
    peer.close().unwrap();
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"posted"[..]));
    assert!(peer.recv().unwrap().is_none() && peer.pipe().is_closed());
}

/// More than a loop receives at once, in both directions.
#[test]
fn a_peer_receives_long_answers_and_short_ends() {
    let mut peer = pipe().peer(Lines::new());
    let line = "flood".repeat(1000);
    (0..100).for_each(|_| peer.send(line.as_str().to_owned().into()).unwrap());
    for _ in 0..100 {
        assert_eq!(peer.recv().unwrap().as_deref(), Some(line.as_bytes()));
    }
    assert!(peer.recv().unwrap().is_none());
}

#[test]
fn a_peer_shakes_hands_before_its_first_message_arrives() {
    let server = Over::new(ToyTls::server(7), Lines::new());
    let mut peer = Embedded::serving(server, |mut channel: Channel<_>| async move {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into())?;
        }
        Ok::<(), ChannelError>(())
    })
    .peer(Over::new(ToyTls::client(7), Lines::new()));
    peer.send("ebb".into()).unwrap();
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"ebb"[..]));
    peer.close().unwrap();
    assert!(peer.recv().unwrap().is_none() && peer.pipe().is_closed());
}

#[test]
fn an_error_of_the_peers_codec_is_returned() {
    let mut peer = pipe().peer(Lines::new().with_line_bytes_max(2));
    peer.send("ebb".into()).unwrap_err();
    peer.pipe().post("a long line");
    assert!(peer.recv().is_err());
}
