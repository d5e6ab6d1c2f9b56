//! Everything that an application may do with its connections, at random under all faults: requests that wait, watch,
//! fail, panic and change the handler; files; a filter that buffers bytes; a group; a memory budget.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write;
use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_codec::framing::{FramingError, Lines};
use tidegate_codec::{Codec, FileRegion, Input, Output, Over, Pipeline, Slice, Step};
use tidegate_engine::{Channel, Client, Context, Event, Group, Handler, Limits, Outcome, Slow, task};
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::network::{FaultCounts, FaultRates, Network, NetworkFault, SimNode};
use tidegate_testkit::{Random, seeds};

use crate::network::pair::{SECOND, Served, weather, without_messages};

/// Lines in, lines and files out.
struct Mixed(Lines);

enum Say {
    Line(String),
    File(FileRegion),
}

impl Codec for Mixed {
    type In = Slice;
    type Out = Say;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        self.0.decode(input, reply)
    }

    fn encode(&mut self, say: Say, out: &mut Output<'_>) -> Result<(), FramingError> {
        match say {
            Say::Line(line) => self.0.encode(line.into(), out)?,
            Say::File(region) => out.link_file(region),
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        self.0.decode_eof(input, reply)
    }
}

/// A request of a client; it determines the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Answers with some bytes.
    Say(usize),
    /// Answers with this many lines of a file.
    File(u64),
    /// Answers after this many milliseconds.
    Later(u64),
    /// Answers once, and again when the kernel has the first answer.
    Watch,
    /// Continues with another handler.
    Switch,
    Panic,
    Fail,
    End,
}

impl Request {
    fn random(random: &mut Random) -> Self {
        match random.below(60) {
            0..30 => Self::Say(random.below(900)),
            30..38 => Self::File(1 + random.below(1500) as u64),
            38..45 => Self::Later(random.below(50) as u64),
            45..52 => Self::Watch,
            52..57 => Self::Switch,
            57 => Self::Panic,
            58 => Self::Fail,
            _ => Self::End,
        }
    }

    fn parse(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line);
        let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().expect("the client sends numbers");
        match verb {
            "say" => Self::Say(number as usize),
            "file" => Self::File(number),
            "later" => Self::Later(number),
            "watch" => Self::Watch,
            "switch" => Self::Switch,
            "panic" => Self::Panic,
            "fail" => Self::Fail,
            _ => Self::End,
        }
    }

    fn line(self) -> String {
        match self {
            Self::Say(length) => format!("say {length}"),
            Self::File(lines) => format!("file {lines}"),
            Self::Later(millis) => format!("later {millis}"),
            Self::Watch => "watch".into(),
            Self::Switch => "switch".into(),
            Self::Panic => "panic".into(),
            Self::Fail => "fail".into(),
            Self::End => "end".into(),
        }
    }

    /// Whether no request may follow it.
    fn is_last(self) -> bool {
        matches!(self, Self::Panic | Self::Fail | Self::End)
    }

    fn answer(self) -> String {
        match self {
            Self::Say(length) => format!("{}\n", said(length)),
            Self::File(lines) => (0..lines).map(file_line).collect(),
            Self::Later(millis) => format!("{millis} ms later\n"),
            Self::Watch => "watched\nflushed\n".into(),
            Self::Switch => "switched\n".into(),
            Self::End => "bye\n".into(),
            Self::Panic | Self::Fail => String::new(),
        }
    }
}

fn said(length: usize) -> String {
    (0..length).map(|place| char::from(b'a' + (place % 26) as u8)).collect()
}

fn file_line(number: u64) -> String {
    format!("{number:0>width$}\n", width = FILE_LINE_BYTES as usize - 1)
}

const FILE_LINE_BYTES: u64 = 64;

/// The file, already unlinked.
fn file() -> Arc<File> {
    static FILE: OnceLock<Arc<File>> = OnceLock::new();
    FILE.get_or_init(make_file).clone()
}

