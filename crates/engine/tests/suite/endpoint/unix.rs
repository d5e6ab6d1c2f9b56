//! Unix datagram sockets of endpoints and of channels, and the credentials and the descriptors of a Unix stream's peer.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use tidegate_buffer::{Ancillary, Datagram, DatagramErrorReason, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Context, DatagramChannel, EndpointLimits, Handler, Limits, Outcome};
use tidegate_sys::{Address, DatagramOptions, Socket};

use super::stage::Stage;

/// Echoes each datagram to the Unix socket that it came from.
#[derive(Default)]
struct Echo(VecDeque<Transmit>);

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.0.push_back(Transmit::response(&datagram, datagram.payload.clone()));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.0.drain(..).for_each(|response| transmits.push(response));
    }
}

fn name(stage: &Stage, of: &str) -> Address {
    Address::Abstract(format!("tidegate-{}-{}-{of}", std::process::id(), stage.name()).into())
}

pub(crate) fn a_unix_endpoint_echoes_to_its_source(stage: &mut Stage) {
    let (here, there) = (name(stage, "echo"), name(stage, "client"));
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let (socket, client) = (stage.unix_socket(&here, &options), stage.unix_socket(&there, &options));
    let bound =
        stage.with(0, |event_loop| event_loop.bind_endpoint(socket, &options, limits, Echo::default())).unwrap();
    assert_eq!(bound, here);
    let received = stage.task(async move {
        let mut channel = DatagramChannel::on(client, &DatagramOptions::default(), limits).unwrap();
        assert!(channel.local_address().is_err() && channel.address().unwrap() == there);
        channel.send_to_unix(b"tide".to_vec(), here).unwrap();
        let datagram = channel.recv_from().await.unwrap();
        (datagram.payload.to_vec(), datagram.peer())
    });
    assert_eq!(received, (b"tide".to_vec(), bound));
}

pub(crate) fn a_task_passes_a_descriptor_and_learns_the_process(stage: &mut Stage) {
    let (here, limits) = (name(stage, "receiver"), EndpointLimits::default());
    let passed = stage.task(async move {
        let options = DatagramOptions { credentials: true, descriptors_max: 1, ..DatagramOptions::default() };
        let mut receiver = DatagramChannel::bind_unix(&here, &options, limits).unwrap();
        let unnamed = Address::Unix(PathBuf::new());
        let mut sender = DatagramChannel::bind_unix(&unnamed, &DatagramOptions::default(), limits).unwrap();
        let mut ancillary = Ancillary::of(here);
        ancillary.attach(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        sender.send(Transmit::with_ancillary(Vec::new(), ancillary)).unwrap();
        let ancillary = receiver.recv_from().await.unwrap().ancillary.unwrap();
        (ancillary.descriptors().len(), ancillary.credentials.map(|sender| sender.process as u32))
    });
    assert_eq!(passed, (1, Some(std::process::id())));
}

pub(crate) fn a_channel_knows_the_process_at_the_other_end(stage: &mut Stage) {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let (tcp, _accepted) = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Socket::from_stream(stream).unwrap(), listener.accept().unwrap())
    };
    let unnamed = Address::Unix(PathBuf::new());
    let unix = Socket::from_stream(ours).unwrap();
    let [unix, tcp] = [unix, tcp].map(|socket| {
        let channel = stage.with(1, |event_loop| event_loop.open(socket, &unnamed, Limits::default(), Raw)).unwrap();
        let credentials = channel.peer_credentials();
        drop(channel);
        credentials
    });
    let process = unix.unwrap();
    assert_eq!(process.process as u32, std::process::id());
    assert_eq!(tcp.unwrap_err().kind(), ErrorKind::Unsupported);
}

pub(crate) fn descriptors_above_the_limit_are_closed_and_the_datagram_counts_as_truncated(stage: &mut Stage) {
    let (here, limits) = (name(stage, "limit"), EndpointLimits::default());
    let options = DatagramOptions { descriptors_max: 2, ..DatagramOptions::default() };
    let receiver = stage.unix_socket(&here, &options);
    let sender = stage.unix_socket(&Address::Unix(PathBuf::new()), &DatagramOptions::default());
    let passed = stage.task(async move {
        let mut receiver = DatagramChannel::on(receiver, &options, limits).unwrap();
        let mut sender = DatagramChannel::on(sender, &DatagramOptions::default(), limits).unwrap();
        let mut passed = Vec::new();
        for count in [1, 3] {
            let mut ancillary = Ancillary::of(here.clone());
            (0..count).for_each(|_| ancillary.attach(std::fs::File::open("/dev/null").unwrap()).unwrap());
            sender.send(Transmit::with_ancillary(b"files".to_vec(), ancillary)).unwrap();
            let datagram = receiver.recv_from().await.unwrap();
            passed.push((datagram.ancillary.unwrap().descriptors().len(), datagram.truncated));
        }
        passed
    });
    assert_eq!(passed, [(1, false), (2, true)]);
}

