//! `Handle`: a client that any thread may use, and tasks of any runtime.
//!
//! A handle posts requests to a task on the loop of its client, which sends each in a task of its own. The response comes
//! back with its head; its body goes through a pipe with a bound (`pipe.rs`), so a slow reader stops the server.

mod pipe;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use tidegate_engine::{EventLoop, task};
use tidegate_http_message::{Body, TraceContext};

pub use self::pipe::HandleBody;
use self::pipe::PipeWriter;
use super::error::ClientError;
use super::{Client, Response};

/// A client that any thread may use, and tasks of any runtime, tokio for example. Clones share the client.
///
/// ```
/// use tidegate::http::{self, Client};
/// use tidegate::{Backend, EventLoop};
///
/// let server = http::serve("127.0.0.1:0", || "ebb and flow")?;
/// let handle = Client::spawn(Client::new)?;
/// let uri = format!("http://{}/", server.address());
/// // Any executor runs this future; here it is another loop.
/// let text = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let response = handle.get(&uri).send().await?;
///     response.into_body().bytes(1024).await
/// })??;
/// assert_eq!(text, "ebb and flow");
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Handle(Arc<Owner>);

/// The last handle, response or body that is dropped ends the task on the loop.
struct Owner(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    /// Wakes the task on the loop.
    waker: Option<Waker>,
    has_no_handle: bool,
    has_no_loop: bool,
}

struct Job {
    request: HandleRequest,
    reply: Reply,
}

type Reply = Arc<Mutex<ReplyState>>;

#[derive(Default)]
struct ReplyState {
    result: Option<Result<HandleResponse, HandleError>>,
    /// Wakes the task that waits for the response.
    waker: Option<Waker>,
    is_cancelled: bool,
    /// Wakes the task on the loop when the request is cancelled.
    canceller: Option<Waker>,
}

/// Why a request through a [`Handle`] has no response, or no further bytes of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleError {
    /// Too many requests wait for the loop already: `waiting_max`.
    Full,
    /// The loop of the client has ended.
    LoopEnded,
    /// The body is longer than the caller allows.
    TooLong,
    /// The request has failed; the text is that of its [`ClientError`].
    Failed {
        /// The text.
        text: Box<str>,
        /// [`ClientError::is_timeout`].
        is_timeout: bool,
        /// [`ClientError::is_connect`].
        is_connect: bool,
    },
}

impl Client {
    /// A handle to this client for other threads. As long as there is one, a task on this loop waits for its requests.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let jobs = Arc::new(Mutex::new(Jobs::default()));
        drop(task::spawn(serve(self.clone(), jobs.clone())));
        Handle(Arc::new(Owner(jobs)))
    }

    /// Starts a loop on a thread of its own, with the client that `make` makes there. The thread ends when no handle, no
    /// response and no body of it is left.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn(make: impl FnOnce() -> Client + Send + 'static) -> io::Result<Handle> {
        let jobs = Arc::new(Mutex::new(Jobs::default()));
        let (started, starting) = mpsc::channel();
        let of_loop = jobs.clone();
        std::thread::Builder::new().name("http-client".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(tidegate_engine::Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            // A loop that fails ends its tasks, and their guards report that.
            drop(event_loop.block_on(async move { serve(make(), of_loop).await }));
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(Handle(Arc::new(Owner(jobs))))
    }
}

impl Handle {
    /// A GET request.
    pub fn get(&self, uri: impl Into<String>) -> HandleRequestBuilder {
        self.request(Method::GET, uri)
    }

    /// A POST request.
    pub fn post(&self, uri: impl Into<String>) -> HandleRequestBuilder {
        self.request(Method::POST, uri)
    }

    /// A request of any method.
    pub fn request(&self, method: Method, uri: impl Into<String>) -> HandleRequestBuilder {
        let request =
            HandleRequest { method, uri: uri.into(), fields: Vec::new(), body: SendBody::Empty, timeout: None };
        HandleRequestBuilder { handle: self.clone(), request }
    }
}

