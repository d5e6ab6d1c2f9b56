use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A path that is removed when the test ends.
struct Free(PathBuf);

impl Free {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-handover-{name}-{}", std::process::id())))
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The result of `receive` with a peer that runs this function.
fn recv(peer: impl FnOnce(UnixStream) + Send + 'static) -> io::Result<Vec<OwnedFd>> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || peer(theirs));
    let received = receive(&ours, soon());
    drop(ours);
    peer.join().unwrap();
    received
}

fn header(count: u32) -> Vec<u8> {
    [&MAGIC[..], &count.to_le_bytes()].concat()
}

#[test]
fn a_received_listener_accepts_connections_that_were_in_its_backlog() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let received = recv(move |stream| send(&stream, &[listener.as_fd()], soon()).unwrap()).unwrap();
    let listener = TcpListener::from(received.into_iter().next().unwrap());
    assert!(rustix::io::fcntl_getfd(&listener).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    listener.accept().unwrap().0.write_all(b"welcome").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "welcome");
}

#[test]
fn a_received_datagram_socket_has_the_datagrams_of_its_queue() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"welcome", address).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let received = recv(move |stream| send(&stream, &[listener.as_fd(), socket.as_fd()], soon()).unwrap()).unwrap();
    assert_eq!(
        received.iter().map(|one| datagram_address(one.as_fd())).collect::<Vec<_>>(),
        [None, Some(address.into())]
    );
    let socket = std::net::UdpSocket::from(received.into_iter().next_back().unwrap());
    let mut bytes = [0; 16];
    assert_eq!(socket.recv(&mut bytes).unwrap(), 7);
}

#[test]
fn up_to_the_maximum_number_of_listeners_arrives_in_order() {
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    for count in [0, 1, 2, PER_MESSAGE_MAX, PER_MESSAGE_MAX + 1, 2 * PER_MESSAGE_MAX, LISTENERS_MAX] {
        let sent: Vec<_> = listeners.iter().cycle().take(count).map(|one| one.try_clone().unwrap()).collect();
        let ports: Vec<_> = sent.iter().map(|one| one.local_addr().unwrap()).collect();
        let received = recv(move |stream| {
            let borrowed: Vec<_> = sent.iter().map(AsFd::as_fd).collect();
            send(&stream, &borrowed, soon()).unwrap();
        });
        let received: Vec<_> = received.unwrap().into_iter().map(TcpListener::from).collect();
        assert!(received.iter().map(|one| one.local_addr().unwrap()).eq(ports), "{count}");
    }
}