pub(crate) fn a_full_unix_socket_loses_the_datagrams_to_it_alone(stage: &mut Stage) {
    let (full, other) = (name(stage, "full"), name(stage, "other"));
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    // No loop receives from the first one.
    let _full = stage.unix_socket(&full, &options);
    let receiver = stage.unix_socket(&other, &options);
    let sender = stage.unix_socket(&Address::Unix(PathBuf::new()), &options);
    let missing = name(stage, "missing");
    let (came, errors) = stage.task(async move {
        let mut sender = DatagramChannel::on(sender, &DatagramOptions::default(), limits).unwrap();
        let mut receiver = DatagramChannel::on(receiver, &DatagramOptions::default(), limits).unwrap();
        for _ in 0..1_000 {
            sender.send_to_unix(vec![7; 100], full.clone()).unwrap();
        }
        sender.send_to_unix(b"gone".to_vec(), missing).unwrap();
        sender.send_to_unix(b"flow".to_vec(), other).unwrap();
        let came = receiver.recv_from().await.unwrap().payload.to_vec();
        let errors: Vec<_> = std::iter::from_fn(|| sender.next_error()).map(|error| error.reason).collect();
        (came, errors)
    });
    assert_eq!((came, errors), (b"flow".to_vec(), vec![DatagramErrorReason::PortUnreachable]));
    let counts = stage.counts(1);
    assert!(counts.datagrams_lost > 100, "{}", counts.datagrams_lost);
    assert_eq!(counts.datagrams_sent + counts.datagrams_lost, 1_002);
}

/// Two channels at the ends of a Unix stream, on the second loop.
fn stream_channels(stage: &mut Stage) -> [Channel<Raw>; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    let unnamed = Address::Unix(PathBuf::new());
    [one, other].map(|stream| {
        let socket = Socket::from_stream(stream).unwrap();
        stage.with(1, |event_loop| event_loop.open(socket, &unnamed, Limits::default(), Raw)).unwrap()
    })
}

/// Receives so many bytes.
async fn receive(channel: &mut Channel<Raw>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        bytes.extend_from_slice(&channel.recv().await.unwrap().unwrap());
    }
    bytes
}

pub(crate) fn a_stream_passes_descriptors_with_its_bytes(stage: &mut Stage) {
    let [mut ours, mut theirs] = stream_channels(stage);
    stage.task(async move {
        ours.keep_descriptors(2).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(theirs.send_descriptors(b"a", &[writer.as_fd()]).unwrap(), 1);
        let sent = theirs.send(b"bc".into()).unwrap();
        theirs.flushed(sent).await.unwrap();
        assert_eq!(receive(&mut ours, 3).await, b"abc");
        let mut passed = ours.take_descriptors();
        assert_eq!((passed.descriptors.len(), passed.is_truncated), (1, false));
        // It is the same pipe.
        drop(writer);
        let mut end = std::fs::File::from(passed.descriptors.remove(0));
        end.write_all(b"through").unwrap();
        drop((end, passed));
        let mut through = String::new();
        reader.read_to_string(&mut through).unwrap();
        assert_eq!(through, "through");
        assert!(ours.take_descriptors().descriptors.is_empty());
    });
}

pub(crate) fn a_stream_keeps_as_many_descriptors_as_it_asks_for(stage: &mut Stage) {
    let [mut ours, mut theirs] = stream_channels(stage);
    stage.task(async move {
        let null = std::fs::File::open("/dev/null").unwrap();
        let three = [null.as_fd(); 3];
        // None by default.
        theirs.send_descriptors(b"0", &three).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"0");
        assert!(ours.take_descriptors().descriptors.is_empty());
        ours.keep_descriptors(2).unwrap();
        for byte in b"12" {
            theirs.send_descriptors(&[*byte], &three[..1]).unwrap();
        }
        theirs.send_descriptors(b"34", &three).unwrap();
        // All of it comes, though a receive ends before the next descriptors.
        assert_eq!(receive(&mut ours, 4).await, b"1234");
        let passed = ours.take_descriptors();
        assert_eq!((passed.descriptors.len(), passed.is_truncated), (2, true));
        theirs.send_descriptors(b"5", &three).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"5");
        let passed = ours.take_descriptors();
        assert_eq!((passed.descriptors.len(), passed.is_truncated), (2, true));
        theirs.send_descriptors(b"6", &three[..2]).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"6");
        let passed = ours.take_descriptors();
        assert_eq!((passed.descriptors.len(), passed.is_truncated), (2, false));
        ours.keep_descriptors(0).unwrap();
        theirs.send_descriptors(b"7", &three[..1]).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"7");
        assert!(ours.take_descriptors().descriptors.is_empty());
        // The end is found after the last bytes.
        theirs.send_descriptors(b"8", &three[..1]).unwrap();
        drop(theirs);
        assert_eq!(receive(&mut ours, 1).await, b"8");
        assert!(ours.recv().await.unwrap().is_none());
    });
}

