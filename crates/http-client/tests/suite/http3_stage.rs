//! HTTP/3 servers on one loop and the client on another: over a driver, or in a network.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::client::{ClientLimits, Http3Config, UdpSockets};
use tidegate::http::{Client, Config, Router};
use tidegate::http3::{self, varint};
use tidegate::quic::{self, Codes, Direction};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{self, Certificates, Provider};
use tidegate::{Channel, Event, EventLoop, Handler, Outcome, Slice, task};
use tidegate_testkit::TwoLoops;
use tidegate_testkit::network::Network;

#[path = "../../../http3/tests/suite/frames.rs"]
mod frames;
pub(crate) use self::frames::{DATA, frame, headers};

thread_local! {
    /// The network in which the client of this thread opens sockets.
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

pub(crate) struct Stage {
    loops: TwoLoops,
    /// Of servers over TCP, and of those over QUIC.
    pub(crate) tcp_tls: tls::ServerConfig,
    server_tls: tls::ServerConfig,
    pub(crate) client_tls: tls::ClientConfig,
}

impl Stage {
    /// Runs a scenario on epoll, on io_uring where it is there, and in the simulated network.
    pub(crate) fn each(scenario: impl Fn(&mut Self)) {
        for loops in TwoLoops::each() {
            scenario(&mut Self::new(loops));
        }
    }

    /// The stage on epoll alone.
    pub(crate) fn epoll() -> Self {
        Self::new(TwoLoops::epoll())
    }

    /// The stage in the simulated network alone.
    pub(crate) fn network() -> Self {
        Self::new(TwoLoops::network(1))
    }

    fn new(loops: TwoLoops) -> Self {
        NETWORK.set(loops.simulated().cloned());
        let (server_tls, client_tls) = configs();
        let tcp_tls = server_tls.clone();
        Self { loops, tcp_tls, server_tls: server_tls.with_alpn(["h3"]), client_tls }
    }

    fn simulated(&self) -> &Network {
        self.loops.simulated().expect("drivers have no faults, and their time is real")
    }

    /// The simulated network, in which nothing comes through between both hosts from now on.
    pub(crate) fn partition(&self) {
        let [server, client] = TwoLoops::IPS.map(|ip| self.simulated().host(ip));
        self.simulated().partition(&server, &client);
    }

    /// Lets some time of the network pass.
    pub(crate) fn run_for(&self, time: Duration) {
        self.simulated().run_for(time);
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        self.loops.with(number, act)
    }

    fn socket(&self) -> Socket {
        self.loops.datagrams(0, &DatagramOptions::default())
    }

    /// Runs a server of functions on the first loop.
    pub(crate) fn serve(&mut self, limits: quic::TransportLimits, router: Router) -> SocketAddr {
        self.serve_with(Config::new(), limits, router)
    }

    /// The same with a configuration.
    pub(crate) fn serve_with(&mut self, config: Config, limits: quic::TransportLimits, router: Router) -> SocketAddr {
        let (config, services) = config.http3_services(router);
        let quic = quic::ServerConfig::new(&self.server_tls, limits).expect("limits").codes(Codes::HTTP3);
        let make = move || http3::Endpoint::server(config.clone(), quic.endpoint(0));
        let (socket, options) = (self.socket(), DatagramOptions::default());
        let bound = self
            .with(0, |event_loop| event_loop.bind_sessions(socket, &options, SessionLimits::default(), make, services));
        bound.expect("an address").ip().expect("an IP address")
    }

    /// Runs a server that answers requests by a script, which gets the number of a connection and of a request on it.
    pub(crate) fn serve_script(&mut self, script: impl Fn(usize, usize) -> Answer + 'static) -> SocketAddr {
        self.serve_script_with(quic::TransportLimits::default(), script)
    }

    /// The same with these limits.
    pub(crate) fn serve_script_with(
        &mut self,
        limits: quic::TransportLimits,
        script: impl Fn(usize, usize) -> Answer + 'static,
    ) -> SocketAddr {
        let quic = quic::ServerConfig::new(&self.server_tls, limits).expect("limits");
        let (script, connections) = (Rc::new(script) as Rc<Script>, Cell::new(0));
        let services = move |session: EndpointSession<quic::Endpoint>| {
            let connection = connections.replace(connections.get() + 1);
            let (script, requests, control) = (script.clone(), Rc::new(Cell::new(0)), Rc::default());
            drop(task::spawn(open_control(session, Rc::clone(&control))));
            let requests = Streams::handle(move || {
                let request = requests.replace(requests.get() + 1);
                let script = script.clone();
                (Raw, Scripted { script, connection, request, control: control.clone() })
            });
            let ignored = Streams::handle(|| (Raw, Ignores));
            SessionStreams { bidirectional: Some(requests), unidirectional: Some(ignored) }
        };
        let (socket, options) = (self.socket(), DatagramOptions::default());
        let (make, limits) = (move || quic.endpoint(0), SessionLimits::default());
        let bound = self.with(0, |event_loop| event_loop.bind_sessions(socket, &options, limits, make, services));
        bound.expect("an address").ip().expect("an IP address")
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Http3Config::default(), ClientLimits::default())
    }

    pub(crate) fn client_with(&self, config: Http3Config, limits: ClientLimits) -> Client {
        let sockets = match self.loops.simulated() {
            None => UdpSockets::default(),
            Some(_) => UdpSockets::by(|_, options| {
                NETWORK.with_borrow(|network| {
                    network.as_ref().expect("a network").host(TwoLoops::IPS[1]).datagrams(0, options)
                })
            }),
        };
        let config = Http3Config { sockets, ..config };
        Client::builder().tls(self.client_tls.clone()).limits(limits).http3_prior_knowledge(config).build()
    }

    pub(crate) fn run_until(&mut self, is_so: impl FnMut() -> bool) {
        self.loops.run_until(is_so);
    }

    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        self.loops.task(future)
    }
}

