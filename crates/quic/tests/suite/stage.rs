//! A loop of a server and one of a client on one thread, over a driver or in a network.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams};
use tidegate::quic::{ClientConfig, Connector, Endpoint, ServerConfig, SessionNumber, TransportLimits};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{self, Certificates, Provider};
use tidegate::{DatagramChannel, EndpointLimits, EventLoop};
use tidegate_testkit::TwoLoops;
use tidegate_testkit::network::Network;

/// The loops; `None` where the driver is not there.
pub(crate) struct Stage(Option<TwoLoops>);

/// The configurations of TLS of both roles, where the client trusts the server's certificate.
pub(crate) fn tls() -> (tls::ServerConfig, tls::ClientConfig) {
    tls_with_handshake_timeout(Duration::from_secs(10))
}

/// The same with another time for handshakes.
pub(crate) fn tls_with_handshake_timeout(timeout: Duration) -> (tls::ServerConfig, tls::ClientConfig) {
    let provider = Provider::of_features().unwrap();
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let server = tls::ServerConfig::builder(&provider, certificates).alpn(["echo"]).handshake_timeout(timeout);
    let client = tls::ClientConfig::builder(&provider, roots).unwrap().alpn(["echo"]).handshake_timeout(timeout);
    (server.build().unwrap(), client.build().unwrap())
}

/// The same for QUIC.
pub(crate) fn configs(server: TransportLimits, client: TransportLimits) -> (ServerConfig, ClientConfig) {
    let (server_tls, client_tls) = tls();
    (ServerConfig::new(&server_tls, server).unwrap(), ClientConfig::new(&client_tls, client).unwrap())
}

/// The configuration of a server, and the TLS of a client that does without our client.
pub(crate) fn configs_with_tls(server: TransportLimits) -> (ServerConfig, tls::ClientConfig) {
    let (server_tls, client_tls) = tls();
    (ServerConfig::new(&server_tls, server).unwrap(), client_tls)
}

pub(crate) const NAME: &str = "sea.example";

impl Stage {
    pub(crate) fn epoll() -> Self {
        Self(Some(TwoLoops::epoll()))
    }

    pub(crate) fn uring() -> Self {
        Self(TwoLoops::uring())
    }

    pub(crate) fn network(seed: u64) -> Self {
        Self(Some(TwoLoops::network(seed)))
    }

    pub(crate) fn run(mut self, scenario: fn(&mut Self)) {
        if self.0.is_some() {
            scenario(&mut self);
        }
    }

    /// The simulated network.
    pub(crate) fn simulated(&self) -> Option<&Network> {
        self.0.as_ref().and_then(TwoLoops::simulated)
    }

    fn loops(&mut self) -> &mut TwoLoops {
        self.0.as_mut().expect("the stage runs")
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        self.loops().with(number, act)
    }

    pub(crate) fn socket(&self, number: usize) -> Socket {
        self.0.as_ref().expect("the stage runs").datagrams(number, &DatagramOptions::default())
    }

    pub(crate) fn listener(&self) -> Socket {
        match self.simulated() {
            Some(network) => network.host(TwoLoops::IPS[0]).listener(80).unwrap(),
            None => {
                let options = tidegate::ListenOptions::default();
                Socket::listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap()
            }
        }
    }

    /// Runs a server on the first loop.
    pub(crate) fn server(
        &mut self,
        config: &ServerConfig,
        services: impl FnMut(EndpointSession<Endpoint>) -> SessionStreams + 'static,
    ) -> SocketAddr {
        let (options, config) = (config.socket_options(), config.clone());
        let socket = self.0.as_ref().expect("the stage runs").datagrams(0, &options);
        let make = move || config.endpoint(0);
        let limits = SessionLimits::default();
        let bound = self.with(0, |event_loop| event_loop.bind_sessions(socket, &options, limits, make, services));
        bound.unwrap().ip().unwrap()
    }

    /// A client on the second loop.
    pub(crate) fn client(&mut self, config: &ClientConfig) -> Connector {
        self.client_with(config, |_| SessionStreams::default())
    }

    pub(crate) fn client_with(
        &mut self,
        config: &ClientConfig,
        services: impl FnMut(EndpointSession<Endpoint>) -> SessionStreams + 'static,
    ) -> Connector {
        let (options, endpoint) = (config.socket_options(), config.endpoint());
        let socket = self.0.as_ref().expect("the stage runs").datagrams(1, &options);
        let limits = SessionLimits::default();
        let opened = self.with(1, |event_loop| event_loop.open_sessions(socket, &options, limits, endpoint, services));
        Connector::new(opened.unwrap(), config)
    }

