//! `UdpTunnel`: the tunnel of a client through a UDP proxy.

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_engine::{ChannelError, SessionError};
use tidegate_http3::{Capsule, CapsuleCodec};

use super::relay::{UDP_BYTES_MAX, read_payload, send_payload};
use super::{CONTEXT_BYTES_MAX, PROTOCOL};
use crate::capsules::{CapsuleConnection, CapsuleTunnel, ExtendedConnectError};

/// A tunnel of UDP through a proxy (RFC 9298).
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::http::{CapsuleClient, UdpTunnel};
///
/// /// Sends a datagram to a target by a proxy, and waits for one.
/// async fn ask(client: &CapsuleClient, proxy: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
///     let connection = client.connect(proxy, "proxy.example").await?;
///     let mut tunnel = UdpTunnel::open(&connection, "time.example", 123).await?;
///     tunnel.send(&[0x23; 48])?;
///     println!("{:?}", tunnel.recv().await?);
///     Ok(())
/// }
/// # drop(ask);
/// ```
#[derive(Debug)]
pub struct UdpTunnel(CapsuleTunnel);

impl UdpTunnel {
    /// Opens a tunnel to a target, at the path that a proxy has unless it names another one.
    ///
    /// # Errors
    /// [`ExtendedConnectError`]; a proxy that refuses the target has the status 403, and one that finds no address 502 or 504.
    pub async fn open(connection: &CapsuleConnection, host: &str, port: u16) -> Result<Self, ExtendedConnectError> {
        // Capsules of other types are skipped, whatever their length (RFC 9297 §3.2).
        let capsules = CapsuleCodec::new(UDP_BYTES_MAX as u32 + CONTEXT_BYTES_MAX);
        let tunnel = connection.open_with(PROTOCOL, &Self::path(host, port), capsules).await?;
        Ok(Self(tunnel))
    }

    /// The path of a target (RFC 9298 §3.4), for a request of another client: with the upgrade to `connect-udp`, or as an extended
    /// CONNECT.
    ///
    /// ```
    /// use tidegate::http::UdpTunnel;
    ///
    /// assert_eq!(UdpTunnel::path("2001:db8::42", 443), "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/");
    /// ```
    #[must_use]
    pub fn path(host: &str, port: u16) -> String {
        format!("/.well-known/masque/udp/{}/{port}/", utf8_percent_encode(host, UNESCAPED))
    }

    /// The same for an address.
    #[must_use]
    pub fn path_of_ip(ip: IpAddr, port: u16) -> String {
        Self::path(&ip.to_string(), port)
    }

    /// The tunnel of a request that a proxy has accepted.
    #[must_use]
    pub fn new(tunnel: CapsuleTunnel) -> Self {
        Self(tunnel)
    }

    /// Sends a datagram to the target: it may be lost.
    ///
    /// # Errors
    /// [`SessionError::Datagram`] if it is too long for the path, or for UDP; [`SessionError::Closed`].
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SessionError> {
        if payload.len() > UDP_BYTES_MAX {
            return Err(SessionError::Datagram(tidegate_codec::DatagramRefused::TooLong));
        }
        send_payload(&mut self.0, payload)
    }

    /// The next datagram of the target. `None` once the proxy has ended the tunnel. The future may be dropped at any time, and
    /// loses nothing.
    ///
    /// # Errors
    /// [`ChannelError`] if the tunnel breaks: the proxy resets it if the target cannot be reached.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, ChannelError> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), for a future of the caller.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ChannelError>> {
        for _ in 0..SKIPPED_PER_POLL_MAX {
            match std::task::ready!(self.0.poll_recv(cx))? {
                Some(Capsule::Datagram(datagram)) => {
                    if let Ok(Some(payload)) = read_payload(&datagram) {
                        return Poll::Ready(Ok(Some(payload)));
                    }
                }
                // Of a type that the tunnel has no use for.
                Some(_) => {}
                None => return Poll::Ready(Ok(None)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// How many bytes a datagram may have now. It changes with the path. `None` if datagrams are capsules: then as many as UDP
    /// permits, 65,527.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        self.0.datagram_bytes_max().map(|bytes| bytes.saturating_sub(1))
    }
}

/// Bytes of a host that stand for themselves in a path (RFC 3986 §2.3).
const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Datagrams of unknown contexts that are skipped before other tasks have their turn.
const SKIPPED_PER_POLL_MAX: usize = 64;
