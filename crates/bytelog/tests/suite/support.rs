//! An echo server over any filters, and a reader of capture files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use tidegate::bytelog::{Capture, CaptureOptions};
use tidegate::codec::Pipeline;
use tidegate::framing::Payload;
use tidegate::{Context, Handler, Outcome, Slice};

/// Sends every message back.
pub(crate) struct Echo;

impl<P: Pipeline<In = Slice, Out = Payload>> Handler<P> for Echo {
    type Post = ();

    fn message(&mut self, message: Slice, cx: &mut Context<'_, P>) -> Outcome<P> {
        cx.send(message.into()).into()
    }
}

/// A file that is removed in the end.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}.pcap", std::process::id())))
    }

    pub(crate) fn capture(&self) -> Capture {
        let _ = std::fs::remove_file(&self.0);
        Capture::create(&self.0, CaptureOptions::default()).expect("the directory can be written to")
    }

    /// The frames of the file.
    pub(crate) fn frames(&self) -> Vec<ReadFrame> {
        let file = std::fs::read(&self.0).expect("it was written");
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(4), word(20)), (0xa1b2_c3d4, 0x0004_0002, 1), "pcap 2.4 with Ethernet");
        let (mut at, mut frames) = (24, Vec::new());
        while at < file.len() {
            let time = Duration::from_secs(word(at).into()) + Duration::from_micros(word(at + 4).into());
            let length = word(at + 8) as usize;
            assert_eq!(word(at + 12) as usize, length, "nothing is cut off");
            frames.push(ReadFrame::read(&file[at + 16..at + 16 + length], time));
            at += 16 + length;
        }
        frames
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A frame as another implementation reads it.
#[derive(Debug)]
pub(crate) struct ReadFrame {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    /// `S`, `F`, `R`, `P` and `.` as tcpdump prints them.
    pub(crate) flags: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) time: Duration,
}

impl ReadFrame {
    fn read(frame: &[u8], time: Duration) -> Self {
        let packet = SlicedPacket::from_ethernet(frame).expect("a valid frame");
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("a segment of TCP") };
        let (from, to, checksum) = match packet.net.expect("a packet of IP") {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
                let checksum = tcp.calc_checksum_ipv4(header.source(), header.destination());
                (header.source_addr().into(), header.destination_addr().into(), checksum)
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                let checksum = tcp.calc_checksum_ipv6(header.source, header.destination);
                (ip.header().source_addr().into(), ip.header().destination_addr().into(), checksum)
            }
            NetSlice::Arp(_) => panic!("a packet of IP"),
        };
        assert_eq!(checksum, Ok(tcp.checksum()));
        let flags = [(tcp.syn(), 'S'), (tcp.fin(), 'F'), (tcp.rst(), 'R'), (tcp.psh(), 'P'), (tcp.ack(), '.')];
        Self {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledged: tcp.acknowledgment_number(),
            flags: flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect(),
            payload: tcp.payload().to_vec(),
            time,
        }
    }
}