/// A request through a [`Handle`]. A mistake in it is an error of the request.
#[must_use = "a request does nothing until it is sent"]
pub struct HandleRequestBuilder {
    handle: Handle,
    request: HandleRequest,
}

struct HandleRequest {
    method: Method,
    uri: String,
    fields: Vec<(String, Vec<u8>)>,
    body: SendBody,
    timeout: Option<Duration>,
}

enum SendBody {
    Empty,
    Bytes(Bytes),
    Stream(pipe::SendStream),
}

impl HandleRequestBuilder {
    /// Adds a field, as [`RequestBuilder::header`](crate::RequestBuilder::header) does.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.request.fields.push((name.into(), value.into()));
        self
    }

    /// Passes a trace on, as [`RequestBuilder::trace`](crate::RequestBuilder::trace) does.
    pub fn trace(mut self, context: &TraceContext) -> Self {
        let is_trace = |name: &str| ["traceparent", "tracestate"].iter().any(|field| name.eq_ignore_ascii_case(field));
        self.request.fields.retain(|(name, _)| !is_trace(name));
        let traced = self.header("traceparent", context.traceparent());
        match context.tracestate() {
            Some(state) => traced.header("tracestate", state),
            None => traced,
        }
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.request.body = SendBody::Bytes(body.into());
        self
    }

    /// A body of the pieces of a stream, which the loop polls as fast as the server reads.
    pub fn body_stream<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        self.request.body = SendBody::Stream(Box::pin(pipe::BoxedErrors(Box::pin(stream))));
        self
    }

    /// As [`RequestBuilder::timeout`](crate::RequestBuilder::timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(timeout);
        self
    }

    /// Sends the request, and waits for the head of its response. Dropping the future gives up.
    ///
    /// # Errors
    /// [`HandleError`].
    pub async fn send(self) -> Result<HandleResponse, HandleError> {
        let reply = Reply::default();
        {
            let mut jobs = lock(&self.handle.0.0);
            if jobs.has_no_loop {
                return Err(HandleError::LoopEnded);
            }
            if jobs.queue.len() >= QUEUE_MAX {
                return Err(HandleError::Full);
            }
            jobs.queue.push_back(Job { request: self.request, reply: reply.clone() });
            if let Some(waker) = jobs.waker.take() {
                waker.wake();
            }
        }
        let waiting = ReplyWait(reply);
        let response = poll_fn(|cx| {
            let mut state = lock(&waiting.0);
            match state.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        let mut response = response.await?;
        response.body.keep(self.handle);
        Ok(response)
    }
}

/// The response to a request through a [`Handle`].
#[derive(Debug)]
pub struct HandleResponse {
    status: StatusCode,
    version: Version,
    uri: Uri,
    headers: HeaderMap,
    body: HandleBody,
}

impl HandleResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The HTTP version that the server speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The URI of the request that this is the response to: the last one, after redirects.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The fields.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body, to be read piece by piece: it is a [`Stream`].
    #[must_use]
    pub fn body_mut(&mut self) -> &mut HandleBody {
        &mut self.body
    }

    /// The body alone.
    #[must_use]
    pub fn into_body(self) -> HandleBody {
        self.body
    }
}

/// A task that waits for a response. If it waits no more, the request is cancelled.
struct ReplyWait(Reply);

impl Drop for ReplyWait {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_cancelled = true;
        if let Some(canceller) = state.canceller.take() {
            canceller.wake();
        }
        // A response that has come meanwhile has a body, whose connection closes.
        let unread = state.result.take();
        drop(state);
        drop(unread);
    }
}

/// The end of a request on the loop: the handle gets a result in any case.
struct ReplyGuard(Reply);

impl ReplyGuard {
    fn finish(&self, result: Result<HandleResponse, HandleError>) {
        let mut state = lock(&self.0);
        if state.is_cancelled {
            drop(state);
            return drop(result);
        }
        state.result.get_or_insert(result);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        self.finish(Err(HandleError::LoopEnded));
    }
}

