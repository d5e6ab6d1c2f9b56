//! A loop for the client, and servers for it.

use std::error::Error;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate::http::{Router, Server};
use tidegate::{Backend, EventLoop, ServerHandle, task};

pub(crate) type Any = Box<dyn Error>;

/// Runs a task on a loop of its own, for a minute at most.
pub(crate) fn run<T: 'static>(future: impl Future<Output = Result<T, Any>> + 'static) -> T {
    run_on(Backend::Auto, future)
}

/// The same on this backend.
pub(crate) fn run_on<T: 'static>(backend: Backend, future: impl Future<Output = Result<T, Any>> + 'static) -> T {
    let mut event_loop = EventLoop::on(backend).expect("a loop");
    let result = event_loop.block_on(task_within_a_minute(future)).expect("the loop runs");
    result.expect("the task succeeds")
}

/// The backends that the system has.
pub(crate) fn backends() -> impl Iterator<Item = Backend> {
    [Backend::Epoll, Backend::Uring].into_iter().filter(|backend| EventLoop::on(*backend).is_ok())
}

async fn task_within_a_minute<T>(future: impl Future<Output = Result<T, Any>>) -> Result<T, Any> {
    task::timeout(Duration::from_secs(120), future).await?
}

/// A server on a thread of its own, which ends when it is dropped.
pub(crate) struct Served(Option<ServerHandle>);

impl Served {
    pub(crate) fn start(router: impl Fn() -> Router + Send + Sync + 'static) -> Self {
        Self(Some(Server::bind("127.0.0.1:0").expect("a port").loops(1).start(router).expect("it starts")))
    }

    pub(crate) fn uri(&self, target: &str) -> String {
        format!("http://{}{target}", self.0.as_ref().expect("it runs").address())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            server.drain(Duration::ZERO);
        }
    }
}

/// A server that is written by hand: each connection is served by `serve`, which gets its number, on a thread of its own.
pub(crate) struct Scripted {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    pub(crate) fn start(serve: impl Fn(usize, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
                serve(number, &mut stream);
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// A server that answers the requests of each connection with these texts, and closes it then.
    pub(crate) fn answering(answers: &'static [&'static str]) -> Self {
        Self::start(move |_, stream| {
            for answer in answers {
                if read_head(stream).is_none() {
                    return;
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        })
    }

    pub(crate) fn uri(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(std::thread::panicking() || result.is_ok(), "the scripted server panicked");
        }
    }
}

/// The next head of a request; `None` at the end of the stream.
pub(crate) fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}
