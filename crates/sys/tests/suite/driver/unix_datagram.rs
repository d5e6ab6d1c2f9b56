//! Unix datagram sockets: names, descriptors, credentials, full queues.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate_buffer::{Ancillary, DatagramErrorReason, Transmit, Transmits};
use tidegate_sys::{Address, Completion, DatagramOptions, Operation, Socket};

use crate::directory::Directory;
use crate::driver::datagram::Endpoint;
use crate::driver::harness::{PATIENCE, uninterrupted};
use crate::driver::which::Which;

fn at(driver: Which, address: &Address, options: &DatagramOptions) -> Endpoint {
    Endpoint::on(driver, Socket::bind_unix_datagrams(address, options).unwrap(), options)
}

fn unnamed() -> Address {
    Address::Unix(PathBuf::new())
}

fn peer(path: PathBuf) -> UnixDatagram {
    let peer = UnixDatagram::bind(path).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

fn receive(peer: &UnixDatagram) -> Vec<u8> {
    let mut bytes = [0; 64];
    let length = uninterrupted(|| peer.recv(&mut bytes)).unwrap();
    bytes[..length].to_vec()
}

fn to(address: &Address, payload: &[u8]) -> Transmit {
    Transmit::with_ancillary(payload.to_vec(), Ancillary::of(address.clone()))
}

pub(crate) fn a_unix_datagram_has_the_name_of_its_sender_and_a_response_goes_there(driver: Which) {
    let directory = Directory::new();
    let mut endpoint = at(driver, &directory.socket("here"), &DatagramOptions::default());
    let name = format!("tidegate-{}-{driver}", std::process::id());
    let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    hidden.set_read_timeout(Some(PATIENCE)).unwrap();
    let named = peer(directory.path("there"));
    for (socket, payload) in [(&named, "path"), (&hidden, "name"), (&UnixDatagram::unbound().unwrap(), "")] {
        socket.send_to(payload.as_bytes(), directory.path("here")).unwrap();
    }
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 3);
    assert_eq!(endpoint.payloads(), [&b"path"[..], b"name", b""]);
    let peers: Vec<_> = endpoint.datagrams.iter().map(|datagram| datagram.peer()).collect();
    assert_eq!(peers, [directory.socket("there"), Address::Abstract(name.into()), unnamed()]);
    let responses: Vec<_> =
        endpoint.datagrams.iter().map(|datagram| Transmit::response(datagram, datagram.payload.clone())).collect();
    let transmission = endpoint.send(responses);
    assert_eq!((transmission.sent, transmission.lost), (2, 1), "a sender without a name gets none");
    assert_eq!((receive(&named), receive(&hidden)), (b"path".to_vec(), b"name".to_vec()));
}

pub(crate) fn a_datagram_that_cannot_reach_a_unix_socket_is_dropped_alone(driver: Which) {
    let directory = Directory::new();
    let mut endpoint = at(driver, &unnamed(), &DatagramOptions::default());
    let there = peer(directory.path("there"));
    drop(UnixDatagram::bind(directory.path("left")).unwrap());
    let transmission = endpoint.send([
        to(&directory.socket("missing"), b"1"),
        to(&directory.socket("left"), b"2"),
        Transmit::new(b"3".to_vec(), "127.0.0.1:9".parse().unwrap()),
        to(&Address::Abstract(vec![b'x'; 200]), b"4"),
        Transmit::with_ancillary(b"5".to_vec(), Ancillary::default()),
        to(&directory.socket("there"), b"6"),
    ]);
    assert_eq!((transmission.sent, transmission.lost), (1, 5));
    let reasons: Vec<_> = endpoint.errors.iter().map(|error| error.reason).collect();
    let refused = DatagramErrorReason::Refused;
    assert_eq!(reasons[..2], [refused(ErrorKind::NotFound), DatagramErrorReason::PortUnreachable]);
    assert_eq!(reasons[2..], [ErrorKind::InvalidInput, ErrorKind::InvalidInput, ErrorKind::NotConnected].map(refused));
    assert_eq!(receive(&there), b"6");
    // A UDP socket sends nothing to a Unix socket.
    let any = "127.0.0.1:0".parse().unwrap();
    let udp = Socket::bind_datagrams(any, &DatagramOptions::default()).unwrap();
    let mut udp = Endpoint::on(driver, udp, &DatagramOptions::default());
    assert_eq!(udp.send([to(&directory.socket("there"), b"7")]).lost, 1);
}

/// Sends the writing ends of `count` pipes, and returns their reading ends.
fn send_pipes(sender: &mut Endpoint, to: Address, count: usize) -> Vec<UnixStream> {
    let mut ancillary = Ancillary::of(to);
    let mut readers = Vec::new();
    for _ in 0..count {
        let (reader, writer) = UnixStream::pair().unwrap();
        ancillary.attach(writer).unwrap();
        readers.push(reader);
    }
    assert_eq!(sender.send([Transmit::with_ancillary(b"pipes".to_vec(), ancillary)]).sent, 1);
    readers
}

