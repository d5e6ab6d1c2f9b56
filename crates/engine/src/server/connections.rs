//! The connections of a running server, one page after the other, and how an operator closes one.

use crate::inspection::{CloseConnection, CloseRequest, ConnectionCursor, Inspect, InspectRequest};
use crate::mailbox::LoopMessage;
use crate::server::handle::ServerHandle;
use crate::slots::token_of;

impl ServerHandle {
    /// Some connections of the loop with this number, from `cursor` on; those of clients of the loop too, streams not. A
    /// page is bounded, so that a loop with many connections does other work between two pages. Connections that come
    /// and go meanwhile may be missing, or be in two pages.
    ///
    /// ```
    /// use tidegate::engine::ConnectionCursor;
    /// use tidegate::framing::Lines;
    /// use tidegate::{Backend, Channel, EventLoop, Server};
    ///
    /// async fn wait(mut lines: Channel<Lines>) -> Result<(), tidegate::ChannelError> {
    ///     lines.recv().await.map(drop)
    /// }
    ///
    /// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::new, wait)?;
    /// let mut cursor = Some(ConnectionCursor::default());
    /// EventLoop::on(Backend::Auto)?.block_on(async {
    ///     while let Some(at) = cursor {
    ///         let Some(page) = server.connections(0, at).await else { break };
    ///         for connection in page.connections {
    ///             println!("{} {}", connection.peer, connection.protocols);
    ///         }
    ///         cursor = page.next;
    ///     }
    /// })?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connections(&self, event_loop: usize, cursor: ConnectionCursor) -> Inspect {
        let (request, inspect) = InspectRequest::new(event_loop, cursor);
        if let Some(mailbox) = self.mailbox(event_loop) {
            // A request that is refused is dropped, which answers it.
            let _ = mailbox.send(LoopMessage::Inspect(request));
        }
        inspect
    }

    /// Resets a connection, as its application does with [`Outcome::Abort`](crate::Outcome::Abort). The loop resets it
    /// whether the future is awaited or not; the future yields whether there was such a connection.
    pub fn close_connection(&self, event_loop: usize, id: u64) -> CloseConnection {
        let (request, closed) = CloseRequest::new(token_of(id));
        if let Some(mailbox) = self.mailbox(event_loop) {
            // A request that is refused is dropped, which answers it.
            let _ = mailbox.send(LoopMessage::Close(request));
        }
        closed
    }
}
