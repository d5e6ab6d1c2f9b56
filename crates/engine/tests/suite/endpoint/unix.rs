//! Unix datagram sockets of endpoints and of channels, and the credentials of a Unix stream's peer.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use tidegate_buffer::{Ancillary, Datagram, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_codec::framing::Raw;
use tidegate_engine::{DatagramChannel, EndpointLimits, Limits};
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
    let socket = Socket::bind_unix_datagrams(&here, &options).unwrap();
    let bound =
        stage.with(0, |event_loop| event_loop.bind_endpoint(socket, &options, limits, Echo::default())).unwrap();
    assert_eq!(bound, here);
    let received = stage.task(async move {
        let mut channel = DatagramChannel::bind_unix(&there, &DatagramOptions::default(), limits).unwrap();
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
    assert_eq!(tcp.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}
