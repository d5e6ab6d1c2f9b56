//! gRPC calls: tonic's services on our loops, with tonic's client and with a peer that is written by hand.

#[path = "../../../../examples/grpc/service.rs"]
mod service;

use std::future::pending;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use service::tides::tides_client::TidesClient;
use service::tides::tides_server::{Tides, TidesServer};
use service::tides::{Harbour, Level, ListRequest, Summary, Tide};
use tidegate::tower::{self, TowerService, grpc};
use tidegate::{Backend, ServerHandle};
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::http2_peer::Peer;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads")
}

/// A server that drains when it is dropped.
struct Running(ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// `None` without io_uring.
fn start_on<S, R>(backend: Backend, service: S) -> Option<Running>
where
    S: TowerService<ResponseBody = R> + Clone + Send + Sync + 'static,
    R: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin + 'static,
{
    let server = tidegate::http::Server::bind("127.0.0.1:0").expect("an address");
    let server = server.limits(grpc::limits()).loops(1).backend(backend);
    match server.serve(tower::function(grpc::Deadlines::new(service))) {
        Ok(server) => Some(Running(server)),
        Err(error) if backend == Backend::Uring => {
            println!("skipped: io_uring: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn start<S, R>(service: S) -> Running
where
    S: TowerService<ResponseBody = R> + Clone + Send + Sync + 'static,
    R: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin + 'static,
{
    start_on(Backend::Epoll, service).expect("epoll is there")
}

impl Running {
    async fn connect(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.0.address())).expect("an address");
        endpoint.connect().await.expect("a connection")
    }

    fn peer(&self) -> Peer<TcpStream> {
        let socket = TcpStream::connect(self.0.address().ip().expect("an IP address")).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a time-out");
        Peer::new(socket)
    }
}

fn brest() -> Harbour {
    Harbour { name: "Brest".to_owned() }
}

fn levels(count: u32) -> impl Stream<Item = Level> + Send + 'static {
    stream::iter(0..count).map(|index| Level { metres: f64::from(index) })
}

#[test]
fn calls_of_each_kind_work_on_both_backends() {
    let runtime = runtime();
    for backend in [Backend::Epoll, Backend::Uring] {
        let routes = runtime.block_on(service::routes()).expect("a description");
        let Some(server) = start_on(backend, routes) else { continue };
        runtime.block_on(async {
            let mut client = TidesClient::new(server.connect().await);
            for _ in 0..50 {
                let tide = client.next(brest()).await.expect("a response").into_inner();
                assert_eq!(tide, Tide { harbour: "Brest".to_owned(), level: 0.0, rises: true });
            }
            let list = ListRequest { harbour: "Brest".to_owned(), count: 5_000 };
            let tides = client.list(list).await.expect("a response").into_inner();
            let tides: Vec<_> = tides.map(|tide| tide.expect("a message").level).collect().await;
            assert_eq!((tides.len(), tides[6], tides[7]), (5_000, 6.0, 0.0));
            let summary = client.measure(levels(5_001)).await.expect("a response").into_inner();
            assert_eq!(summary, Summary { count: 5_001, mean: 2_500.0 });
            let watched = client.watch(levels(5_000)).await.expect("a response").into_inner();
            let risen = watched.filter(|tide| std::future::ready(tide.as_ref().is_ok_and(|tide| tide.rises)));
            assert_eq!(risen.count().await, 4_999);
            let error = client.next(Harbour::default()).await.expect_err("it has no name");
            assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "a harbour has a name"));
        });
    }
}