pub(crate) fn bytes_behind_descriptors_come_once_a_stream_keeps_some(stage: &mut Stage) {
    let [mut ours, mut theirs] = stream_channels(stage);
    stage.task(async move {
        let null = std::fs::File::open("/dev/null").unwrap();
        for byte in b"ab" {
            theirs.send_descriptors(&[*byte], &[null.as_fd()]).unwrap();
        }
        // A receive ends behind the first descriptor.
        assert_eq!(receive(&mut ours, 1).await, b"a");
        ours.keep_descriptors(1).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"b");
    });
}

pub(crate) fn a_stream_with_credentials_keeps_its_descriptors(stage: &mut Stage) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    // As the sockets of a listener that systemd has opened with `PassCredentials=yes`.
    rustix::net::sockopt::set_socket_passcred(&ours, true).unwrap();
    let unnamed = Address::Unix(PathBuf::new());
    let [mut ours, mut theirs] = [ours, theirs].map(|stream| {
        let socket = Socket::from_stream(stream).unwrap();
        stage.with(1, |event_loop| event_loop.open(socket, &unnamed, Limits::default(), Raw)).unwrap()
    });
    stage.task(async move {
        let null = std::fs::File::open("/dev/null").unwrap();
        ours.keep_descriptors(2).unwrap();
        theirs.send_descriptors(b"a", &[null.as_fd(); 2]).unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"a");
        let sent = theirs.send(b"b".into()).unwrap();
        theirs.flushed(sent).await.unwrap();
        assert_eq!(receive(&mut ours, 1).await, b"b");
        let passed = ours.take_descriptors();
        assert_eq!((passed.descriptors.len(), passed.is_truncated), (2, false));
    });
}

pub(crate) fn descriptors_do_not_overtake_messages(stage: &mut Stage) {
    let [mut ours, mut theirs] = stream_channels(stage);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let (socket, unnamed) = (Socket::from_stream(stream).unwrap(), Address::Unix(PathBuf::new()));
    let mut tcp = stage.with(1, |event_loop| event_loop.open(socket, &unnamed, Limits::default(), Raw)).unwrap();
    stage.task(async move {
        let null = std::fs::File::open("/dev/null").unwrap();
        let kind = |sent: std::io::Result<usize>| sent.unwrap_err().kind();
        ours.keep_descriptors(1).unwrap();
        let sent = theirs.send(b"first".into()).unwrap();
        assert_eq!(kind(theirs.send_descriptors(b"second", &[null.as_fd()])), ErrorKind::WouldBlock);
        theirs.flushed(sent).await.unwrap();
        theirs.send_descriptors(b"second", &[null.as_fd()]).unwrap();
        assert_eq!(receive(&mut ours, 11).await, b"firstsecond");
        assert_eq!(ours.take_descriptors().descriptors.len(), 1);
        for (bytes, descriptors) in [(&b""[..], 1), (b"x", 0), (b"x", 254)] {
            let descriptors = vec![null.as_fd(); descriptors];
            assert_eq!(kind(theirs.send_descriptors(bytes, &descriptors)), ErrorKind::InvalidInput);
        }
        assert_eq!(kind(tcp.send_descriptors(b"x", &[null.as_fd()])), ErrorKind::Unsupported);
        assert_eq!(tcp.keep_descriptors(1).unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

/// Passes each descriptor that comes back to its sender.
struct Mirror;

impl Handler<Raw> for Mirror {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.keep_descriptors(8).unwrap();
        Outcome::Continue
    }

    fn message(&mut self, bytes: tidegate_buffer::Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        let passed = cx.take_descriptors();
        let descriptors: Vec<_> = passed.descriptors.iter().map(AsFd::as_fd).collect();
        assert_eq!(cx.send_descriptors(&bytes, &descriptors).unwrap(), bytes.len());
        Outcome::Continue
    }
}

pub(crate) fn a_handler_gets_and_passes_descriptors(stage: &mut Stage) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let unnamed = Address::Unix(PathBuf::new());
    let [ours, theirs] = [ours, theirs].map(|stream| Socket::from_stream(stream).unwrap());
    stage.with(0, |event_loop| event_loop.adopt(ours, &unnamed, Limits::default(), Raw, Mirror)).unwrap();
    let mut theirs = stage.with(1, |event_loop| event_loop.open(theirs, &unnamed, Limits::default(), Raw)).unwrap();
    let came = stage.task(async move {
        theirs.keep_descriptors(8).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        theirs.send_descriptors(b"there", &[null.as_fd(), null.as_fd()]).unwrap();
        (receive(&mut theirs, 5).await, theirs.take_descriptors().descriptors.len())
    });
    assert_eq!(came, (b"there".to_vec(), 2));
}
