//! Opening a datagram socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, Type};

use super::groups;
use super::messages::set_option;
use super::options::DatagramOptions;
use super::steering::{self, Steering};
use tidegate_buffer::Address;

use crate::socket::{Socket, remove_stale};
use crate::socket_address;

impl Socket {
    /// Opens a datagram socket (UDP) at `address`. For port 0 the kernel chooses a free one. No datagram is received into
    /// the program before an event loop has the socket; the kernel queues them.
    ///
    /// ```
    /// use tidegate::sys::{DatagramOptions, Side, Socket};
    ///
    /// let socket = Socket::bind_datagrams("127.0.0.1:0".parse()?, &DatagramOptions::default())?;
    /// assert_ne!(socket.address(Side::Local)?.ip().map(|address| address.port()), Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`.
    pub fn bind_datagrams(address: SocketAddr, options: &DatagramOptions) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(options.only_v6)?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        socket.set_broadcast(options.broadcast)?;
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        report_facts(socket.as_fd(), address.is_ipv6(), options)?;
        if options.joins_runs {
            // A kernel without it (before Linux 5.0) receives single datagrams.
            let _ = set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        socket.bind(&address.into())?;
        groups::only_joined_groups(socket.as_fd(), address.is_ipv6());
        groups::join_all(socket.as_fd(), options)?;
        if let Some(peer) = options.peer {
            socket.connect(&peer.into())?;
        }
        Ok(Self::Descriptor(socket.into()))
    }

    /// Opens a Unix datagram socket: at a path, at an abstract name, or without a name if the path is empty. It replaces a
    /// socket file if no process has its socket any more. Of the options it takes the longest payload, the kernel's
    /// buffers, descriptors and credentials.
    ///
    /// ```
    /// use tidegate::sys::{DatagramOptions, Side, Socket};
    ///
    /// let address = format!("unix:@tidegate-example-{}", std::process::id()).parse()?;
    /// let socket = Socket::bind_unix_datagrams(&address, &DatagramOptions::default())?;
    /// assert_eq!(socket.address(Side::Local)?, address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`; `InvalidInput` if the address is none of a Unix socket.
    pub fn bind_unix_datagrams(address: &Address, options: &DatagramOptions) -> io::Result<Self> {
        let is_named = match address {
            Address::Unix(path) => !path.as_os_str().is_empty(),
            Address::Abstract(_) => true,
            Address::Ip(_) | Address::Vsock { .. } => return Err(io::ErrorKind::InvalidInput.into()),
        };
        if let Address::Unix(path) = address {
            remove_stale(path, Type::DGRAM)?;
        }
        let socket = socket2::Socket::new(Domain::UNIX, Type::DGRAM.nonblocking(), None)?;
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        report_unix_facts(socket.as_fd(), options)?;
        if is_named {
            socket.bind(&socket_address::to_system(address)?)?;
        }
        Ok(Self::Descriptor(socket.into()))
    }

    /// Takes over a bound datagram socket that another server has opened by [`bind_datagrams`](Self::bind_datagrams), and goes
    /// on receiving from. Runs are joined only if both servers want that: one that does not has no memory for them. Options of
    /// the address, the sizes of the kernel's buffers and groups stay as they are.
    ///
    /// # Errors
    /// Those of the system.
    pub fn from_datagrams(socket: impl Into<OwnedFd>, options: &DatagramOptions) -> io::Result<Self> {
        let descriptor = socket.into();
        let socket = socket2::SockRef::from(&descriptor);
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        if local.is_unix() {
            report_unix_facts(descriptor.as_fd(), options)?;
            return Ok(Self::Descriptor(descriptor));
        }
        let is_v6 = local.is_ipv6();
        report_facts(descriptor.as_fd(), is_v6, options)?;
        // A server of another version may have left that.
        groups::only_joined_groups(descriptor.as_fd(), is_v6);
        if !options.joins_runs {
            // A kernel without it joins none.
            let _ = set_option(descriptor.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 0);
        }
        Ok(Self::Descriptor(descriptor))
    }

    /// Steers the datagrams of the group of `sockets` sockets that share this one's address, among which it is. Call it
    /// once, before datagrams come; sockets that join the group later are among them.
    ///
    /// # Errors
    /// Those of the system: then the kernel chooses by a hash of the addresses.
    pub fn steer(&self, steering: &Steering, sockets: usize) -> io::Result<()> {
        steering::attach(self.descriptor()?, steering, sockets)
    }

    /// The kernel chooses among the sockets that share this one's address by a hash of the addresses again.
    ///
    /// # Errors
    /// Those of the system; `NotFound` if it did so before.
    pub fn steer_by_hash(&self) -> io::Result<()> {
        set_option(self.descriptor()?, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0)
    }
}

/// Has the kernel report the process that sends, if that is wanted.
fn report_unix_facts(fd: BorrowedFd<'_>, options: &DatagramOptions) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, options.credentials.into())
}

/// Has the kernel report the facts of received datagrams, and errors, and ignore reports of routers about the path.
fn report_facts(fd: BorrowedFd<'_>, is_v6: bool, options: &DatagramOptions) -> io::Result<()> {
    let discover = if options.fragments { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_PROBE };
    // A socket of IPv6 receives from IPv4 too, and then has the options of both. A socket that was taken over may have had
    // other options before.
    let facts = options.facts.into();
    for name in [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL] {
        set_option(fd, libc::SOL_IP, name, facts)?;
    }
    set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
    set_option(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, discover)?;
    if is_v6 {
        for name in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT] {
            set_option(fd, libc::SOL_IPV6, name, facts)?;
        }
        set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
        // The numbers are the same as for IPv4.
        set_option(fd, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, discover)?;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::driver::Side;

    const RULES: [Steering; 3] = [
        Steering { only_if: None, xor_offset: None, offset: 0, mask: 0xff },
        Steering { only_if: Some((0, 0x80, 0)), xor_offset: Some(1), offset: 2, mask: 0x7f },
        Steering { only_if: Some((3, 0x0f, 2)), xor_offset: None, offset: 1, mask: 0x03 },
    ];

    #[test]
    fn the_kernel_and_this_process_read_the_same_number() {
        let options = DatagramOptions { reuse_port: true, ..DatagramOptions::default() };
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a peer");
        for rule in RULES {
            let mut at = "127.0.0.1:0".parse().expect("an address");
            let sockets: Vec<UdpSocket> = (0..4)
                .map(|place| {
                    let socket = Socket::bind_datagrams(at, &options).expect("a socket");
                    if place == 0 {
                        socket.steer(&rule, 4).expect("a program");
                        at = socket.address(Side::Local).expect("an address").ip().expect("of IP");
                    }
                    socket.descriptor().and_then(|socket| socket.try_clone_to_owned()).expect("a descriptor").into()
                })
                .collect();
            for seed in 0..200_u32 {
                let payload = &seed.wrapping_mul(0x9e37_79b9).to_be_bytes()[..(seed % 5) as usize];
                peer.send_to(payload, at).expect("room");
                let came = |socket: &UdpSocket| socket.recv(&mut [0; 8]).is_ok();
                let place = loop {
                    if let Some(place) = sockets.iter().position(came) {
                        break place;
                    }
                };
                if let Some(number) = rule.number(payload).filter(|number| *number < sockets.len()) {
                    assert_eq!(place, number, "{rule:?} {payload:?}");
                }
            }
        }
    }
}
