//! An axum `Router` on our loops, in place of `axum::serve`.
//!
//! One line of an application changes:
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//!
//! # async fn main_of_tokio() -> std::io::Result<()> {
//! let router = Router::new().route("/", get(|| async { "Hello, World!" }));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! tidegate::axum::serve(listener, router).await
//! # }
//! ```
//!
//! A program without a tokio runtime starts it and waits:
//!
//! ```no_run
//! # use axum::Router;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = std::net::TcpListener::bind("127.0.0.1:8080")?;
//! tidegate::axum::serve(listener, Router::new()).start()?.wait();
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tidegate_engine::{Listener, ServerHandle, StartError};
use tidegate_http::Server;

use crate::function::{ServiceFunction, TowerService};
pub use crate::make_service::{IntoService, MadeWithConnectInfo, MakeServiceMarker, PerPeer, ServiceMarker};

/// The request body that an axum service receives.
pub type Body = ::axum::body::Body;

/// A service as a function of a [`Router`](tidegate_http::Router) or a [`Server`]: as
/// [`tower::function`](crate::function), for services whose requests have axum's body.
pub fn function<S>(service: S) -> ServiceFunction<S, Body>
where
    S: TowerService<Body> + Clone + 'static,
{
    ServiceFunction::new(service)
}

/// Serves an axum `Router`, any other service of its requests, or a value that [makes](IntoService) one, on a bound
/// listener: of `std` or tokio, or any other socket that listens, TCP or Unix. Loops on threads of their own accept its
/// connections, one for each core unless [`server`](Serve::server) sets it.
///
/// The layers of a router are made once, for all loops.
///
/// To listen at an address instead, with a socket for each loop, use [`serve_on`].
///
/// ```
/// # use axum::Router;
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let server = tidegate::axum::serve(listener, Router::new()).server(|server| server.loops(1)).start()?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve<S, M>(listener: impl AsFd, service: S) -> Serve<S::Service>
where
    S: IntoService<M>,
{
    // A second descriptor of the same socket: the owner of the first, such as a runtime, may close it.
    let listener = listener.as_fd().try_clone_to_owned().map(|descriptor| Listener::on(vec![descriptor]));
    Serve::of(listener.map_err(StartError::System).map(Server::on), service)
}

/// Serves an axum `Router` at the addresses of a [`Listener`].
///
/// ```no_run
/// # use axum::Router;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::Listener;
///
/// tidegate::axum::serve_on(Listener::bind("127.0.0.1:8080")?.and_bind("unix:/run/tides")?, Router::new()).start()?.wait();
/// # Ok(())
/// # }
/// ```
pub fn serve_on<S, M>(listener: Listener, service: S) -> Serve<S::Service>
where
    S: IntoService<M>,
{
    Serve::of(Ok(Server::on(listener)), service)
}

/// A server of an axum service, not started yet: [`start`](Self::start) it, or await it as `axum::serve`.
///
/// As a future it ends when the server has ended. Dropping the future ends the server at once.
#[must_use = "a server does nothing until it is started or awaited"]
pub struct Serve<S> {
    server: Result<Server, StartError>,
    function: ServiceFunction<S, Body>,
    drain_timeout: Duration,
}

