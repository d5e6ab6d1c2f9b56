//! HTTP/3 servers on one loop and the client on another: over a driver, or in a network.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::client::{ClientLimits, Http3Config, UdpSockets};
use tidegate::http::{Client, Config, Router};
use tidegate::http3::{self, qpack, varint};
use tidegate::quic::{self, Codes, Direction};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{self, Certificates, Provider};
use tidegate::{Backend, Channel, Event, EventLoop, Handler, Outcome, Slice, task};
use tidegate_testkit::network::{Network, SimNode};

thread_local! {
    /// The network in which the client of this thread opens sockets.
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

pub(crate) struct Stage {
    hosts: Hosts,
    /// Of servers over TCP, and of those over QUIC.
    pub(crate) tcp_tls: tls::ServerConfig,
    server_tls: tls::ServerConfig,
    pub(crate) client_tls: tls::ClientConfig,
}

enum Hosts {
    Loops(Vec<EventLoop>),
    Network(Network, Vec<SimNode>),
}

impl Stage {
    /// Runs a scenario on epoll, on io_uring where it is there, and in the simulated network.
    pub(crate) fn each(scenario: impl Fn(&mut Self)) {
        let loops = |backend| (0..2).map(|_| EventLoop::on(backend).expect("a loop")).collect();
        let mut all = vec![Hosts::Loops(loops(Backend::Epoll))];
        match tidegate::sys::uring::Uring::probe() {
            Ok(_) => all.push(Hosts::Loops(loops(Backend::Uring))),
            Err(error) => println!("skipped: there is no io_uring here: {error}"),
        }
        for hosts in all {
            scenario(&mut Self::new(hosts));
        }
        scenario(&mut Self::network());
    }

    /// The stage on epoll alone.
    pub(crate) fn epoll() -> Self {
        let loops = (0..2).map(|_| EventLoop::on(Backend::Epoll).expect("a loop")).collect();
        Self::new(Hosts::Loops(loops))
    }

    /// The stage in the simulated network alone.
    pub(crate) fn network() -> Self {
        let network = Network::new(1);
        let nodes = IPS.map(|ip| network.host(ip).node());
        NETWORK.set(Some(network.clone()));
        Self::new(Hosts::Network(network, nodes.into()))
    }

    fn new(hosts: Hosts) -> Self {
        let (server_tls, client_tls) = configs();
        let tcp_tls = server_tls.clone();
        Self { hosts, tcp_tls, server_tls: server_tls.with_alpn(["h3"]), client_tls }
    }

    /// The simulated network, in which nothing comes through between both hosts from now on.
    pub(crate) fn partition(&self) {
        let Hosts::Network(network, _) = &self.hosts else { panic!("drivers have no faults") };
        network.partition(&network.host(IPS[0]), &network.host(IPS[1]));
    }

    /// Lets some time of the network pass.
    pub(crate) fn run_for(&self, time: Duration) {
        let Hosts::Network(network, _) = &self.hosts else { panic!("the time of drivers is real") };
        network.run_for(time);
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        match &mut self.hosts {
            Hosts::Loops(loops) => act(&mut loops[number]),
            Hosts::Network(_, nodes) => nodes[number].with(act),
        }
    }

    fn socket(&self) -> Socket {
        let options = DatagramOptions::default();
        let socket = match &self.hosts {
            Hosts::Loops(_) => Socket::bind_datagrams(SocketAddr::from(([127, 0, 0, 1], 0)), &options),
            Hosts::Network(network, _) => network.host(IPS[0]).datagrams(0, &options),
        };
        socket.expect("a socket")
    }

    /// Runs a server of functions on the first loop.
    pub(crate) fn serve(&mut self, limits: quic::TransportLimits, router: Router) -> SocketAddr {
        let (config, services) = Config::new().http3_services(router);
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
        let sockets = match &self.hosts {
            Hosts::Loops(_) => UdpSockets::default(),
            Hosts::Network(..) => UdpSockets::by(|_, options| {
                NETWORK.with_borrow(|network| network.as_ref().expect("a network").host(IPS[1]).datagrams(0, options))
            }),
        };
        let config = Http3Config { sockets, ..config };
        Client::builder().tls(self.client_tls.clone()).limits(limits).http3_prior_knowledge(config).build()
    }

    /// Runs until `is_so`.
    pub(crate) fn run_until(&mut self, mut is_so: impl FnMut() -> bool) {
        match &mut self.hosts {
            Hosts::Loops(loops) => {
                let deadline = Instant::now() + PATIENCE;
                while !is_so() {
                    assert!(Instant::now() < deadline, "it takes too long");
                    for event_loop in loops.iter_mut() {
                        event_loop.turn(Some(Duration::from_millis(1))).expect("a turn");
                    }
                }
            }
            Hosts::Network(network, _) => assert!(network.run_until(PATIENCE, is_so), "it takes too long"),
        }
    }

    /// Runs a task on the second loop to its end.
    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = self.with(1, |event_loop| event_loop.spawn(future));
        self.run_until(|| task.is_finished());
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output.expect("an output"),
            Poll::Pending => unreachable!("it has ended"),
        }
    }
}

/// The configurations of TLS of both roles, where the client trusts the server's certificate.
pub(crate) fn configs() -> (tls::ServerConfig, tls::ClientConfig) {
    // The client connects to addresses, so the certificate has those.
    let names = ["127.0.0.1", IPS[0]].map(str::to_owned);
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

pub(crate) const DATA: u64 = 0;
pub(crate) const HEADERS: u64 = 1;
pub(crate) const SETTINGS: u64 = 4;
pub(crate) const GOAWAY: u64 = 7;

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    varint::write(kind, &mut wire);
    varint::write(payload.len() as u64, &mut wire);
    wire.extend_from_slice(payload);
    wire
}

/// A HEADERS frame.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        qpack::encode(name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    frame(HEADERS, &section)
}

/// A whole response.
pub(crate) fn response(text: &str) -> Vec<u8> {
    [headers(&[(":status", "200")]), frame(DATA, text.as_bytes())].concat()
}

const IPS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

const PATIENCE: Duration = Duration::from_secs(120);
