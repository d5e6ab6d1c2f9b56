//! A server and a client on a simulated network, and the bytes that the server's kernel has moved in each millisecond.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, Client, Context, Event, Handler, Limits, Outcome, Rate, Shaping, task};
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::network::{Network, SimNode};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// The key of the filter.
const KEY: u8 = 0x5A;

pub(crate) type Filtered = Over<ToyTls, Raw>;

pub(crate) fn filtered_server() -> Filtered {
    Over::new(ToyTls::server(KEY), Raw)
}

pub(crate) fn filtered_client() -> Filtered {
    Over::new(ToyTls::client(KEY), Raw)
}

pub(crate) struct Run {
    pub(crate) network: Network,
    pub(crate) server: SimNode,
    pub(crate) client: SimNode,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let network = Network::new(seed);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        Self { network, server, client }
    }

    /// A server that sends as many bytes as the first message asks for, and counts the bytes after that.
    pub(crate) fn serve<C: Pipeline<In = Slice, Out = Payload>>(
        &self,
        limits: Limits,
        codec: impl Fn() -> C + 'static,
    ) -> Address {
        self.server.listen(7, limits, move |_: &Address| (codec(), Source::default())).expect("the port is free")
    }

    /// Downloads so many bytes, and returns whether they are those that the server sends.
    pub(crate) fn download<C: Pipeline<In = Slice, Out = Payload>>(
        &self,
        to: &Address,
        limits: Limits,
        codec: C,
        bytes: usize,
    ) -> (Task<bool>, Rc<Cell<usize>>) {
        let (client, received) = (Client::at(to.clone()).limits(limits), Rc::<Cell<usize>>::default());
        let counted = received.clone();
        let task = self.client.spawn(async move {
            let mut channel = client.connect(codec).await.expect("it listens");
            channel.send(bytes.to_string().into()).expect("it is open");
            let mut is_right = true;
            while counted.get() < bytes {
                let piece = channel.recv().await.expect("it is open").expect("more bytes");
                is_right &= piece.iter().enumerate().all(|(at, byte)| *byte == pattern(counted.get() + at));
                counted.set(counted.get() + piece.len());
            }
            is_right
        });
        (task, received)
    }

    /// Uploads so many bytes, and waits for the server's receipt.
    pub(crate) fn upload<C: Pipeline<In = Slice, Out = Payload>>(
        &self,
        to: &Address,
        limits: Limits,
        codec: C,
        bytes: usize,
    ) -> Task<()> {
        let client = Client::at(to.clone()).limits(limits);
        self.client.spawn(async move {
            let mut channel = client.connect(codec).await.expect("it listens");
            channel.send(format!("-{bytes}\n").into()).expect("it is open");
            let mut left = bytes;
            while left > 0 {
                channel.ready().await.expect("it is open");
                let piece = left.min(10_000);
                channel.send(vec![b'.'; piece].into()).expect("it is open");
                left -= piece;
            }
            let receipt = channel.recv().await.expect("it is open").expect("a receipt");
            assert_eq!(&*receipt, b"received");
        })
    }

    /// Lets milliseconds pass until `is_so`; `check` gets the server's received and sent bytes after each.
    pub(crate) fn each_millisecond(&self, mut is_so: impl FnMut() -> bool, mut check: impl FnMut(Duration, u64, u64)) {
        let begun = self.network.elapsed();
        while !is_so() {
            self.network.run_for(MILLISECOND);
            let counts = self.server.counts();
            let elapsed = self.network.elapsed() - begun;
            check(elapsed, counts.received_bytes, counts.sent_bytes);
            assert!(elapsed < 1_000 * SECOND, "it has not come to an end");
        }
    }
}

/// The bytes of a server.
pub(crate) fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// The most bytes that a rate admits in a time.
pub(crate) fn admits(rate: Rate, time: Duration) -> u64 {
    rate.burst_bytes() + (u128::from(rate.bytes_per_second()) * time.as_nanos() / 1_000_000_000) as u64
}

pub(crate) fn limits(shaping: Shaping) -> Limits {
    Limits { shaping, ..Limits::default() }
}

/// `N` has it send so many bytes, `-N\n` has it wait for so many and send a receipt.
#[derive(Default)]
struct Source {
    to_send: usize,
    sent: usize,
    to_receive: Option<usize>,
}

impl Source {
    fn send<C: Pipeline<In = Slice, Out = Payload>>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        while self.sent < self.to_send && cx.is_writable() {
            let piece: Vec<_> = (self.sent..self.to_send.min(self.sent + 5_000)).map(pattern).collect();
            self.sent += piece.len();
            if let Err(error) = cx.send(piece.into()) {
                return Outcome::fail(error);
            }
        }
        Outcome::Continue
    }
}

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Source {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        let mut length = bytes.len();
        if self.to_receive.is_none() {
            let text = std::str::from_utf8(&bytes).expect("text");
            let Some(text) = text.strip_prefix('-') else {
                self.to_send += text.parse::<usize>().expect("a number");
                return self.send(cx);
            };
            let (number, rest) = text.split_once('\n').expect("a line");
            self.to_receive = Some(number.parse().expect("a number"));
            length = rest.len();
        }
        let left = self.to_receive.unwrap_or_default() - length;
        self.to_receive = Some(left);
        if left == 0 { cx.send("received".into()).into() } else { Outcome::Continue }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Writable => self.send(cx),
            event => event.by_default(cx),
        }
    }
}

/// Sends a line now and then, and returns how long each answer took.
pub(crate) async fn ask_now_and_then(client: Client, count: u32, pause: Duration) -> Vec<Duration> {
    let mut channel: Channel<Raw> = client.connect(Raw).await.expect("it listens");
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = task::now();
        channel.send("1".into()).expect("it is open");
        channel.recv().await.expect("it is open").expect("an answer");
        times.push(task::now() - begun);
        task::sleep(pause).await;
    }
    times
}