fn make_file() -> Arc<File> {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("uses-{}", std::process::id()));
    let text: String = (0..1500).map(file_line).collect();
    std::fs::write(&path, text).expect("the target directory can be written to");
    let file = File::open(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just opened");
    Arc::new(file)
}

fn region(file: &Arc<File>, lines: u64) -> Say {
    Say::File(FileRegion { file: file.clone(), offset: 0, length: lines * FILE_LINE_BYTES })
}

/// Answers as a handler.
struct Clerk(Arc<File>);

impl<C: Pipeline<In = Slice, Out = Say>> Handler<C> for Clerk {
    type Post = u64;

    fn message(&mut self, line: Slice, cx: &mut Context<'_, C, u64>) -> Outcome<C> {
        match Request::parse(&line) {
            Request::Say(length) => cx.send(Say::Line(said(length))).into(),
            Request::File(lines) => cx.send(region(&self.0, lines)).into(),
            Request::Later(millis) => {
                cx.pause();
                let remote = cx.remote();
                drop(task::spawn(async move {
                    task::sleep(Duration::from_millis(millis)).await;
                    // The connection may be closed already.
                    let _ = remote.post(millis);
                }));
                Outcome::Continue
            }
            Request::Watch => match cx.send(Say::Line("watched".into())) {
                Ok(mark) => {
                    cx.watch(mark);
                    cx.pause();
                    Outcome::Continue
                }
                Err(error) => Outcome::fail(error),
            },
            Request::Switch => match cx.send(Say::Line("switched".into())) {
                Ok(_) => {
                    let file = self.0.clone();
                    Outcome::switch(move |codec| (codec, Self(file)))
                }
                Err(error) => Outcome::fail(error),
            },
            Request::Panic => panic!("it was asked for"),
            Request::Fail => Outcome::fail("it was asked for"),
            Request::End => match cx.send(Say::Line("bye".into())) {
                Ok(_) => Outcome::Close,
                Err(error) => Outcome::fail(error),
            },
        }
    }

    fn event(&mut self, event: Event<u64>, cx: &mut Context<'_, C, u64>) -> Outcome<C> {
        match event {
            Event::Posted(millis) => {
                cx.resume();
                cx.send(Say::Line(format!("{millis} ms later"))).into()
            }
            Event::Flushed => {
                cx.resume();
                cx.send(Say::Line("flushed".into())).into()
            }
            other => other.by_default(cx),
        }
    }
}

