//! Tests without a network, and a test that all code in the guide is an excerpt of these files.

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate::{
    Address, Backend, Client, Context, Event, EventLoop, Handler, LoadBalancing, Outcome, Server, ServerHandle,
    StartError, task,
};
use tidegate_testkit::{ClosedPort, Embedded, contract};

use crate::clerk::{Clerk, IDLE_TIMEOUT, Saved};
use crate::client::Gauge;
use crate::protocol::{Answer, Request, Tides, TidesClient};
use crate::session::session;
use crate::{limits, office, start};

fn open() -> Embedded<Saved> {
    Embedded::new(Tides::new(), Clerk::new(office()))
}

#[test]
fn get_returns_the_level_that_was_set() {
    let mut pipe = open();
    pipe.receive(b"SET brest 412\nGET br");
    assert_eq!(pipe.take_written(), b"OK\n");
    pipe.receive(b"est\nGET dover\n");
    assert_eq!(pipe.take_written(), b"AT brest 412\nUNKNOWN\n");
    assert!(!pipe.is_closed());
}

#[test]
fn a_client_sees_answers() {
    let mut client = open().peer(TidesClient::new());
    client.send(Request::Set { station: "brest".into(), level: 412 }).unwrap();
    assert_eq!(client.recv().unwrap(), Some(Answer::Ok));
    client.send(Request::Get { station: "brest".into() }).unwrap();
    assert_eq!(client.recv().unwrap(), Some(Answer::At { station: "brest".into(), level: 412 }));
    assert_eq!(client.recv().unwrap(), None);
}

#[test]
fn an_invalid_request_gets_an_error_and_the_end() {
    for wire in ["HELLO\n", "GET \n", "GET a b\n", "SET brest high\n", "SET brest 99999999999\n"] {
        let mut pipe = open();
        pipe.receive(wire.as_bytes());
        assert_eq!(pipe.take_written(), b"ERROR\n", "{wire}");
        assert!(pipe.is_write_closed());
    }
}

#[test]
fn an_idle_client_is_closed_unless_it_watches() {
    let mut pipe = open();
    pipe.advance(IDLE_TIMEOUT - Duration::from_secs(1));
    pipe.receive(b"GET brest\n");
    pipe.advance(IDLE_TIMEOUT - Duration::from_secs(1));
    assert!(!pipe.is_write_closed());
    pipe.advance(Duration::from_secs(1));
    assert!(pipe.is_write_closed());

    let mut pipe = open();
    pipe.receive(b"WATCH\nGET brest\n");
    pipe.advance(10 * IDLE_TIMEOUT);
    assert!(!pipe.is_write_closed());
}

#[test]
fn a_long_list_waits_for_a_slow_reader() {
    let office = office();
    for number in 0..10_000 {
        office.set(format!("station-{number:04}").into(), number).unwrap();
    }
    let mut pipe = Embedded::with_limits(Tides::new(), Clerk::new(office), limits());
    pipe.limit_peer_reads(0);
    pipe.receive(b"LIST\nGET station-0001\n");
    // Little more than the high water mark of 16 KiB, and the loop's 81 KiB to receive into; not 240 KB of list.
    assert!(pipe.pool().ledger().used() < 112 * 1024);
    assert!(!pipe.is_receiving());
    pipe.limit_peer_reads(usize::MAX);
    let written = String::from_utf8(pipe.take_written()).unwrap();
    assert_eq!(written.lines().count(), 10_000 + 2);
    assert!(written.ends_with("AT station-9999 9999\nOK\nAT station-0001 1\n"));
}

#[test]
fn a_drain_ends_the_connection() {
    let mut pipe = open();
    pipe.receive(b"GET brest\n");
    pipe.drain(Duration::from_secs(10));
    assert_eq!(pipe.take_written(), b"UNKNOWN\n");
    assert!(pipe.is_write_closed());
}

#[test]
fn a_session_is_tested_like_a_handler() {
    let office = office();
    let mut pipe = Embedded::serving(Tides::new(), |channel| session(channel, office));
    pipe.receive(b"SET brest 412\nGET br");
    pipe.receive(b"est\n");
    assert_eq!(pipe.take_written(), b"OK\nAT brest 412\n");
    pipe.advance(IDLE_TIMEOUT);
    assert!(pipe.is_write_closed());
}

