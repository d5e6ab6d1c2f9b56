//! An HTTP/3 server of a router on one loop and a raw client on another, over a driver or in a network.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::codec::StreamEndpoint;
use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::{Config, Router};
use tidegate::http3::{self, qpack, varint};
use tidegate::quic::{self, Codes, Direction};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{self, Certificates, Provider};
use tidegate::{Channel, EventLoop, Handler, Outcome, Slice};
use tidegate_testkit::TwoLoops;
use tidegate_testkit::network::Network;

#[path = "../../../../http3/tests/suite/frames.rs"]
mod frames;
pub(crate) use self::frames::{DATA, HEADERS, frame, headers};

pub(crate) struct Stage {
    loops: TwoLoops,
    tls: (tls::ServerConfig, tls::ClientConfig),
}

pub(crate) const NAME: &str = "sea.example";

/// The configurations of TLS of both roles, where the client trusts the server's certificate.
pub(crate) fn tls() -> (tls::ServerConfig, tls::ClientConfig) {
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

impl Stage {
    /// Runs a scenario on epoll, on io_uring where it is there, and in the simulated network.
    pub(crate) fn each(scenario: impl Fn(&mut Self)) {
        TwoLoops::each().for_each(|loops| scenario(&mut Self { loops, tls: tls() }));
    }

    /// Runs a scenario on epoll, and on io_uring where it is there, whose sockets are those of the system.
    pub(crate) fn on_system(scenario: impl Fn(&mut Self)) {
        let loops = TwoLoops::each().filter(|loops| loops.simulated().is_none());
        loops.for_each(|loops| scenario(&mut Self { loops, tls: tls() }));
    }

    /// Runs a scenario in the simulated network, whose time is its own.
    pub(crate) fn simulated(scenario: impl FnOnce(&mut Self)) {
        scenario(&mut Self { loops: TwoLoops::network(1), tls: tls() });
    }

    /// The simulated network.
    pub(crate) fn network(&self) -> Network {
        self.loops.simulated().expect("it is simulated").clone()
    }

    /// No datagram passes from now on.
    pub(crate) fn cut(&self) {
        let network = self.network();
        network.partition(&network.host(TwoLoops::IPS[0]), &network.host(TwoLoops::IPS[1]));
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        self.loops.with(number, act)
    }

    fn socket(&self, number: usize) -> Socket {
        self.loops.datagrams(number, &DatagramOptions::default())
    }

    /// Runs a server on the first loop.
    pub(crate) fn serve<S: 'static>(&mut self, config: Config, router: Router<S>) -> SocketAddr {
        self.serve_with(quic::TransportLimits::default(), config, router)
    }

    pub(crate) fn serve_with<S: 'static>(
        &mut self,
        limits: quic::TransportLimits,
        config: Config,
        router: Router<S>,
    ) -> SocketAddr {
        self.serve_within((limits, SessionLimits::default()), config, router)
    }

    /// The same with the limits of streams.
    pub(crate) fn serve_within<S: 'static>(
        &mut self,
        (limits, of_streams): (quic::TransportLimits, SessionLimits),
        config: Config,
        router: Router<S>,
    ) -> SocketAddr {
        let quic = self.quic(limits);
        self.serve_quic((quic, of_streams), config, router)
    }

    /// The same with a configuration of QUIC, which servers may share.
    pub(crate) fn serve_quic<S: 'static>(
        &mut self,
        (quic, of_streams): (quic::ServerConfig, SessionLimits),
        config: Config,
        router: Router<S>,
    ) -> SocketAddr {
        let (config, services) = config.http3_services(router);
        let make = move || http3::Endpoint::server(config.clone(), quic.endpoint(0));
        self.serve_endpoint(of_streams, make, services)
    }

    /// Runs another protocol on the first loop.
    pub(crate) fn serve_endpoint<E: StreamEndpoint + 'static>(
        &mut self,
        limits: SessionLimits,
        make: impl FnMut() -> E + 'static,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> SocketAddr {
        let (socket, options) = (self.socket(0), DatagramOptions::default());
        let bound = self.with(0, |event_loop| event_loop.bind_sessions(socket, &options, limits, make, services));
        bound.expect("an address").ip().expect("an IP address")
    }

    /// Runs a server on the first loop whose request streams have these services.
    pub(crate) fn serve_services(&mut self, limits: http3::Limits, services: SessionStreams) -> SocketAddr {
        let config = Arc::new(http3::Config::new(limits));
        let quic = quic::ServerConfig::new(&self.tls.0, quic::TransportLimits::default());
        let quic = quic.expect("limits").codes(Codes::HTTP3);
        let make = move || http3::Endpoint::server(config.clone(), quic.endpoint(0));
        self.serve_endpoint(SessionLimits::default(), make, move |_| services.clone())
    }

    /// Runs a server on the first loop that speaks QUIC, and sends nothing of HTTP/3.
    pub(crate) fn serve_quic_alone(&mut self) -> SocketAddr {
        let quic = self.quic(quic::TransportLimits::default());
        let (socket, options) = (self.socket(0), DatagramOptions::default());
        let bound = self.with(0, |event_loop| {
            let make = move || quic.endpoint(0);
            let services = |_| SessionStreams {
                unidirectional: Some(Streams::handle(|| (Raw, Collect(Rc::default())))),
                bidirectional: None,
            };
            event_loop.bind_sessions(socket, &options, SessionLimits::default(), make, services)
        });
        bound.expect("an address").ip().expect("an IP address")
    }

    /// A client on the second loop that is connected, and has sent SETTINGS.
    pub(crate) fn connect(&mut self, server: SocketAddr) -> Peer {
        self.connect_within(server, quic::TransportLimits::default())
    }

    /// The same with limits of the client.
    pub(crate) fn connect_within(&mut self, server: SocketAddr, limits: quic::TransportLimits) -> Peer {
        let peer = self.connect_silently_within(server, limits);
        let sender = peer.clone();
        let own = self.task(async move { sender.open_uni(&[CONTROL, &frame(SETTINGS, b"")].concat()) });
        Peer { _own: Some(Rc::new(own)), ..peer }
    }

    /// The datagrams with which a client begins a connection with early data: the bytes of a request stream, or of several. No
    /// server gets them.
    pub(crate) fn early_datagrams(&mut self, limits: quic::TransportLimits, streams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (socket, options) = (self.socket(0), DatagramOptions::default());
        let collector =
            self.with(0, |event_loop| event_loop.open_datagrams(socket, &options, tidegate::EndpointLimits::default()));
        let mut collector = collector.expect("a socket");
        let address = collector.local_address().expect("an address");
        let peer = self.connect_silently_within(address, limits);
        let streams = streams.to_vec();
        let _open = self.task(async move {
            let mut open = Vec::new();
            for bytes in streams {
                let mut channel = peer.open(&bytes).await;
                channel.shutdown_write();
                open.push(channel);
            }
            (peer, open)
        });
        self.network().run_for(Duration::from_millis(50));
        std::iter::from_fn(|| collector.try_recv_from()).map(|datagram| datagram.payload.to_vec()).collect()
    }

    /// An attacker sends datagrams to a server, and nothing else.
    pub(crate) fn replay(&mut self, server: SocketAddr, datagrams: Vec<Vec<u8>>) {
        let (socket, options) = (self.socket(1), DatagramOptions::default());
        let attacker =
            self.with(1, |event_loop| event_loop.open_datagrams(socket, &options, tidegate::EndpointLimits::default()));
        let mut attacker = attacker.expect("a socket");
        self.task(async move {
            datagrams.into_iter().for_each(|datagram| attacker.send_to(datagram, server).expect("room"));
            // Beyond the deadline of the handshake.
            tidegate::task::sleep(Duration::from_secs(30)).await;
        });
    }

    /// The TLS configuration of a client that trusts the server.
    pub(crate) fn client_tls(&self) -> tls::ClientConfig {
        self.tls.1.clone()
    }

    /// The TLS configuration of a server.
    pub(crate) fn server_tls() -> tls::ServerConfig {
        tls().0
    }

    /// The configuration of a server's connections.
    pub(crate) fn quic(&self, limits: quic::TransportLimits) -> quic::ServerConfig {
        quic::ServerConfig::new(&self.tls.0, limits).expect("limits").codes(Codes::HTTP3)
    }

    /// The same with HTTP datagrams, and with the services of the streams that the server opens, beside its control stream.
    pub(crate) fn connect_with(
        &mut self,
        server: SocketAddr,
        limits: quic::TransportLimits,
        services: impl Fn() -> SessionStreams + 'static,
    ) -> Peer {
        let peer = self.connect_raw(server, limits, services);
        let sender = peer.clone();
        let own = self.task(async move { sender.open_uni(&[CONTROL, &frame(SETTINGS, &[0x33, 1])].concat()) });
        Peer { _own: Some(Rc::new(own)), ..peer }
    }

    /// The same without a control stream.
    pub(crate) fn connect_silently(&mut self, server: SocketAddr) -> Peer {
        self.connect_silently_within(server, quic::TransportLimits::default())
    }

    fn connect_silently_within(&mut self, server: SocketAddr, limits: quic::TransportLimits) -> Peer {
        let opened = Rc::<RefCell<Vec<u8>>>::default();
        let control = opened.clone();
        let peer = self.connect_raw(server, limits, move || {
            let control = control.clone();
            let unidirectional = Streams::handle(move || (Raw, Collect(control.clone())));
            SessionStreams { unidirectional: Some(unidirectional), bidirectional: None }
        });
        Peer { control: opened, ..peer }
    }

    fn connect_raw(
        &mut self,
        server: SocketAddr,
        limits: quic::TransportLimits,
        services: impl Fn() -> SessionStreams + 'static,
    ) -> Peer {
        let config = quic::ClientConfig::new(&self.tls.1, limits).expect("limits").codes(Codes::HTTP3);
        let (socket, options) = (self.socket(1), DatagramOptions::default());
        let (endpoint, services) = (config.endpoint(), move |_| services());
        let opened_endpoint = self.with(1, |event_loop| {
            event_loop.open_sessions(socket, &options, SessionLimits::default(), endpoint, services)
        });
        let client = quic::Connector::new(opened_endpoint.expect("a socket"), &config);
        let connection = self.task(async move { client.connect(server, NAME).await.expect("a connection") });
        Peer { connection: Rc::new(connection), control: Rc::default(), _own: None }
    }

    pub(crate) fn run_until(&mut self, is_so: impl FnMut() -> bool) {
        self.loops.run_until(is_so);
    }

    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        self.loops.task(future)
    }

    /// The code with which the server closes a connection.
    pub(crate) fn closed(&mut self, peer: &Peer) -> u64 {
        let connection = peer.connection.clone();
        match self.task(async move { connection.closed().await }) {
            quic::ConnectionError::ClosedByPeer { code, .. } => code,
            error => panic!("{error}"),
        }
    }
}