#[test]
fn sending_too_much_is_an_error() {
    let (stream, _peer) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = send(&stream, &vec![listener.as_fd(); LISTENERS_MAX + 1], soon()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let error = write_block(&stream, &vec![7; BLOCK_BYTES_MAX + 1], soon()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_block_comes_whole_and_one_that_is_too_long_is_refused() {
    for length in [0, 1, 100_000] {
        let (stream, peer) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..length).map(|place: u32| place as u8).collect();
        let expected = sent.clone();
        let sending = thread::spawn(move || write_block(&stream, &sent, soon()).unwrap());
        assert_eq!(read_block(&peer, soon()).unwrap(), expected);
        sending.join().unwrap();
    }
    let (stream, peer) = UnixStream::pair().unwrap();
    write_all(&stream, &(BLOCK_BYTES_MAX as u32 + 1).to_le_bytes(), soon()).unwrap();
    assert_eq!(read_block(&peer, soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_descriptor_that_is_neither_a_listener_nor_bound_to_a_port_is_refused() {
    let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let pair = UnixStream::pair().unwrap();
    let others: [OwnedFd; 4] =
        [File::open("/dev/null").unwrap().into(), datagrams.into(), pair.0.into(), io::pipe().unwrap().0.into()];
    for other in others {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = recv(move |stream| send(&stream, &[listener.as_fd(), other.as_fd()], soon()).unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[test]
fn malformed_and_truncated_handovers_are_refused() {
    let cases: [(Vec<u8>, io::ErrorKind); 8] = [
        (vec![], io::ErrorKind::UnexpectedEof),
        (header(1)[..7].to_vec(), io::ErrorKind::UnexpectedEof),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), io::ErrorKind::InvalidData),
        (header(LISTENERS_MAX as u32 + 1), io::ErrorKind::InvalidData),
        (header(u32::MAX), io::ErrorKind::InvalidData),
        (header(1), io::ErrorKind::UnexpectedEof),
        ([header(1), vec![1]].concat(), io::ErrorKind::InvalidData),
        ([header(1), vec![0]].concat(), io::ErrorKind::InvalidData),
    ];
    for (bytes, expected) in cases {
        let sent = format!("{bytes:?}");
        let error = recv(move |mut stream| stream.write_all(&bytes).unwrap()).unwrap_err();
        assert_eq!(error.kind(), expected, "{sent}");
    }
}

/// Other tests of the process open and close descriptors as well, so the count is not exact. The test repeats the
/// handover until a leak would be far larger than the number of descriptors that they have open.
#[test]
fn a_failed_handover_closes_the_descriptors_that_arrived() {
    let before = descriptors();
    for round in 0..40_u32 {
        let error = recv(move |mut stream| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let many = vec![listener.as_fd(); 200];
            match round % 4 {
                // More listeners than announced.
                0 => {
                    stream.write_all(&header(100)).unwrap();
                    send_some(&stream, &many, soon()).unwrap();
                }
                // Fewer listeners than announced.
                1 => {
                    stream.write_all(&header(300)).unwrap();
                    send_some(&stream, &many, soon()).unwrap();
                }
                // A message with a wrong count.
                2 => {
                    stream.write_all(&header(200)).unwrap();
                    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
                    let wrong = [IoSlice::new(&[7])];
                    rustix::net::sendmsg(&stream, &wrong, &mut control, SendFlags::empty()).unwrap();
                }
                // Descriptors in place of the header.
                _ => send_some(&stream, &many, soon()).unwrap(),
            }
        });
        error.unwrap_err();
    }
    // Another test has a thousand descriptors open for a moment.
    let end = Instant::now() + Duration::from_secs(120);
    while descriptors() >= before + 1000 {
        assert!(Instant::now() < end, "{before} descriptors became {}", descriptors());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_silent_peer_and_a_trickle_time_out_at_the_deadline() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let trickle = thread::spawn(move || {
        // Until the other end is closed.
        while theirs.write_all(b"T").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut room = [0; 4096];
    let error = read_exact(&ours, &mut room, Instant::now() + Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(ours);
    trickle.join().unwrap();

    let (ours, _silent) = UnixStream::pair().unwrap();
    let error = receive(&ours, Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let error = receive(&ours, Instant::now()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // The peer does not read.
    let error = write_all(&ours, &vec![0; 64 << 20], Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn the_socket_file_is_private_and_peer_credentials_are_known() {
    let free = Free::new("private");
    let listener = listen(&free.0).unwrap();
    assert_eq!(std::fs::metadata(&free.0).unwrap().permissions().mode() & 0o777, 0o600);
    let client = connect(&free.0, Duration::from_secs(20)).unwrap().expect("the path has a listener");
    let (stream, _) = listener.accept().unwrap();
    let own = Peer { process: std::process::id() as i32, is_same_user: true };
    assert_eq!((peer(&stream).unwrap(), peer(&client).unwrap()), (own, own));
    assert_eq!(listen(&free.0).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn connect_returns_none_without_a_listener() {
    let patience = Duration::from_secs(120);
    let free = Free::new("unused");
    assert!(connect(&free.0, patience).unwrap().is_none());
    drop(listen(&free.0).unwrap());
    assert!(connect(&free.0, patience).unwrap().is_none(), "the file still exists");
    std::fs::remove_file(&free.0).unwrap();
    std::fs::write(&free.0, b"a file").unwrap();
    assert_eq!(connect(&free.0, patience).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn connect_times_out_when_the_backlog_is_full() {
    let free = Free::new("full");
    let _listener = listen(&free.0).unwrap();
    let mut streams = Vec::new();
    let error = loop {
        match connect(&free.0, Duration::from_millis(50)) {
            Ok(stream) => streams.push(stream.expect("the path has a listener")),
            Err(error) => break error,
        }
        assert!(streams.len() < 1000);
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn wake_ends_a_wait_for_connections() {
    let free = Free::new("woken");
    let listener = listen(&free.0).unwrap();
    let waiting = listener.try_clone().unwrap();
    let waiter = thread::spawn(move || waiting.accept().map(drop));
    thread::sleep(Duration::from_millis(20));
    wake(&listener);
    waiter.join().unwrap().unwrap_err();
}

#[test]
fn accept_times_out_and_can_be_called_again() {
    let free = Free::new("accept");
    let listener = listen(&free.0).unwrap();
    assert!(accept(&listener, Some(Duration::from_millis(10))).unwrap().is_none());
    let mut client = UnixStream::connect(&free.0).unwrap();
    let stream = accept(&listener, None).unwrap().unwrap();
    let mut room = [0; 4];
    assert_eq!(read_arrived(&stream, &mut room).unwrap(), 0);
    client.write_all(b"eb").unwrap();
    assert_eq!((read_arrived(&stream, &mut room).unwrap(), &room[..2]), (2, &b"eb"[..]));
    drop(client);
    assert_eq!(read_arrived(&stream, &mut room).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