/// Answers as a channel.
async fn attend<C: Pipeline<In = Slice, Out = Say>>(mut channel: Channel<C>, file: Arc<File>) -> Served {
    while let Some(line) = channel.recv().await? {
        channel.ready().await?;
        match Request::parse(&line) {
            Request::Say(length) => drop(channel.send(Say::Line(said(length)))?),
            Request::File(lines) => drop(channel.send(region(&file, lines))?),
            Request::Later(millis) => {
                task::sleep(Duration::from_millis(millis)).await;
                channel.send(Say::Line(format!("{millis} ms later")))?;
            }
            Request::Watch => {
                let mark = channel.send(Say::Line("watched".into()))?;
                channel.flushed(mark).await?;
                channel.send(Say::Line("flushed".into()))?;
            }
            Request::Switch => {
                channel.send(Say::Line("switched".into()))?;
                channel = channel.switch(|codec| codec)?;
            }
            Request::Panic => panic!("it was asked for"),
            Request::Fail => return Err("it was asked for".into()),
            Request::End => {
                channel.send(Say::Line("bye".into()))?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Sends all requests at once and reads slowly. Returns the answers, and the error if the connection broke.
async fn ask<C>(client: Client, codec: C, requests: Vec<Request>, leisure: u64) -> (String, Option<Box<dyn Error>>)
where
    C: Pipeline<In = Slice>,
    C::Out: From<String>,
{
    let lines = RefCell::new(String::new());
    let asks = async {
        let (mut reader, mut writer) = client.connect(codec).await?.split();
        let sending = task::spawn(async move {
            for request in requests {
                // The other side may have ended already, but its answers are still to be read.
                if writer.ready().await.is_err() || writer.send(request.line().into()).is_err() {
                    return;
                }
            }
            writer.shutdown_write();
        });
        while let Some(line) = reader.recv().await? {
            let line = String::from_utf8_lossy(&line).into_owned();
            writeln!(lines.borrow_mut(), "{line}")?;
            if leisure > 0 && line.len().is_multiple_of(16) {
                task::sleep(Duration::from_millis(leisure)).await;
            }
        }
        sending.await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let error = asks.await.err();
    (lines.into_inner(), error)
}

/// A server of handlers and of channels, each plain and below the toy TLS.
fn serve(server: &SimNode, file: &Arc<File>) -> [Address; 4] {
    let tls = || Over::new(ToyTls::server(7), Mixed(Lines::new()));
    let mixed = || Mixed(Lines::new());
    let limits = || Limits { write_timeout: SECOND * 20, ..Limits::default() };
    let files = [(); 4].map(|()| file.clone());
    let [one, two, three, four] = files;
    [
        server.listen(7001, limits(), move |_| (mixed(), Clerk(one.clone()))),
        server.listen(7002, limits(), move |_| (tls(), Clerk(two.clone()))),
        server.serve(7003, limits(), mixed, move |channel| attend(channel, three.clone())),
        server.serve(7004, limits(), tls, move |channel| attend(channel, four.clone())),
    ]
    .map(|address| address.expect("the port is free"))
}

/// A member of a group receives rising numbers, and none twice.
async fn listen(client: Client) -> Result<usize, Box<dyn Error>> {
    let mut channel = client.connect(Lines::new()).await?;
    let (mut last, mut heard) = (None, 0);
    while let Some(line) = channel.recv().await? {
        let number: u64 = std::str::from_utf8(&line)?.parse()?;
        assert!(last < Some(number), "{number} after {last:?}");
        (last, heard) = (Some(number), heard + 1);
    }
    Ok(heard)
}

/// Creates a group whose members receive a number from time to time, until their connections are closed.
fn broadcast(server: &SimNode) -> Address {
    let group = Group::new(Slow::Skip);
    let joins = group.clone();
    let member = move |mut channel: Channel<Lines>| {
        let joins = joins.clone();
        async move {
            channel.join(&joins)?;
            task::sleep(SECOND * 3).await;
            Served::Ok(())
        }
    };
    let address = server.serve(7005, Limits::default(), Lines::new, member).expect("the port is free");
    drop(server.spawn(async move {
        for number in 0..300 {
            let _ = group.publish(&mut Lines::new(), number.to_string().into());
            task::sleep(Duration::from_millis(10)).await;
        }
    }));
    address
}

/// A round; in a harsh one connections may break. Returns how many clients got all answers, the faults and the trace.
fn round(seed: u64, faults: FaultRates, harsh: bool) -> (usize, FaultCounts, u64) {
    let network = Network::new(seed);
    network.set_faults(faults);
    let (server, other) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    if harsh {
        server.pool().ledger().set_budget(700_000);
    }
    let addresses = serve(&server, &file());
    let group = broadcast(&server);
    let mut random = Random::new(seed);
    let patient = Limits { write_timeout: SECOND * 600, linger_timeout: SECOND * 600, ..Limits::default() };
    let mut asked = Vec::new();
    for number in 0..16 {
        let mut requests: Vec<_> = (0..1 + random.below(30)).map(|_| Request::random(&mut random)).collect();
        if let Some(last) = requests.iter().position(|request| request.is_last()) {
            requests.truncate(last + 1);
        }
        let expected: String = requests.iter().map(|request| request.answer()).collect();
        let leisure = if random.once_in(3) { random.below(3) as u64 } else { 0 };
        let client = Client::at(addresses[number % 4].clone()).limits(patient.clone());
        let lines = match number % 2 {
            0 => other.spawn(ask(client, Lines::new(), requests.clone(), leisure)),
            _ => other.spawn(ask(client, Over::new(ToyTls::client(7), Lines::new()), requests.clone(), leisure)),
        };
        asked.push((lines, expected, requests));
    }
    let listeners: Vec<_> = (0..4).map(|_| other.spawn(listen(Client::at(group.clone())))).collect();

    let mut whole = 0;
    for (number, (task, expected, requests)) in asked.into_iter().enumerate() {
        let (lines, error) = network.run_task(SECOND * 600, task);
        let at = (0..).zip(lines.bytes().zip(expected.bytes())).find(|(_, (one, other))| one != other);
        assert!(
            expected.starts_with(&lines),
            "seed {seed}, client {number}: other answers from {at:?} on, {requests:?}"
        );
        whole += usize::from(lines == expected);
        let cut_short = requests.last().is_some_and(|last| matches!(last, Request::Panic | Request::Fail));
        let context = || format!("seed {seed}, client {number}: {error:?} after {} of {}", lines.len(), expected.len());
        assert!(harsh || lines == expected, "{} of {requests:?}", context());
        assert!(harsh || cut_short || error.is_none(), "{} of {requests:?}", context());
    }
    for listener in listeners {
        let heard = network.run_task(SECOND * 60, listener);
        let is_heard = heard.as_ref().is_ok_and(|heard| *heard > 10);
        assert!(harsh || is_heard, "seed {seed}: a member heard {heard:?} of the group");
    }
    let left = || network.open_endpoints() as u64 + server.counts().connections + other.counts().connections;
    assert!(network.run_until(SECOND * 600, || left() == 0), "seed {seed}: {} are left", left());
    let nodes = [server, other];
    nodes.iter().for_each(|node| node.drain(SECOND));
    assert!(network.run_until(SECOND * 2, || nodes.iter().all(SimNode::is_drained)), "seed {seed}: a slot is left");
    let result = (whole, network.fault_counts(), network.trace());
    let pools = nodes.each_ref().map(|node| node.pool().clone());
    drop((network, nodes));
    assert!(pools.iter().all(|pool| pool.ledger().used() == 0), "seed {seed}: memory is left");
    result
}

/// The number of rounds, unless `TIDEGATE_ROUNDS` sets it.
fn rounds() -> u64 {
    std::env::var("TIDEGATE_ROUNDS").map_or(60, |number| number.parse().expect("a number"))
}

#[test]
fn every_request_is_answered_under_every_benign_fault() {
    let mut fault_counts = FaultCounts::default();
    for seed in seeds(rounds()) {
        let (whole, occurred, _) = round(seed, weather(seed, &[0, 1, 2, 4, 8, 30]), false);
        assert_eq!(whole, 16);
        fault_counts += occurred;
    }
    fault_counts.assert_all(&without_messages(&NetworkFault::BENIGN));
}

#[test]
fn every_run_is_a_function_of_its_seed() {
    let trace = |seed| round(seed, FaultRates::benign().with(NetworkFault::Reset, 300), true).2;
    let traces: Vec<_> = (0..8).map(trace).collect();
    assert_eq!(traces, (0..8).map(trace).collect::<Vec<_>>());
    assert!((1..8).all(|seed| traces[seed] != traces[seed - 1]));
}

#[test]
fn under_resets_and_without_memory_answers_are_right_and_nothing_leaks() {
    let (mut fault_counts, mut sum) = (FaultCounts::default(), 0);
    for seed in seeds(rounds()) {
        let faults = weather(seed, &[0, 1, 2, 4, 8, 30])
            .with(NetworkFault::Reset, 300)
            .with(NetworkFault::Refused, 20)
            .with(NetworkFault::TimedOut, 20);
        let (whole, occurred, _) = round(seed, faults, true);
        fault_counts += occurred;
        sum += whole;
    }
    println!("{sum} got all answers\n{fault_counts}");
    fault_counts.assert_all(&without_messages(&NetworkFault::ALL));
}
