//! `ClosedPort`: a port without a server.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 at which the kernel refuses connections, or reports that datagrams cannot be delivered.
///
/// A socket has the port, so no other process gets it, and no connection connects to itself. A listener that was dropped
/// leaves its port to both.
///
/// ```
/// use std::io::ErrorKind;
/// use std::net::TcpStream;
///
/// use tidegate_testkit::ClosedPort;
///
/// let closed = ClosedPort::tcp();
/// let error = TcpStream::connect(closed.address()).expect_err("no server listens");
/// assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
/// ```
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    /// It has the port.
    _socket: Socket,
}

impl ClosedPort {
    /// A TCP port, until the value is dropped: its socket does not listen.
    ///
    /// # Panics
    /// If the kernel has no socket or no port left.
    #[must_use]
    pub fn tcp() -> Self {
        Self::bind(Type::STREAM)
    }

    /// A UDP port, until the value is dropped: its socket is connected to itself, so it receives from no other.
    ///
    /// # Panics
    /// If the kernel has no socket or no port left.
    #[must_use]
    pub fn udp() -> Self {
        let closed = Self::bind(Type::DGRAM);
        closed._socket.connect(&closed.address.into()).expect("its own address");
        closed
    }

    fn bind(kind: Type) -> Self {
        let socket = Socket::new(Domain::IPV4, kind, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
        Self { address, _socket: socket }
    }

    /// The address with the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_datagram_to_a_closed_port_is_refused() {
        let closed = ClosedPort::udp();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.connect(closed.address()).expect("an address");
        socket.send(b"ebb").expect("the kernel takes it");
        assert_eq!(socket.recv(&mut [0]).expect_err("no socket receives it").kind(), ErrorKind::ConnectionRefused);
    }
}
