//! Serving with channels: a task for each connection.

use std::error::Error;
use std::future::Future;

use tidegate_codec::Pipeline;
use tidegate_sys::Address;

use super::Server;
use super::handle::ServerHandle;
use crate::channel::Channel;
use crate::start_error::StartError;

impl Server {
    /// Starts the loops. Each connection gets a codec from `codec` and a task that runs `serve` with its channel.
    ///
    /// An error that the task returns is logged and counted, unless it reports that the connection itself has closed,
    /// which is logged in any case.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn serve<C, F, E>(
        self,
        codec: impl Fn() -> C + Send + Sync + 'static,
        serve: impl Fn(Channel<C>) -> F + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        self.run_main(|listener| listener.serve(codec, serve))
    }

    /// Starts the loops. `each` is called once on each loop's thread, with the loop's number. It returns two closures:
    /// one makes a codec for each connection there, given the peer's address, the other serves its channel. So the
    /// tasks of one loop can share values that are not `Send`. `each` may start tasks that belong to no connection,
    /// such as a pool of connections or a report each minute; they end with the loop.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    /// use std::time::Duration;
    ///
    /// use tidegate::framing::Lines;
    /// use tidegate::{Address, Channel, ChannelError, Server, task};
    ///
    /// let server = Server::bind("127.0.0.1:0")?.serve_each(|number| {
    ///     let lines = Rc::new(Cell::new(0_u64));
    ///     let reported = lines.clone();
    ///     task::spawn(async move {
    ///         let mut minute = task::interval(Duration::from_secs(60));
    ///         loop {
    ///             minute.tick().await;
    ///             println!("loop {number}: {} lines", reported.take());
    ///         }
    ///     });
    ///     let count = move |mut channel: Channel<Lines>| {
    ///         let lines = lines.clone();
    ///         async move {
    ///             while channel.recv().await?.is_some() {
    ///                 lines.set(lines.get() + 1);
    ///             }
    ///             Ok::<_, ChannelError>(())
    ///         }
    ///     };
    ///     (|_: &Address| Lines::new(), count)
    /// })?;
    /// server.drain(Duration::ZERO);
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn serve_each<C, F, E, M, S>(
        self,
        each: impl Fn(usize) -> (M, S) + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        M: FnMut(&Address) -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        self.run_main(|listener| listener.serve_each(each))
    }
}
