//! Requests over HTTP/3: a loop of a server and one of its client, whose work is not counted.
//!
//! Handshakes are not counted. TLS chooses keys at random, and QUIC its connection ids and a few numbers of packets: two runs differ
//! by less than a thousandth. The cryptography chooses its code by the processor, so no figure is stored, and the job runs by its
//! name only:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*tidegate_instructions*counted*switch*' \
//!     target/dist/tidegate-instructions run http3-sync 00000010
//! ```

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_buffer::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{
    Context as HandlerContext, Event, EventLoop, Handler, Outcome, SessionLimits, SessionStreams, Streams,
};
use tidegate_http::{Config, Router};
use tidegate_http3::{Endpoint, qpack, varint};
use tidegate_quic::{self as quic, Codes, Connection, Connector, Direction, TransportLimits};
use tidegate_sys::{DatagramOptions, Socket};
use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::{self as tls, Certificates, Provider};

use crate::counted::count_this;
use crate::datagram_wire::Link;
use crate::http::yield_once;

/// Requests on `STREAMS` streams of each of [`CONNECTIONS`] connections, answered by a function that is not async. The
/// acknowledgements of the responses come with the requests of the next round.
pub(crate) fn sync<const STREAMS: usize>(rounds: usize) {
    let mut stage = Stage::new();
    let client = stage.client.clone();
    let connections = stage.task(false, async move {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Rc::new(client.connect(Link::address(0), NAME).await.expect("a connection")));
        }
        connections
    });
    // Until the windows, the permitted streams and the buffers have their final sizes.
    for _ in 0..WARM_UP_ROUNDS {
        stage.round::<STREAMS>(false, &connections);
    }
    for _ in 0..rounds {
        stage.round::<STREAMS>(true, &connections);
    }
}

/// The two loops.
struct Stage {
    link: Rc<Link>,
    loops: [EventLoop; 2],
    client: Connector,
    request: Rc<[u8]>,
}

impl Stage {
    fn new() -> Self {
        let (link, mut loops) = Link::of_loops();
        let (server_tls, client_tls) = tls();
        let options = DatagramOptions::default();
        let server =
            quic::ServerConfig::new(&server_tls, TransportLimits::default()).expect("limits").codes(Codes::HTTP3);
        let (config, services) = Config::new().http3_services(Router::new().fallback(|| HELLO));
        let make = move || Endpoint::server(config.clone(), server.endpoint(0));
        let bound = loops[0].bind_sessions(Socket::Simulated(0), &options, SessionLimits::default(), make, services);
        bound.expect("it takes any socket");
        let config = quic::ClientConfig::new(&client_tls, TransportLimits::default()).expect("limits");
        let control =
            |_| SessionStreams { unidirectional: Some(Streams::handle(|| (Raw, Ignore))), bidirectional: None };
        let (limits, endpoint) = (SessionLimits::default(), config.endpoint());
        let opened = loops[1].open_sessions(Socket::Simulated(0), &options, limits, endpoint, control);
        let client = Connector::new(opened.expect("it takes any socket"), &config);
        Self { link, loops, client, request: request().into() }
    }

    /// A request on each stream, and its response.
    fn round<const STREAMS: usize>(&mut self, counts: bool, connections: &[Rc<Connection>]) {
        let left = Rc::new(Cell::new(CONNECTIONS * STREAMS));
        let (connections, request, ends) = (connections.to_vec(), self.request.clone(), left.clone());
        self.task(counts, async move {
            for connection in &connections {
                for _ in 0..STREAMS {
                    let ask = || Ask { request: request.clone(), received: 0, left: ends.clone() };
                    while connection.open_handler(Direction::Bidirectional, Raw, ask()).is_err() {
                        yield_once().await;
                    }
                }
            }
        });
        while left.get() > 0 {
            self.turn(counts);
        }
    }

    /// Runs a task of the client to its end.
    fn task<T: 'static>(&mut self, counts: bool, future: impl Future<Output = T> + 'static) -> T {
        let task = self.loops[1].spawn(future);
        while !task.is_finished() {
            self.turn(counts);
        }
        match std::pin::pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output.expect("an output"),
            Poll::Pending => unreachable!("it is finished"),
        }
    }

    /// A turn of the client's loop, and one of the server's.
    fn turn(&mut self, counts: bool) {
        self.link.pass(BETWEEN);
        self.loops[1].turn(None).expect("nothing fails on a wire");
        let server = &mut self.loops[0];
        let turned = if counts { count_this(|| server.turn(None)) } else { server.turn(None) };
        turned.expect("nothing fails on a wire");
    }
}

/// Sends a request, and takes the response.
struct Ask {
    request: Rc<[u8]>,
    received: usize,
    /// Requests of this round without a whole response.
    left: Rc<Cell<usize>>,
}

impl Handler<Raw> for Ask {
    type Post = ();

    fn open(&mut self, cx: &mut HandlerContext<'_, Raw>) -> Outcome<Raw> {
        cx.send(self.request.to_vec().into()).expect("there is room");
        cx.shutdown_write();
        Outcome::Continue
    }

    fn message(&mut self, bytes: Slice, _: &mut HandlerContext<'_, Raw>) -> Outcome<Raw> {
        self.received += bytes.len();
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, _: &mut HandlerContext<'_, Raw>) -> Outcome<Raw> {
        if event != Event::ReadClosed {
            return Outcome::Continue;
        }
        assert!(self.received > HELLO.len(), "each request gets a response");
        self.left.set(self.left.get() - 1);
        Outcome::Close
    }
}

/// Takes the bytes of the server's unidirectional streams.
struct Ignore;

impl Handler<Raw> for Ignore {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut HandlerContext<'_, Raw>) -> Outcome<Raw> {
        Outcome::Continue
    }
}

/// The configurations of TLS of both roles, where the client trusts the server's certificate.
fn tls() -> (tls::ServerConfig, tls::ClientConfig) {
    let provider = Provider::of_features().expect("cryptography");
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let server = tls::ServerConfig::builder(&provider, certificates).alpn(["h3"]).build().expect("a configuration");
    let client = tls::ClientConfig::builder(&provider, roots).expect("roots").alpn(["h3"]).build();
    (server, client.expect("a configuration"))
}

/// The bytes of a request stream: the fields of `tidegate load`.
fn request() -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", NAME), (":path", "/plaintext")];
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        qpack::encode(name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    let mut stream = Vec::new();
    varint::write(HEADERS, &mut stream);
    varint::write(section.len() as u64, &mut stream);
    stream.extend_from_slice(&section);
    stream
}

/// Connections of one client.
pub(crate) const CONNECTIONS: usize = 8;

const WARM_UP_ROUNDS: usize = 16;

const NAME: &str = "sea.example";

const HELLO: &str = "Hello, World!";

/// The type of a frame (RFC 9114 §7.2.2).
const HEADERS: u64 = 1;

/// The time between turns.
const BETWEEN: Duration = Duration::from_micros(100);
