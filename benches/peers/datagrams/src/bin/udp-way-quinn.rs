//! One way by a bare loop of quinn-udp. `split` sends and receives datagrams one by one in batches, `runs` by GSO and GRO.
//!
//! ```text
//! udp-way-quinn receive runs|split
//! udp-way-quinn send runs|split ADDRESS SECONDS      # prints `datagrams N`
//! ```

use std::error::Error;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use datagrams::{BURST, BURSTS, BYTES};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", mode] => receive(mode == "runs"),
        ["send", mode, address, seconds] => send(mode == "runs", address.parse()?, seconds.parse()?),
        _ => Err("receive MODE, or send MODE ADDRESS SECONDS".into()),
    }
}

fn receive(joins: bool) -> Result<(), Box<dyn Error>> {
    let socket = datagrams::socket()?;
    println!("listening on {}", socket.local_addr()?);
    let state = UdpSocketState::new((&socket).into())?;
    if !joins {
        // The state has asked for joined datagrams.
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGroSegment, &false)?;
    }
    let each = if joins { 65_536 } else { 2048 };
    let mut memory = vec![0_u8; BATCH_SIZE * each];
    let mut meta = [RecvMeta::default(); BATCH_SIZE];
    let mut count = 0;
    loop {
        let mut slices: Vec<_> = memory.chunks_mut(each).map(IoSliceMut::new).collect();
        let received = match state.recv((&socket).into(), &mut slices, &mut meta) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&socket)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for one in &meta[..received] {
            count += one.len / BYTES;
            if count >= BURST {
                count -= BURST;
                send_one(&state, &socket, one.addr, b"burst", None)?;
            }
        }
    }
}

fn send(splits: bool, address: SocketAddr, seconds: f64) -> Result<(), Box<dyn Error>> {
    let socket = datagrams::socket()?;
    let state = UdpSocketState::new((&socket).into())?;
    let burst = vec![7_u8; BURST * BYTES];
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut memory = [0; 64];
    let mut meta = [RecvMeta::default()];
    let (mut allowed, mut sent) = (BURSTS, 0);
    while Instant::now() < until {
        while allowed > 0 {
            allowed -= 1;
            sent += BURST;
            if splits {
                send_one(&state, &socket, address, &burst, Some(BYTES))?;
            } else {
                for datagram in burst.chunks(BYTES) {
                    send_one(&state, &socket, address, datagram, None)?;
                }
            }
        }
        match state.recv((&socket).into(), &mut [IoSliceMut::new(&mut memory)], &mut meta) {
            // Acknowledgements are joined too.
            Ok(_) => allowed += meta[0].len / b"burst".len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&socket)?,
            Err(error) => return Err(error.into()),
        }
    }
    println!("datagrams {sent}");
    Ok(())
}

fn send_one(
    state: &UdpSocketState,
    socket: &UdpSocket,
    destination: SocketAddr,
    contents: &[u8],
    segment_size: Option<usize>,
) -> std::io::Result<()> {
    state.send(socket.into(), &Transmit { destination, ecn: None, contents, segment_size, src_ip: None })
}

fn wait(socket: &UdpSocket) -> Result<(), Box<dyn Error>> {
    let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    if poll(&mut waiting, PollTimeout::from(10_000_u16))? == 0 {
        return Err("nothing comes: a burst is lost".into());
    }
    Ok(())
}