impl<S> Serve<S>
where
    S: TowerService<Body> + Clone + Send + Sync + 'static,
{
    fn of<I: IntoService<M, Service = S>, M>(server: Result<Server, StartError>, service: I) -> Self {
        let serve = Self { server, function: function(service.into_service()), drain_timeout: DRAIN_TIMEOUT };
        if I::WANTS_CONNECT_INFO { serve.with_connect_info() } else { serve }
    }

    /// Sets the options of a [`Server`]: loops, limits, TLS, PROXY headers.
    pub fn server(mut self, set: impl FnOnce(Server) -> Server) -> Self {
        self.server = self.server.map(set);
        self
    }

    /// Adds the address of the client to each request, for the extractor `ConnectInfo<SocketAddr>`: as
    /// `into_make_service_with_connect_info`, for less: axum makes a service for each address.
    pub fn with_connect_info(mut self) -> Self {
        self.function = self.function.with_connect_info();
        self
    }

    /// Leaves an HTTP/2 extended CONNECT as it came, as [`ServiceFunction::with_extended_connect`] does. Otherwise a
    /// WebSocket over HTTP/2 reaches routes by `get`.
    pub fn with_extended_connect(mut self) -> Self {
        self.function = self.function.with_extended_connect();
        self
    }

    /// How long connections may go on after the signal of [`with_graceful_shutdown`](Self::with_graceful_shutdown): 30
    /// seconds unless set. Those that are still open then are closed.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Starts the loops.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start(self) -> Result<ServerHandle, StartError> {
        self.server?.serve(self.function)
    }

    /// Ends the server gracefully once `signal` is complete: it accepts no more connections, and waits for those that are
    /// open.
    ///
    /// ```
    /// # use axum::Router;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// tidegate::axum::serve(listener, Router::new()).with_graceful_shutdown(async { /* ctrl_c().await */ }).await
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_graceful_shutdown<F>(self, signal: F) -> WithGracefulShutdown<S, F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        WithGracefulShutdown { serve: self, signal }
    }
}

/// A [`Serve`] that ends with a signal; see [`Serve::with_graceful_shutdown`].
#[must_use = "a server does nothing until it is awaited"]
pub struct WithGracefulShutdown<S, F> {
    serve: Serve<S>,
    signal: F,
}

/// The future of a server, until it has ended.
pub type ServeFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl<S> IntoFuture for Serve<S>
where
    S: TowerService<Body> + Clone + Send + Sync + 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        self.with_graceful_shutdown(pending()).into_future()
    }
}

impl<S, F> IntoFuture for WithGracefulShutdown<S, F>
where
    S: TowerService<Body> + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        let Self { serve, signal } = self;
        Box::pin(async move {
            let drain_timeout = serve.drain_timeout;
            let handle = serve.start().map_err(io::Error::other)?;
            let _ended_with_the_future = EndsServer(handle.clone());
            let ended = when_ended(&handle)?;
            let (mut ended, mut signal) = (std::pin::pin!(ended), std::pin::pin!(signal));
            let mut drains = false;
            poll_fn(|cx| {
                if !drains && signal.as_mut().poll(cx).is_ready() {
                    drains = true;
                    handle.begin_drain(drain_timeout);
                }
                ended.as_mut().poll(cx)
            })
            .await;
            Ok(())
        })
    }
}

/// Ends a server when it is dropped.
struct EndsServer(ServerHandle);

impl Drop for EndsServer {
    fn drop(&mut self) {
        self.0.begin_drain(Duration::ZERO);
    }
}

/// Completes when a server has ended. A thread waits for it, since a server ends on its own threads.
fn when_ended(handle: &ServerHandle) -> io::Result<impl Future<Output = ()> + use<>> {
    let end = Arc::new(Mutex::new(End::default()));
    let (waiting, waited) = (handle.clone(), end.clone());
    std::thread::Builder::new().name("tidegate-wait".to_owned()).spawn(move || {
        waiting.wait();
        let mut end = waited.lock().unwrap_or_else(PoisonError::into_inner);
        end.has_come = true;
        let waker = end.waker.take();
        drop(end);
        waker.into_iter().for_each(Waker::wake);
    })?;
    Ok(poll_fn(move |cx| {
        let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
        if end.has_come {
            return Poll::Ready(());
        }
        end.waker = Some(cx.waker().clone());
        Poll::Pending
    }))
}

/// Whether a server has ended, and the tasks that wait for that.
#[derive(Default)]
struct End {
    has_come: bool,
    waker: Option<Waker>,
}

impl<S> fmt::Debug for Serve<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<S, F> fmt::Debug for WithGracefulShutdown<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithGracefulShutdown").field("server", &self.serve.server).finish_non_exhaustive()
    }
}

/// How long connections may go on after the signal to end: Kubernetes kills a process 30 seconds after SIGTERM.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);
