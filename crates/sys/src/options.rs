//! Socket options by name.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Options of a stream. On Linux a stream that is accepted has those of its listener, so they are set once there.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// Wait for more bytes before a small packet is sent (Nagle's algorithm). Off unless set: answers leave at once.
    pub delay: bool,
    /// Probe a silent peer after this long, in whole seconds, then every so often; off unless set.
    pub keep_alive: Option<Duration>,
    /// The size of the kernel's send buffer, in bytes; the kernel's own choice unless set.
    pub send_buffer_bytes: Option<usize>,
    /// How many bytes the kernel takes that it cannot send yet (TCP_NOTSENT_LOWAT); 128 KiB, and `None` for as many as
    /// its send buffer holds. What is beyond waits in our own queue, where water marks and budgets count it: a peer
    /// that does not read would otherwise cost megabytes of the kernel's memory, which all connections share.
    pub unsent_bytes_max: Option<u32>,
    /// The size of the kernel's receive buffer, in bytes; the kernel's own choice unless set.
    pub receive_buffer_bytes: Option<usize>,
    /// How long closing waits for unsent bytes in the kernel, in whole seconds; zero resets the connection. Anything
    /// else **blocks** the thread that closes, which is the event loop's, even though the socket does not block. The
    /// kernel's own way, which is not to wait but to go on sending, unless set.
    pub linger: Option<Duration>,
}

impl SocketOptions {
    pub(crate) fn apply(&self, socket: &SockRef<'_>, is_ip: bool) -> io::Result<()> {
        take_urgent_bytes_inline(socket)?;
        if is_ip {
            socket.set_tcp_nodelay(!self.delay)?;
        }
        if let Some(time) = self.keep_alive {
            let probes = TcpKeepalive::new().with_time(whole_seconds(time));
            if is_ip {
                socket.set_tcp_keepalive(&probes)?;
            }
        }
        if let (Some(bytes), true) = (self.unsent_bytes_max, is_ip) {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if self.linger.is_some() {
            socket.set_linger(self.linger.map(whole_seconds))?;
        }
        Ok(())
    }
}

/// Bytes that the peer calls urgent are bytes like any other (RFC 6093, section 5): out of line they would end receives
/// short, and have those that wait in the kernel try again in vain. Streams that are accepted take it from their
/// listener.
pub(crate) fn take_urgent_bytes_inline(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_out_of_band_inline(true)
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            delay: false,
            keep_alive: None,
            send_buffer_bytes: None,
            unsent_bytes_max: Some(128 * 1024),
            receive_buffer_bytes: None,
            linger: None,
        }
    }
}

/// The kernel counts in seconds: a part of one is rounded up, so that a short time does not become none.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
}

/// Options of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Options of the streams that will be accepted.
    pub stream: SocketOptions,
    /// Let several listeners share the address, the kernel spreading connections over them (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Connections that may wait to be accepted; the kernel has a limit of its own (`net.core.somaxconn`).
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { stream: SocketOptions::default(), reuse_port: false, backlog: 4096 }
    }
}
