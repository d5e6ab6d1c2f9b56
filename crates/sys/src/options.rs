//! Socket options by name.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Options of a stream. On Linux an accepted stream has those of its listener, so they are set once on the listener.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// Wait for more bytes before a small packet is sent (Nagle's algorithm). Off by default, so that responses leave
    /// at once.
    pub delay: bool,
    /// Send a probe to a silent peer after this time, in whole seconds, and then at the system's interval. Off by
    /// default.
    pub keep_alive: Option<Duration>,
    /// The size of the kernel's send buffer, in bytes. By default the kernel chooses it.
    pub send_buffer_bytes: Option<usize>,
    /// How many bytes the kernel takes that it cannot send yet (TCP_NOTSENT_LOWAT): 128 KiB by default, and `None` for
    /// as many as its send buffer has room for. Further bytes wait in our own queue, where water marks and budgets
    /// count them. Otherwise a peer that does not read would cost megabytes of the kernel's memory, which all
    /// connections share.
    pub unsent_bytes_max: Option<u32>,
    /// The size of the kernel's receive buffer, in bytes. By default the kernel chooses it.
    pub receive_buffer_bytes: Option<usize>,
    /// How long closing waits for unsent bytes in the kernel, in whole seconds; zero resets the connection. Any other
    /// time **blocks** the thread that closes, which is the event loop's, even though the socket is non-blocking. By
    /// default closing does not wait, and the kernel continues to send.
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

/// Makes urgent bytes bytes like any other (RFC 6093, section 5). Out of line they would end receives short, and make
/// receives that wait in the kernel retry without effect. Accepted streams inherit the option from their listener.
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

/// Rounds up to whole seconds, in which the kernel counts, so that a short time does not become zero.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
}

/// Options of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Options of the streams that will be accepted.
    pub stream: SocketOptions,
    /// Let several listeners share the address; the kernel distributes connections over them (SO_REUSEPORT).
    pub reuse_port: bool,
    /// The number of connections that can wait to be accepted. The kernel also has its own limit
    /// (`net.core.somaxconn`).
    pub backlog: u32,
    /// Accept only IPv6 at an IPv6 address (IPV6_V6ONLY). Off by default: a listener at `[::]` accepts IPv4 too, and its
    /// peers have IPv4 addresses.
    pub only_v6: bool,
    /// The permissions of the file of a Unix socket, such as `0o600`, from the moment at which it exists. By default those
    /// that the umask of the process leaves.
    pub unix_mode: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { stream: SocketOptions::default(), reuse_port: false, backlog: 4096, only_v6: false, unix_mode: None }
    }
}
