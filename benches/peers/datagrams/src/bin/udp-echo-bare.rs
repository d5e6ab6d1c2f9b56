//! The lower bound of an echo of datagrams: a blocking `recvmmsg` of up to 64, and a `sendmmsg` of all that came.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};

fn main() -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    println!("listening on {}", socket.local_addr()?);
    let mut memory = vec![0_u8; BATCH * BYTES];
    let mut incoming = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut outgoing = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut received = Vec::with_capacity(BATCH);
    loop {
        received.clear();
        {
            let mut slices: Vec<_> = memory.chunks_mut(BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
            let flags = MsgFlags::MSG_WAITFORONE;
            for message in recvmmsg(socket.as_raw_fd(), &mut incoming, slices.iter_mut(), flags, None)? {
                received.push((message.address, message.bytes));
            }
        }
        let slices: Vec<_> =
            memory.chunks(BYTES).zip(&received).map(|(chunk, (_, length))| [IoSlice::new(&chunk[..*length])]).collect();
        let addresses: Vec<_> = received.iter().map(|(address, _)| *address).collect();
        let none: [nix::sys::socket::ControlMessage<'_>; 0] = [];
        let _ = sendmmsg(socket.as_raw_fd(), &mut outgoing, &slices, &addresses, none, MsgFlags::empty())?.count();
    }
}

const BATCH: usize = 64;
const BYTES: usize = 2048;