#[test]
fn both_sides_keep_the_contract_of_codecs() {
    let requests = b"SET brest 412\r\nGET brest\nLIST\nWATCH\nSAVE\n";
    assert_eq!(contract::check(Tides::new, requests).messages.len(), 5);
    contract::never_panics(Tides::new, requests, 200);
    contract::refuses_before_allocating(Tides::new, &[b'x'; 100]);

    let answers = b"OK\nAT brest -3\nUNKNOWN\nFULL\nFAILED\n";
    assert_eq!(contract::check(TidesClient::new, answers).messages.len(), 5);
    contract::never_panics(TidesClient::new, answers, 200);
}

/// Each Rust block in the guide is an excerpt of one of these files, line by line. `// ...` stands for omitted lines.
#[test]
fn the_guide_shows_this_code() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tides", "tls", "grpc", ""];
    let sources = folders.map(|folder| texts(&examples.join(folder), "rs")).concat();
    let mut blocks = 0;
    let parts = ["http", "protocol", "operating"];
    let chapters = parts.map(|part| texts(&examples.join("../docs/guide").join(part), "md")).concat();
    for (chapter, text) in chapters {
        assert!(!text.contains("```rust,"), "{chapter}: this test would skip a block with a flag");
        for block in text.split("```rust\n").skip(1) {
            let block: Vec<_> = block.lines().map(str::trim).take_while(|line| *line != "```").collect();
            blocks += 1;
            for part in block.split(|line| *line == "// ...").map(|part| part.join("\n")) {
                let part = part.trim();
                assert!(
                    sources.iter().any(|(_, code)| code.contains(part)),
                    "{chapter} shows code that is in no file:\n{part}"
                );
            }
        }
    }
    assert!(blocks > 0, "the guide has examples");
}

/// The files in a folder, with their lines trimmed.
fn texts(folder: &Path, extension: &str) -> Vec<(String, String)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            (path.display().to_string(), lines.join("\n"))
        })
        .collect()
}

// Excerpts in the guide that are not part of the server.

/// The context of a client's handler.
type ClientCx<'a> = Context<'a, TidesClient, Request>;

/// Prints the answers of the office, and sends the requests of other threads.
struct Print;

impl Handler<TidesClient> for Print {
    type Post = Request;

    fn message(&mut self, answer: Answer, _: &mut ClientCx<'_>) -> Outcome<TidesClient> {
        println!("{answer:?}");
        Outcome::Continue
    }

    fn event(&mut self, event: Event<Request>, cx: &mut ClientCx<'_>) -> Outcome<TidesClient> {
        match event {
            Event::Posted(request) => cx.send(request).into(),
            other => other.by_default(cx),
        }
    }
}

#[test]
fn a_connection_that_was_made_may_have_a_handler() {
    let server = start("127.0.0.1:0").unwrap();
    let client = Client::at(server.address().clone());
    let mut event_loop = EventLoop::on(Backend::Auto).unwrap();
    let remote =
        event_loop.block_on(async move { client.connect_with(TidesClient::new(), Print).await }).unwrap().unwrap();
    let reporter = thread::spawn(move || remote.post(Request::Set { station: "brest".into(), level: 412 }));
    reporter.join().unwrap().unwrap();
    while server.counts().iter().all(|counts| counts.messages == 0) {
        event_loop.turn(Some(Duration::from_millis(10))).unwrap();
    }
}

#[test]
fn one_reachable_address_of_several_is_enough() {
    let server = start("127.0.0.1:0").unwrap();
    let closed = ClosedPort::tcp();
    let addresses = [closed.address().into(), server.address().clone()];
    let client = Client::at_each(addresses)
        .connect_timeout(Duration::from_secs(3))
        .connection_attempt_delay(Duration::from_millis(100));
    let asked = async move {
        let mut channel = client.connect(TidesClient::new()).await?;
        channel.send(Request::Get { station: "brest".into() })?;
        Ok::<_, Box<dyn Error>>(channel.recv().within(Duration::from_secs(1)).await?)
    };
    let answer = EventLoop::on(Backend::Auto).unwrap().block_on(asked).unwrap().unwrap();
    assert_eq!(answer, Some(Answer::Unknown));
}

