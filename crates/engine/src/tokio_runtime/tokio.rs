//! `TokioRuntime`: the tokio runtime beside the loops of a server, with the feature `tokio`.
//!
//! Tokio crates look for a runtime on their thread: for its timers, its sockets and its tasks. A loop's thread enters
//! the handle of a tokio runtime once, before its first turn, and leaves it after the last. So handlers, functions and
//! tasks of the loop use such crates as they are, and no message, dispatch or poll pays for that. Tokio futures that a
//! task awaits are polled on the loop. The threads of the tokio runtime wait for sockets and timers, and wake the task through
//! the loop's mailbox: one system call for each sleep of the loop, however many tasks wake up (decision 63).
//!
//! Nothing of the engine but this file knows tokio; `with_tokio_runtime.rs` gives one to servers and loops. `none.rs` takes its
//! place without the feature.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime, RuntimeFlavor};

/// The tokio runtime in which loops run, with the feature `tokio`. A clone is the same runtime.
///
/// A server that is given none uses the runtime of the thread that starts it, if that runtime has several threads, and
/// [`TokioRuntime::shared`] otherwise.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, TokioRuntime, Server};
///
/// async fn answer(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         tokio::time::sleep(Duration::from_millis(1)).await;
///         let line = line.to_vec();
///         let length = tokio::spawn(async move { line.len() }).await?;
///         channel.send(length.to_string().into())?;
///     }
///     Ok(())
/// }
///
/// let server = Server::bind("127.0.0.1:0")?.tokio_runtime(TokioRuntime::with_threads(2)).serve(Lines::default, answer)?;
/// # server.drain(Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Clone)]
pub struct TokioRuntime(RuntimeKind);

#[derive(Clone)]
enum RuntimeKind {
    None,
    Ours(Arc<Ours>),
    /// A runtime of the application, which the application drives and ends.
    Given(Handle),
}

/// A runtime that this crate makes. It ends with the last clone of its clones.
struct Ours {
    threads: usize,
    /// Empty until something starts it.
    runtime: OnceLock<Runtime>,
}

impl TokioRuntime {
    /// The tokio runtime of the process: one thread, which starts with the first server that uses it, or the first call of
    /// [`handle`](Self::handle), and ends with the process.
    #[must_use]
    pub fn shared() -> Self {
        static SHARED: LazyLock<Arc<Ours>> = LazyLock::new(|| Ours::new(1));
        Self(RuntimeKind::Ours(SHARED.clone()))
    }

    /// A tokio runtime with so many threads, at least one. They start with the first server that uses it, or the first call
    /// of [`handle`](Self::handle). They end with the last clone and the last loop: tasks that are left are dropped.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self(RuntimeKind::Ours(Ours::new(threads.max(1))))
    }

    /// A runtime of the application. It has to run for as long as the loops do. A runtime of one thread works only while
    /// the application drives it: within `block_on`.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self(RuntimeKind::Given(handle))
    }

    /// Without a runtime: for a loop that belongs to no server.
    pub(crate) const fn none() -> Self {
        Self(RuntimeKind::None)
    }

    /// The default of a server: the current runtime, or a new one.
    pub(crate) fn of_this_thread() -> Self {
        match Handle::try_current() {
            // The thread that starts a server may wait for its end, and would not drive a runtime of one thread.
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => Self::of(handle),
            _ => Self::shared(),
        }
    }

    /// The handle of the runtime, which starts if it has not: to spawn a task from a callback or another thread, or to
    /// connect to a database before the server starts.
    ///
    /// ```
    /// use tidegate::TokioRuntime;
    ///
    /// let handle = TokioRuntime::shared().handle()?;
    /// assert_eq!(handle.block_on(async { tokio::spawn(async { 6 * 7 }).await })?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's, if it has no thread or no descriptor left.
    pub fn handle(&self) -> io::Result<Handle> {
        self.start()?;
        match &self.0 {
            RuntimeKind::Given(handle) => Ok(handle.clone()),
            RuntimeKind::Ours(ours) => {
                ours.runtime.get().map(|runtime| runtime.handle().clone()).ok_or_else(not_started)
            }
            RuntimeKind::None => Err(not_started()),
        }
    }

    /// Starts the runtime, if it has not started.
    pub(crate) fn start(&self) -> io::Result<()> {
        match &self.0 {
            RuntimeKind::Ours(ours) => ours.start(),
            RuntimeKind::None | RuntimeKind::Given(_) => Ok(()),
        }
    }

    /// Makes the runtime that of the thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        match &self.0 {
            RuntimeKind::None => None,
            RuntimeKind::Ours(ours) => ours.runtime.get().map(Runtime::enter),
            RuntimeKind::Given(handle) => Some(handle.enter()),
        }
    }
}

impl Ours {
    fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { threads, runtime: OnceLock::new() })
    }

    fn start(&self) -> io::Result<()> {
        if self.runtime.get().is_none() {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(self.threads).thread_name(THREAD_NAME).enable_all();
            // tokio panics if the system has no thread left.
            let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
            let runtime = built.unwrap_or_else(|_| Err(io::Error::other("no thread is left for the tokio runtime")))?;
            // Another thread may have started one meanwhile.
            if let Err(second) = self.runtime.set(runtime) {
                second.shutdown_background();
            }
        }
        Ok(())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // The drop of a runtime waits for its blocking work, and panics within an async context.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn not_started() -> io::Error {
    io::Error::other("the tokio runtime has not started")
}

impl fmt::Debug for TokioRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RuntimeKind::None => f.write_str("TokioRuntime(none)"),
            RuntimeKind::Ours(ours) => {
                f.debug_struct("TokioRuntime").field("threads", &ours.threads).finish_non_exhaustive()
            }
            RuntimeKind::Given(handle) => f.debug_tuple("TokioRuntime").field(handle).finish(),
        }
    }
}

/// The name of a tokio runtime's threads.
const THREAD_NAME: &str = "tidegate-tokio";
