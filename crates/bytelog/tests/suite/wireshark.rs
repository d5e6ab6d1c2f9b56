//! Wireshark's opinion of a capture file: its program for terminals, tshark, reassembles the streams.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use tidegate::Over;
use tidegate::bytelog::{ByteLog, Role};
use tidegate::framing::Lines;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::{Embedded, Random};

use crate::support::{Echo, TempFile};

/// The output of tshark for a file; `None` if there is no tshark. `TIDEGATE_TOOLS_REQUIRED=1` requires it.
fn tshark(file: &Path, arguments: &[&str]) -> Option<String> {
    let run = Command::new("tshark").arg("-r").arg(file).args(arguments).output();
    match run {
        Ok(Output { status, stdout, stderr }) => {
            assert!(status.success(), "tshark: {}", String::from_utf8_lossy(&stderr));
            Some(String::from_utf8(stdout).expect("text"))
        }
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
            assert!(!required, "tshark is required: {error}");
            println!("skipped: there is no tshark here: {error}");
            None
        }
    }
}

/// The bytes of both directions of a stream, as tshark reassembles them: those of the client, those of the server.
fn follow(file: &Path, stream: usize) -> Option<[Vec<u8>; 2]> {
    let text = tshark(file, &["-q", "-z", &format!("follow,tcp,raw,{stream}")])?;
    let mut sides = [Vec::new(), Vec::new()];
    // After six lines of a heading, hex digits, those of the server behind a tab; then a line.
    for line in text.lines().skip(6).take_while(|line| !line.starts_with('=')) {
        let side = &mut sides[usize::from(line.starts_with('\t'))];
        let digits = line.trim().as_bytes().chunks(2);
        side.extend(digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()));
    }
    Some(sides)
}

#[test]
fn tshark_reassembles_the_plain_bytes_of_every_connection_and_finds_no_error() {
    let file = TempFile::new();
    let capture = file.capture();
    let seed = tidegate_testkit::seed();
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random::new(seed);
    let talks: Vec<_> = (0..6_u16)
        .map(|number| {
            let [local, peer] = if number % 2 == 0 {
                [SocketAddr::from(([192, 0, 2, 1], 80)), SocketAddr::from(([198, 51, 100, 7], 5_000 + number))]
            } else {
                ["[2001:db8::1]:80", "[2001:db8::7]:5001"].map(|text| text.parse().unwrap())
            };
            let sink = capture.connection(Role::Server, Some(local), Some(peer));
            let stack = Over::new(ToyTls::server(9), Over::new(ByteLog::new(sink), Lines::new()));
            let mut pipe = Embedded::new(stack, Echo);
            let lines: Vec<u8> = (0..20)
                .flat_map(|_| {
                    let length = random.below(if number == 0 { 8_000 } else { 40 });
                    let line = random.bytes(length);
                    line.into_iter().map(|byte| byte | 0x80).chain([b'\n']).collect::<Vec<_>>()
                })
                .collect();
            let wire = ToyTls::client_wire(9, &lines, 100);
            for piece in wire.chunks(1 + random.below(3_000)) {
                pipe.receive(piece);
            }
            pipe.receive_fin();
            assert_eq!(ToyTls::decode_wire(9, &pipe.take_written()), (lines.clone(), true));
            lines
        })
        .collect();
    assert_eq!(capture.finish().unwrap().dropped, 0);
    for (stream, lines) in talks.iter().enumerate() {
        let Some(sides) = follow(&file.0, stream) else { return };
        assert!(sides == [lines.clone(), lines.clone()], "stream {stream}, seed {seed}");
    }
    let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
    let wrong = "tcp.checksum.status != 1 or ip.checksum.status == 0 or tcp.analysis.lost_segment or \
                 tcp.analysis.retransmission or tcp.analysis.out_of_order or tcp.analysis.ack_lost_segment or _ws.malformed";
    let found = tshark(&file.0, &[&checks[..], &["-Y", wrong]].concat()).unwrap();
    assert_eq!(found, "", "tshark finds errors");
}