    pub(crate) fn run_until(&mut self, is_so: impl FnMut() -> bool) {
        self.loops().run_until(is_so);
    }

    /// Runs for some turns, or for some time of the network.
    pub(crate) fn run_a_little(&mut self) {
        self.loops().run_for(100, Duration::from_millis(200));
    }

    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        self.loops().task(future)
    }
}

/// A value that a handler and a test share.
pub(crate) type Shared<T> = Rc<std::cell::RefCell<T>>;

/// A relay on the second loop, between clients of that loop and a server.
pub(crate) fn relay(stage: &mut Stage, server: SocketAddr) -> (SocketAddr, Rc<Relay>) {
    relay_to(stage, [server, server])
}

/// The same between clients and two servers: the second one gets the datagrams after the change.
pub(crate) fn relay_to(stage: &mut Stage, servers: [SocketAddr; 2]) -> (SocketAddr, Rc<Relay>) {
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let sockets = [stage.socket(1), stage.socket(1), stage.socket(1)];
    let [inside, first, second] =
        sockets.map(|socket| stage.with(1, |event_loop| event_loop.open_datagrams(socket, &options, limits)).unwrap());
    let address = inside.local_address().unwrap();
    let relay = Rc::new(Relay::default());
    let shared = relay.clone();
    let _relaying = stage.with(1, |event_loop| event_loop.spawn(run_relay(inside, [first, second], servers, shared)));
    (address, relay)
}

/// The relay's state.
#[derive(Default)]
pub(crate) struct Relay(std::cell::Cell<usize>);

impl Relay {
    /// Datagrams to the server leave from another port from now on.
    pub(crate) fn change(&self) {
        self.0.set(1);
    }
}

async fn run_relay(
    mut inside: DatagramChannel,
    mut outside: [DatagramChannel; 2],
    servers: [SocketAddr; 2],
    relay: Rc<Relay>,
) {
    let mut client = None;
    std::future::poll_fn(|cx| {
        while let Poll::Ready(Ok(datagram)) = inside.poll_recv_from(cx) {
            client = Some(datagram.source);
            let way = relay.0.get();
            outside[way].send_to(datagram.payload.to_vec(), servers[way]).unwrap();
        }
        for channel in &mut outside {
            while let Poll::Ready(Ok(datagram)) = channel.poll_recv_from(cx) {
                if let Some(client) = client {
                    inside.send_to(datagram.payload.to_vec(), client).unwrap();
                }
            }
        }
        Poll::<()>::Pending
    })
    .await;
}

/// The first datagrams of so many clients.
pub(crate) fn initials_of(count: usize) -> Vec<Vec<Vec<u8>>> {
    first_datagrams(count, false)
}

/// The first datagrams of so many clients that close at once: an Initial with PADDING and CONNECTION_CLOSE alone.
pub(crate) fn closing_initials_of(count: usize) -> Vec<Vec<u8>> {
    first_datagrams(count, true).into_iter().map(|datagrams| datagrams.into_iter().next().unwrap()).collect()
}

fn first_datagrams(count: usize, closes: bool) -> Vec<Vec<Vec<u8>>> {
    let mut stage = Stage::network(1);
    let (_, config) = configs(TransportLimits::default(), TransportLimits::default());
    let client = stage.client(&config);
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let socket = stage.socket(0);
    let mut server = stage.with(0, |event_loop| event_loop.open_datagrams(socket, &options, limits)).unwrap();
    let address = server.local_address().unwrap();
    for place in 0..count as u64 {
        let client = client.clone();
        let connect = async move {
            let mut connecting = std::pin::pin!(client.connect(address, NAME));
            let begun = std::future::poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
            if closes {
                // The upper half of a number is counted up, and the lower half is the place in the table.
                let number = SessionNumber((place + 1) << 32 | place);
                client.endpoint().with(|endpoint, now| endpoint.close_connection(number, 0, "", now)).unwrap();
            }
            connecting.await.map(drop)
        };
        let _connecting = stage.with(1, |event_loop| event_loop.spawn(connect));
    }
    stage.simulated().unwrap().run_for(Duration::from_millis(100));
    let mut clients: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    while let Some(datagram) = server.try_recv_from() {
        let bytes = datagram.payload.to_vec();
        let id = bytes[6..6 + usize::from(bytes[5])].to_vec();
        clients.entry(id).or_default().push(bytes);
    }
    assert_eq!(clients.len(), count);
    clients.into_values().collect()
}