pub(crate) fn descriptors_come_along_and_those_above_the_limit_are_closed(driver: Which) {
    let directory = Directory::new();
    let here = directory.socket("here");
    let mut sender = at(driver, &unnamed(), &DatagramOptions::default());
    for (limit, count) in [(0, 1), (2, 2), (2, 44), (255, 44)] {
        let options = DatagramOptions { descriptors_max: limit, ..Default::default() };
        let mut endpoint = at(driver, &here, &options);
        let mut readers = send_pipes(&mut sender, here.clone(), count);
        endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
        let mut datagram = endpoint.datagrams.pop().unwrap();
        let kept = datagram.ancillary.as_mut().unwrap().take_descriptors();
        assert_eq!((kept.len(), datagram.truncated), (count.min(usize::from(limit)), count > usize::from(limit)));
        for (descriptor, reader) in kept.into_iter().zip(&mut readers) {
            let owned: OwnedFd = std::sync::Arc::into_inner(descriptor).unwrap();
            let flags = rustix::io::fcntl_getfd(owned.as_fd()).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "a child process does not inherit it");
            UnixStream::from(owned).write_all(b"through").unwrap();
            let mut came = [0; 7];
            reader.read_exact(&mut came).unwrap();
            assert_eq!(&came, b"through");
        }
        // Every writing end is closed.
        readers.iter_mut().for_each(|reader| assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0));
    }
}

pub(crate) fn the_process_of_a_sender_is_reported_on_request(driver: Which) {
    let directory = Directory::new();
    for asks in [false, true] {
        let options = DatagramOptions { credentials: asks, ..Default::default() };
        let mut endpoint = at(driver, &directory.socket("here"), &options);
        UnixDatagram::unbound().unwrap().send_to(b"1", directory.path("here")).unwrap();
        endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
        let credentials = endpoint.datagrams[0].ancillary.as_ref().unwrap().credentials;
        assert_eq!(credentials.map(|sender| sender.process as u32), asks.then(std::process::id));
        let user = rustix::process::geteuid().as_raw();
        assert!(credentials.is_none_or(|sender| sender.user == user));
    }
}

pub(crate) fn a_full_queue_loses_the_datagrams_of_its_receiver_alone(driver: Which) {
    let directory = Directory::new();
    let [full, free] = ["full", "free"].map(|name| peer(directory.path(name)));
    let mut endpoint = at(driver, &unnamed(), &DatagramOptions::default());
    let many = (0..900).map(|_| to(&directory.socket("full"), b"many"));
    let transmission = endpoint.send(many.chain([to(&directory.socket("free"), b"one")]));
    assert_eq!(receive(&free), b"one");
    assert_eq!(transmission.sent + transmission.lost, 901);
    assert!(transmission.lost > 0 && transmission.errors.is_empty(), "{transmission:?}");
    full.set_nonblocking(true).unwrap();
    let came = std::iter::from_fn(|| full.recv(&mut [0; 8]).ok()).count() as u64;
    assert_eq!(came, transmission.sent - 1);
}

pub(crate) fn a_connected_unix_socket_waits_for_its_peer(driver: Which) {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let options = DatagramOptions::default();
    let mut endpoint = Endpoint::on(driver, Socket::from_datagrams(ours, &options).unwrap(), &options);
    let mut list = Transmits::new(&endpoint.pool);
    for number in 0..900_u32 {
        list.push(Transmit::with_ancillary(number.to_ne_bytes().to_vec(), Ancillary::default()));
    }
    theirs.set_nonblocking(true).unwrap();
    let (mut came, mut sent, mut is_blocked, mut times_blocked) = (0_u32, 0, false, 0);
    let deadline = Instant::now() + PATIENCE;
    while came < 900 {
        assert!(Instant::now() < deadline, "{came} have come, {sent} were sent");
        if !is_blocked && !list.is_empty() {
            let Some(Completion::Transmitted(transmission)) =
                endpoint.driver.submit(endpoint.token, Operation::Transmit(&mut list))
            else {
                panic!("a send has a result");
            };
            assert_eq!(transmission.lost, 0);
            sent += transmission.sent;
            is_blocked = transmission.is_blocked;
            times_blocked += u32::from(is_blocked);
        }
        let mut bytes = [0; 4];
        while theirs.recv(&mut bytes).is_ok() {
            assert_eq!(u32::from_ne_bytes(bytes), came);
            came += 1;
        }
        endpoint.driver.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some((_, completion)) = endpoint.driver.next_of_any() {
            assert!(matches!(completion, Completion::Transmitted(_)), "{completion:?}");
            is_blocked = false;
        }
    }
    assert!(sent == 900 && times_blocked > 0, "{sent} were sent, {times_blocked} times there was no room");
}

pub(crate) fn a_file_of_a_unix_datagram_socket_is_replaced_once_its_process_has_left(_: Which) {
    let directory = Directory::new();
    let here = directory.socket("here");
    let options = DatagramOptions::default();
    let first = Socket::bind_unix_datagrams(&here, &options).unwrap();
    let taken = Socket::bind_unix_datagrams(&here, &options).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    drop(first);
    assert!(Socket::bind_unix_datagrams(&here, &options).is_ok());
    std::fs::write(directory.path("file"), b"kept").unwrap();
    let file = Socket::bind_unix_datagrams(&directory.socket("file"), &options).unwrap_err();
    assert_eq!(file.kind(), ErrorKind::AddrInUse);
    let udp = Socket::bind_unix_datagrams(&"127.0.0.1:0".parse().unwrap(), &options).unwrap_err();
    assert_eq!(udp.kind(), ErrorKind::InvalidInput);
}