/// Collects the bytes of the server's unidirectional streams.
struct Collect(Rc<RefCell<Vec<u8>>>);

impl Handler<Raw> for Collect {
    type Post = ();

    fn message(&mut self, bytes: Slice, _: &mut tidegate::Context<'_, Raw>) -> Outcome<Raw> {
        self.0.borrow_mut().extend_from_slice(&bytes);
        Outcome::Continue
    }
}

/// A connection of a client that writes frames by hand.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) connection: Rc<quic::Connection>,
    /// The bytes of the server's control stream.
    pub(crate) control: Rc<RefCell<Vec<u8>>>,
    /// The client's control stream.
    _own: Option<Rc<Channel<Raw>>>,
}

/// A response, or the reason for which there is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) status: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The stream was reset.
    pub(crate) reset: Option<String>,
}

impl Received {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// Whether the stream was reset with this code.
    pub(crate) fn is_reset_with(&self, code: http3::ErrorCode) -> bool {
        self.reset.as_ref().is_some_and(|reason| reason.contains(&code.0.to_string()))
    }
}

impl Peer {
    /// Opens a unidirectional stream with these bytes.
    pub(crate) fn open_uni(&self, bytes: &[u8]) -> Channel<Raw> {
        let mut channel = self.connection.open(Direction::Unidirectional, Raw).expect("a stream");
        channel.send(bytes.to_vec().into()).expect("room");
        channel
    }