/// Marks the end of the loop.
struct LoopGuard(Arc<Mutex<Jobs>>);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        let mut jobs = lock(&self.0);
        jobs.has_no_loop = true;
        let left = std::mem::take(&mut jobs.queue);
        drop(jobs);
        left.into_iter().for_each(|job| drop(ReplyGuard(job.reply)));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut jobs = lock(&self.0);
        jobs.has_no_handle = true;
        if let Some(waker) = jobs.waker.take() {
            waker.wake();
        }
    }
}

/// Starts the requests of handles until no handle is left.
async fn serve(client: Client, jobs: Arc<Mutex<Jobs>>) {
    let serving = LoopGuard(jobs);
    loop {
        let next = poll_fn(|cx| {
            let mut jobs = lock(&serving.0);
            if let Some(job) = jobs.queue.pop_front() {
                return Poll::Ready(Some(job));
            }
            if jobs.has_no_handle {
                return Poll::Ready(None);
            }
            jobs.waker = Some(cx.waker().clone());
            Poll::Pending
        });
        let Some(job) = next.await else { return };
        let client = client.clone();
        drop(task::spawn(async move {
            let replying = ReplyGuard(job.reply);
            let mut running = Box::pin(run(&client, job.request));
            let cancellable = poll_fn(|cx| {
                {
                    let mut state = lock(&replying.0);
                    if state.is_cancelled {
                        return Poll::Ready(None);
                    }
                    state.canceller = Some(cx.waker().clone());
                }
                running.as_mut().poll(cx).map(Some)
            });
            match cancellable.await {
                None => {}
                Some(Err(error)) => replying.finish(Err((&error).into())),
                Some(Ok(response)) => {
                    let (head, writer, body) = split(response);
                    replying.finish(Ok(head));
                    pipe::copy(body, writer).await;
                }
            }
        }));
    }
}

async fn run(client: &Client, request: HandleRequest) -> Result<Response, ClientError> {
    let mut builder = client.request(request.method, &request.uri);
    for (name, value) in &request.fields {
        builder = builder.header(name, value);
    }
    builder = match request.body {
        SendBody::Empty => builder,
        SendBody::Bytes(bytes) => builder.body(bytes),
        SendBody::Stream(stream) => builder.body(Body::stream(pipe::LocalErrors(stream))),
    };
    if let Some(timeout) = request.timeout {
        builder = builder.timeout(timeout);
    }
    builder.send().await
}

/// The head of a response, for the other thread, and its body, for the task on the loop.
fn split(response: Response) -> (HandleResponse, PipeWriter, Body) {
    let (body, writer) = pipe::pipe();
    let head = HandleResponse {
        status: response.status(),
        version: response.version(),
        uri: response.uri().clone(),
        headers: response.header_map(),
        body,
    };
    (head, writer, response.into_body())
}

impl From<&ClientError> for HandleError {
    fn from(error: &ClientError) -> Self {
        Self::Failed { text: error.to_string().into(), is_timeout: error.is_timeout(), is_connect: error.is_connect() }
    }
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("too many requests wait for the event loop"),
            Self::LoopEnded => f.write_str("the event loop of the client has ended"),
            Self::TooLong => f.write_str("the body is too long"),
            Self::Failed { text, .. } => f.write_str(text),
        }
    }
}

impl Error for HandleError {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl fmt::Debug for HandleRequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandleRequestBuilder({} {})", self.request.method, self.request.uri)
    }
}

/// A panic of another thread leaves the state as it is between two operations.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests of a handle that wait for the loop.
const QUEUE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_and_bodies_may_go_to_other_threads() {
        fn check<T: Send>() {}
        check::<Handle>();
        check::<HandleBody>();
        check::<HandleResponse>();
        fn check_shared<T: Sync>() {}
        check_shared::<Handle>();
    }
}