#[test]
fn many_calls_share_a_connection() {
    let runtime = runtime();
    let server = start(runtime.block_on(service::routes()).expect("a description"));
    runtime.block_on(async {
        let channel = server.connect().await;
        let calls = (0..1_000).map(|index| {
            let mut client = TidesClient::new(channel.clone());
            tokio::spawn(async move {
                let name = index.to_string();
                let tide = client.next(Harbour { name: name.clone() }).await.expect("a response").into_inner();
                assert_eq!(tide.harbour, name);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("no panic");
        }
    });
}

#[test]
fn each_side_of_a_conversation_waits_for_the_other() {
    let runtime = runtime();
    let server = start(runtime.block_on(service::routes()).expect("a description"));
    runtime.block_on(async {
        let mut client = TidesClient::new(server.connect().await);
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let messages = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let mut tides = client.watch(messages).await.expect("a response").into_inner();
        for index in 1..100 {
            sender.send(Level { metres: f64::from(index) }).await.expect("the call is open");
            let tide = tides.message().await.expect("the call is open").expect("a message");
            assert_eq!((tide.level, tide.rises), (f64::from(index), true));
        }
        drop(sender);
        assert_eq!(tides.message().await.expect("the status is good"), None);
    });
}

#[test]
fn messages_are_compressed_both_ways() {
    let runtime = runtime();
    let server = start(runtime.block_on(service::routes()).expect("a description"));
    runtime.block_on(async {
        let mut client = TidesClient::new(server.connect().await)
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let name = "Brest ".repeat(10_000);
        let response = client.next(Harbour { name: name.clone() }).await.expect("a response");
        assert_eq!(response.metadata().get("grpc-encoding").expect("it is compressed"), "gzip");
        assert_eq!(response.into_inner().harbour, name);
    });
}

#[test]
fn health_and_reflection_answer() {
    let runtime = runtime();
    let server = start(runtime.block_on(service::routes()).expect("a description"));
    runtime.block_on(async {
        let channel = server.connect().await;
        let request = HealthCheckRequest { service: "tides.v1.Tides".to_owned() };
        let health = HealthClient::new(channel.clone()).check(request).await.expect("a response").into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);
        let list = MessageRequest::ListServices(String::new());
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
        let requests = stream::iter([request]);
        let mut client = ServerReflectionClient::new(channel);
        let mut responses = client.server_reflection_info(requests).await.expect("a response").into_inner();
        let response = responses.message().await.expect("the call is open").expect("a message");
        let Some(MessageResponse::ListServicesResponse(services)) = response.message_response else {
            panic!("{response:?}")
        };
        let names: Vec<_> = services.service.iter().map(|service| &*service.name).collect();
        assert!(names.contains(&"tides.v1.Tides"), "{names:?}");
    });
}

/// Calls that never end, and the count of live ones.
#[derive(Clone, Default)]
struct Endless(Arc<AtomicU32>);

/// Counts a call that is alive.
struct Alive(Arc<AtomicU32>);

impl Endless {
    fn alive(&self) -> Alive {
        self.0.fetch_add(1, Ordering::SeqCst);
        Alive(self.0.clone())
    }

    /// Waits until no call is alive.
    #[track_caller]
    fn assert_dropped(&self) {
        for _ in 0..12_000 {
            if self.0.load(Ordering::SeqCst) == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} calls are still alive", self.0.load(Ordering::SeqCst));
    }

    #[track_caller]
    fn assert_alive(&self) {
        for _ in 0..12_000 {
            if self.0.load(Ordering::SeqCst) > 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no call is alive");
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Tidings = Pin<Box<dyn Stream<Item = Result<Tide, Status>> + Send>>;

#[tonic::async_trait]
impl Tides for Endless {
    type ListStream = Tidings;
    type WatchStream = Tidings;

    async fn next(&self, _: Request<Harbour>) -> Result<Response<Tide>, Status> {
        let _alive = self.alive();
        pending().await
    }

    /// Messages without end, or one and then nothing if the request counts one.
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<Tidings>, Status> {
        let alive = self.alive();
        let count = request.into_inner().count;
        let messages = stream::repeat_with(move || {
            let _alive = &alive;
            Ok(Tide::default())
        });
        Ok(Response::new(if count == 1 {
            Box::pin(messages.take(1).chain(stream::pending()))
        } else {
            Box::pin(messages)
        }))
    }

    async fn measure(&self, request: Request<Streaming<Level>>) -> Result<Response<Summary>, Status> {
        let _alive = self.alive();
        let count = request.into_inner().count().await;
        Err(Status::aborted(count.to_string()))
    }

    async fn watch(&self, request: Request<Streaming<Level>>) -> Result<Response<Tidings>, Status> {
        let alive = self.alive();
        let tides = request.into_inner().map(move |level| {
            let _alive = &alive;
            level.map(|level| Tide { level: level.metres, ..Tide::default() })
        });
        Ok(Response::new(Box::pin(tides)))
    }
}

fn start_endless() -> (Running, Endless) {
    let endless = Endless::default();
    let routes = tonic::service::Routes::new(TidesServer::new(endless.clone())).prepare();
    (start(routes), endless)
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_millis(50));
    request
}

/// The status that a peer by hand gets: tonic's client has a deadline of its own.
fn status_of(server: &Running, method: &str, timeout: &str, message: &[u8]) -> (String, String) {
    let mut peer = server.peer();
    let fields = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", timeout)];
    peer.request(1, "POST", &format!("/tides.v1.Tides/{method}"), &fields, false);
    peer.data(1, message);
    peer.read_until(|peer| peer.stream(1).is_over());
    let received = peer.stream(1);
    let field = |name: &str| received.field(name).unwrap_or_default().to_owned();
    (field(":status"), field("grpc-status"))
}

#[test]
fn a_call_ends_at_its_deadline() {
    let (server, endless) = start_endless();
    let expected = ("200".to_owned(), "4".to_owned());
    let empty = [0; 5];
    assert_eq!(status_of(&server, "Next", "20m", &empty), expected, "before the response has begun");
    assert_eq!(status_of(&server, "List", "20000u", &[0, 0, 0, 0, 2, 0x10, 1]), expected, "while it waits");
    assert_eq!(status_of(&server, "List", "20m", &empty), expected, "while it always has a message");
    assert_eq!(status_of(&server, "Watch", "20m", &empty), expected, "while it waits for the client");
    assert_eq!(status_of(&server, "Measure", "20m", &empty), expected);
    endless.assert_dropped();
    runtime().block_on(async {
        let error = TidesClient::new(server.connect().await).next(timed(brest())).await.expect_err("it never ends");
        assert!(matches!(error.code(), Code::Cancelled | Code::DeadlineExceeded), "{error}");
    });
    endless.assert_dropped();
}

#[test]
fn a_malformed_deadline_is_refused() {
    let (server, endless) = start_endless();
    for timeout in ["", "S", "5", "-5S", "123456789S", "5 S", "5x"] {
        assert_eq!(status_of(&server, "Next", timeout, &[0; 5]), ("200".to_owned(), "13".to_owned()), "{timeout:?}");
    }
    endless.assert_dropped();
}

#[test]
fn a_call_that_the_client_cancels_is_dropped() {
    let (server, endless) = start_endless();
    runtime().block_on(async {
        let mut client = TidesClient::new(server.connect().await);
        let call = tokio::spawn({
            let mut client = client.clone();
            async move { client.next(brest()).await }
        });
        endless.assert_alive();
        call.abort();
        drop(call.await);
        endless.assert_dropped();
        let mut tides = client.list(ListRequest { count: 1, ..ListRequest::default() }).await.unwrap().into_inner();
        assert!(tides.message().await.expect("the call is open").is_some());
        drop(tides);
        endless.assert_dropped();
        // The connection is open.
        let error = client.measure(levels(3)).await.expect_err("it fails");
        assert_eq!((error.code(), error.message()), (Code::Aborted, "3"));
    });
}

#[test]
fn a_reader_that_stops_stops_the_messages() {
    let (server, _) = start_endless();
    let mut peer = server.peer();
    peer.grants = false;
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    peer.request(1, "POST", "/tides.v1.Tides/List", &fields, false);
    peer.frame(0, 1, 1, &[0; 5]);
    peer.read_until(|peer| peer.stream(1).body.len() == 65_535);
    peer.ping();
    peer.read_until(|peer| peer.pongs == 1);
    assert_eq!(peer.stream(1).body.len(), 65_535, "the window is used up");
    // Until the peer grants more, in small pieces.
    for granted in 1..=20 {
        let bytes = 1_000_u32.to_be_bytes();
        peer.frame(8, 0, 0, &bytes);
        peer.frame(8, 0, 1, &bytes);
        peer.read_until(|peer| peer.stream(1).body.len() == 65_535 + granted * 1_000);
    }
}

#[test]
fn a_call_that_does_not_exist_has_trailers_alone() {
    let (server, _) = start_endless();
    let mut peer = server.peer();
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    for (stream, path) in [(1, "/tides.v1.Tides/Ebb"), (3, "/none/None")] {
        peer.request(stream, "POST", path, &fields, true);
        peer.read_until(|peer| peer.stream(stream).is_over());
        let received = peer.stream(stream);
        assert_eq!((received.status(), received.field("grpc-status")), ("200", Some("12")), "{path}");
        assert!(received.body.is_empty() && received.has_ended);
    }
}

#[test]
fn a_call_in_progress_outlasts_a_drain() {
    let runtime = runtime();
    let server = start(runtime.block_on(service::routes()).expect("a description"));
    runtime.block_on(async {
        let mut client = TidesClient::new(server.connect().await);
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let messages = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let mut tides = client.watch(messages).await.expect("a response").into_inner();
        server.0.begin_drain(Duration::from_secs(20));
        for _ in 0..10 {
            sender.send(Level { metres: 1.0 }).await.expect("the call is open");
            assert!(tides.message().await.expect("the call is open").is_some());
        }
        drop(sender);
        assert_eq!(tides.message().await.expect("the status is good"), None);
    });
    server.0.wait();
}