    /// Opens a request stream with these bytes.
    pub(crate) async fn open(&self, bytes: &[u8]) -> Channel<Raw> {
        let mut channel = self.connection.open_when_allowed(Direction::Bidirectional, Raw).await.expect("a stream");
        channel.send(bytes.to_vec().into()).expect("room");
        channel
    }

    /// Sends the bytes of a request and the end of its stream, and reads the response.
    pub(crate) async fn ask(&self, bytes: &[u8]) -> Received {
        let mut channel = self.open(bytes).await;
        channel.shutdown_write();
        receive(&mut channel).await
    }

    pub(crate) async fn get(&self, path: &str) -> Received {
        self.ask(&request("GET", path, &[])).await
    }
}

/// Reads a response.
pub(crate) async fn receive(channel: &mut Channel<Raw>) -> Received {
    let (mut wire, mut received) = (Vec::new(), Received::default());
    loop {
        match channel.recv().await {
            Ok(Some(bytes)) => wire.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(error) => {
                received.reset = Some(error.to_string());
                break;
            }
        }
    }
    let mut rest = &wire[..];
    while let Some((kind, payload, after)) = split(rest) {
        rest = after;
        match kind {
            DATA => received.body.extend_from_slice(payload),
            HEADERS => {
                let mut fields = Vec::new();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let field = |name: &[u8], value: &[u8]| fields.push((text(name), text(value)));
                qpack::decode(payload, &mut Vec::new(), field).expect("a section");
                match fields.first() {
                    Some((name, status)) if name == ":status" => {
                        received.status = status.clone();
                        received.fields = fields.split_off(1);
                    }
                    _ => received.trailers = fields,
                }
            }
            _ => {}
        }
    }
    received
}

/// The first frame, and the bytes behind it.
pub(crate) fn split(wire: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (kind, first) = varint::read(wire)?;
    let (length, second) = varint::read(&wire[first..])?;
    let (payload, after) = wire[first + second..].split_at_checked(usize::try_from(length).ok()?)?;
    Some((kind, payload, after))
}

pub(crate) const SETTINGS: u64 = 4;
pub(crate) const GOAWAY: u64 = 7;
pub(crate) const PRIORITY_UPDATE: u64 = 0xf0700;
/// The type of a control stream.
pub(crate) const CONTROL: &[u8] = &[0];

/// The head of a request.
pub(crate) fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let start = [(":method", method), (":scheme", "https"), (":authority", NAME), (":path", path)];
    headers(&[&start, more].concat())
}