/// The configurations of TLS of both roles, where the client trusts the server's certificate.
pub(crate) fn configs() -> (tls::ServerConfig, tls::ClientConfig) {
    // The client connects to addresses, so the certificate has those.
    let names = ["127.0.0.1", TwoLoops::IPS[0]].map(str::to_owned);
    let provider = Provider::of_features().expect("cryptography");
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let server = tls::ServerConfig::builder(&provider, certificates).build().expect("valid");
    (server, tls::ClientConfig::builder(&provider, roots).expect("roots").build().expect("valid"))
}

/// A loop cannot be dropped with the values of its thread.
impl Drop for Stage {
    fn drop(&mut self) {
        NETWORK.set(None);
    }
}

/// The answer of a scripted server to a request.
pub(crate) enum Answer {
    /// These bytes, and the end of the stream.
    Whole(Vec<u8>),
    /// These bytes, and nothing more.
    Part(Vec<u8>),
    /// A reset with this code, behind these bytes.
    Reset(Vec<u8>, u64),
    /// GOAWAY with this number on the control stream, and nothing else.
    GoAway(u64),
    /// These bytes on the control stream, and nothing else.
    Control(Vec<u8>),
}

type Script = dyn Fn(usize, usize) -> Answer;
type Control = Rc<RefCell<Option<Channel<Raw>>>>;

/// Opens the control stream, which begins with SETTINGS.
async fn open_control(session: EndpointSession<quic::Endpoint>, control: Control) {
    let mut channel = session.open(Direction::Unidirectional, Raw).expect("a stream");
    channel.send([&[0][..], &frame(SETTINGS, b"")].concat().into()).expect("room");
    *control.borrow_mut() = Some(channel);
}

/// Answers one request, once its stream has ended.
struct Scripted {
    script: Rc<Script>,
    connection: usize,
    request: usize,
    control: Control,
}

impl Handler<Raw> for Scripted {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut tidegate::Context<'_, Raw>) -> Outcome<Raw> {
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut tidegate::Context<'_, Raw>) -> Outcome<Raw> {
        if event != Event::ReadClosed {
            return Outcome::Continue;
        }
        let control = match (self.script)(self.connection, self.request) {
            Answer::Whole(bytes) => {
                cx.send(bytes.into()).expect("room");
                return Outcome::Close;
            }
            Answer::Part(bytes) => {
                cx.send(bytes.into()).expect("room");
                return Outcome::Continue;
            }
            Answer::Reset(bytes, code) => {
                cx.send(bytes.into()).expect("room");
                return Outcome::Reset(code);
            }
            Answer::GoAway(number) => {
                let mut payload = Vec::new();
                varint::write(number, &mut payload);
                frame(GOAWAY, &payload)
            }
            Answer::Control(bytes) => bytes,
        };
        let channel = self.control.clone();
        drop(task::spawn(async move {
            channel.borrow_mut().as_mut().expect("a control stream").send(control.into()).expect("room");
        }));
        Outcome::Continue
    }
}

struct Ignores;

impl Handler<Raw> for Ignores {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut tidegate::Context<'_, Raw>) -> Outcome<Raw> {
        Outcome::Continue
    }
}

pub(crate) const SETTINGS: u64 = 4;
pub(crate) const GOAWAY: u64 = 7;

/// A whole response.
pub(crate) fn response(text: &str) -> Vec<u8> {
    [headers(&[(":status", "200")]), frame(DATA, text.as_bytes())].concat()
}