#[test]
fn tasks_run_beside_each_other() {
    async fn ask_both(one: String, other: String) -> Result<(Answer, Answer), Box<dyn Error>> {
        let first = task::spawn(async move { Gauge::connect(&one).await?.get("brest").await });
        let second = Gauge::connect(&other).await?.get("brest").await?;
        Ok((first.await??, second))
    }

    async fn report_each_minute(target: String, level: impl Fn() -> i32) -> Result<(), Box<dyn Error>> {
        let mut gauge = Gauge::connect(&target).await?;
        let mut minute = task::interval(Duration::from_secs(60));
        loop {
            minute.tick().await;
            gauge.set("brest", level()).await?;
        }
    }

    let server = start("127.0.0.1:0").unwrap();
    let address = server.address().to_string();
    let talk = async move {
        let report = task::spawn(report_each_minute(address.clone(), || 412));
        let reported = async {
            let mut gauge = Gauge::connect(&address).await?;
            while gauge.get("brest").await? == Answer::Unknown {
                task::sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, Box<dyn Error>>(())
        };
        task::timeout(Duration::from_secs(5), reported).await??;
        report.cancel();
        ask_both(address.clone(), address).await
    };
    let (first, second) = EventLoop::on(Backend::Auto).unwrap().block_on(talk).unwrap().unwrap();
    assert_eq!((&first, &first), (&second, &Answer::At { station: "brest".into(), level: 412 }));
}

/// Waits for signals on its own thread: the first drains the server, the second closes its connections.
fn drain_at_signals(server: ServerHandle, signals: impl Iterator<Item = i32> + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut deadline = Duration::from_secs(10);
        for _ in signals {
            server.begin_drain(deadline);
            deadline = Duration::ZERO;
        }
    })
}

#[test]
fn signals_drain_the_server() {
    let server = start("127.0.0.1:0").unwrap();
    // This client never closes its side, so the connection lingers until a second signal ends it.
    let lingers = TcpStream::connect(server.address().to_string()).unwrap();
    let (sender, signals) = mpsc::channel();
    let thread = drain_at_signals(server.clone(), signals.into_iter());
    sender.send(15).unwrap();
    sender.send(15).unwrap();
    server.wait();
    assert_eq!(server.counts().iter().map(|counts| counts.connections).sum::<u64>(), 0);
    drop((lingers, sender));
    thread.join().unwrap();
}

#[test]
fn each_loop_may_have_something_of_its_own() {
    let running = start_counting("127.0.0.1:0").unwrap();
    let address = running.address().to_string();
    let answer = async move { Gauge::connect(&address).await?.get("brest").await };
    assert_eq!(EventLoop::on(Backend::Auto).unwrap().block_on(answer).unwrap().unwrap(), Answer::Unknown);
    let counts = running.counts();
    assert_eq!(counts.iter().map(|counts| counts.accepted).sum::<u64>(), 1);
    assert!(counts.iter().all(|counts| counts.stalls == 0));
    running.drain(Duration::from_secs(1));
}

#[test]
fn two_gauges_are_on_two_loops() {
    let running = start_evenly("127.0.0.1:0").unwrap();
    let address = running.address().to_string();
    let both = async move {
        let mut gauges = [Gauge::connect(&address).await?, Gauge::connect(&address).await?];
        for gauge in &mut gauges {
            gauge.set("brest", 412).await?;
        }
        Ok::<_, Box<dyn Error>>(gauges)
    };
    let _gauges = EventLoop::readiness().unwrap().block_on(both).unwrap().unwrap();
    let loops = running.loops();
    let accepted: Vec<_> = running.counts().iter().map(|counts| counts.accepted).collect();
    assert!(loops == 1 || accepted.iter().all(|&accepted| accepted < 2), "{accepted:?}");
}

/// Gauges are few, and stay for months: each loop gets as many as any other.
fn start_evenly(address: &str) -> Result<ServerHandle, StartError> {
    let office = office();
    Server::bind(address)?
        .load_balancing(LoadBalancing::LeastLoaded)
        .serve(Tides::new, move |channel| session(channel, office.clone()))
}

/// Counts the sessions of each loop in a cell: tasks of one loop share a thread.
fn start_counting(address: &str) -> Result<ServerHandle, StartError> {
    let office = office();
    Server::bind(address)?.serve_each(move |number| {
        let (office, served) = (office.clone(), Rc::new(Cell::new(0)));
        (
            |_: &Address| Tides::new(),
            move |channel| {
                served.set(served.get() + 1);
                println!("loop {number}: session {}", served.get());
                session(channel, office.clone())
            },
        )
    })
}
