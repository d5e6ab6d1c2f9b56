//! Test vectors of the field: QPACK as other encoders write it, with a table of 0 bytes and with dynamic ones.
//!
//! They lie beside the repository, in `../shared/vectors`; without them the tests print a line and pass.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use tidegate::http3::qpack::{SectionState, TableDecoder, TableEncoder};
use tidegate::http3::{Connection, Limits, qpack};

use crate::support;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The folder of the vectors, if it is there.
fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = ["../shared", "../../shared"].map(|shared| root.join(shared).join("vectors/qifs"));
    let folder = found.into_iter().find(|folder| folder.is_dir());
    if folder.is_none() {
        assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "vectors/qifs is missing");
        println!("skipped: vectors/qifs is missing");
    }
    folder
}

/// The sections of a QIF.
fn sections(text: &[u8]) -> Vec<Fields> {
    let mut sections = vec![Fields::new()];
    for line in text.split(|byte| *byte == b'\n') {
        let last = sections.last_mut().expect("one at least");
        match line.iter().position(|byte| *byte == b'\t') {
            Some(tab) => last.push((line[..tab].to_vec(), line[tab + 1..].to_vec())),
            None if line.is_empty() && !last.is_empty() => sections.push(Fields::new()),
            None => {}
        }
    }
    sections.retain(|section| !section.is_empty());
    sections
}

/// The chunks of an encoded file: numbers of streams, and bytes.
fn chunks(mut file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut chunks = Vec::new();
    while let Some((head, rest)) = file.split_first_chunk::<12>() {
        let stream = u64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        let length = u32::from_be_bytes(head[8..].try_into().expect("four bytes")) as usize;
        let (bytes, rest) = rest.split_at(length);
        chunks.push((stream, bytes.to_vec()));
        file = rest;
    }
    chunks
}

fn decoded(section: &[u8]) -> Result<Fields, qpack::QpackError> {
    let mut fields = Fields::new();
    qpack::decode(section, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

#[test]
fn sections_of_other_encoders_are_decoded_and_ours_are_as_short() {
    let Some(folder) = folder() else { return };
    let mut count = 0;
    for name in ["fb-req", "fb-resp", "netbsd"] {
        let expected = sections(&fs::read(folder.join(format!("{name}.qif"))).expect("a file"));
        for encoder in ["ls-qpack", "nghttp3"] {
            let path = folder.join(format!("encoded/{encoder}-{name}.0.0.0"));
            let mut blocks = chunks(&fs::read(path).expect("a file"));
            blocks.retain(|(stream, _)| *stream != 0);
            blocks.sort();
            assert_eq!(blocks.len(), expected.len(), "{encoder} {name}");
            for ((stream, block), fields) in blocks.iter().zip(&expected) {
                assert_eq!(decoded(block).as_ref(), Ok(fields), "{encoder} {name} {stream}");
                let mut ours = Vec::new();
                qpack::encode_prefix(&mut ours);
                fields.iter().for_each(|(name, value)| qpack::encode(name, value, false, &mut ours));
                assert_eq!(decoded(&ours).as_ref(), Ok(fields), "{name} {stream}");
                assert!(ours.len() <= block.len(), "{name} {stream}: {} bytes, {encoder} {}", ours.len(), block.len());
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} sections");
    println!("{count} sections");
}

#[test]
fn broken_sections_and_instructions_are_refused() {
    let Some(folder) = folder() else { return };
    for number in 1..=12 {
        let file = fs::read(folder.join(format!("errors/err{number}"))).expect("a file");
        let is_refused = chunks(&file).iter().any(|(stream, bytes)| match stream {
            0 => {
                let mut connection = Connection::server(support::config(Limits::default()));
                let wire = [&[2][..], bytes].concat();
                connection.handle_uni(2, &wire, Instant::now()).is_err()
            }
            // Two of them can be decoded, and are no head.
            _ => {
                let mut stream = support::server(Limits::default());
                decoded(bytes).is_err() || stream.decode(&support::frame(support::HEADERS, bytes)).is_err()
            }
        });
        assert!(is_refused, "err{number}");
    }
}

/// Rewrites a section, and decodes it.
fn rewritten(table: &mut TableDecoder, stream: u64, section: &[u8]) -> Result<Fields, qpack::QpackError> {
    let mut plain = Vec::new();
    table.rewrite(stream, section, u32::MAX, &mut plain)?;
    decoded(&plain)
}

#[test]
fn sections_of_another_encoder_with_a_dynamic_table_are_decoded() {
    let Some(folder) = folder() else { return };
    for name in ["fb-req", "fb-resp", "netbsd"] {
        let expected = sections(&fs::read(folder.join(format!("{name}.qif"))).expect("a file"));
        for capacity in [256, 4096] {
            let file = fs::read(folder.join(format!("encoded/nghttp3-{name}.{capacity}.100.1"))).expect("a file");
            let mut table = TableDecoder::new(capacity, 100);
            // The encoders set no capacity: it is that of the file.
            let mut setting = vec![0x3f];
            let mut rest = capacity - 31;
            while rest >= 128 {
                setting.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            setting.push(rest as u8);
            table.handle_instructions(&setting).expect("the capacity");
            let (mut waiting, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
            for (stream, bytes) in chunks(&file) {
                match stream {
                    0 => _ = table.handle_instructions(&bytes).expect("instructions"),
                    _ => match table.check(stream, &bytes).expect("a section") {
                        SectionState::Blocked => waiting.push((stream, bytes)),
                        _ => _ = seen.insert(stream, rewritten(&mut table, stream, &bytes).expect("a section")),
                    },
                }
                for stream in table.take_unblocked() {
                    let place = waiting.iter().position(|(waits, _)| *waits == stream).expect("it waits");
                    let (_, bytes) = waiting.remove(place);
                    seen.insert(stream, rewritten(&mut table, stream, &bytes).expect("a section"));
                }
            }
            assert!(waiting.is_empty() && table.poll_instructions().is_some());
            assert_eq!(seen.into_values().collect::<Vec<_>>(), expected, "{name} {capacity}");
        }
    }
}

/// Our encoder and our decoder, which answers at once or only after so many sections. Returns the bytes of both streams.
fn encoded_by_us(heads: &[Fields], capacity: u32, blocked: u32, delay: usize) -> usize {
    let mut encoder = TableEncoder::new(capacity.into(), blocked.into(), capacity);
    let (mut decoder, mut bytes) = (TableDecoder::new(capacity, blocked), 0);
    for (number, fields) in heads.iter().enumerate() {
        let stream = 4 * number as u64;
        let (mut plain, mut section) = (Vec::new(), Vec::new());
        qpack::encode_prefix(&mut plain);
        fields.iter().for_each(|(name, value)| qpack::encode(name, value, false, &mut plain));
        encoder.encode(stream, &plain, true, &mut section);
        if let Some(instructions) = encoder.poll_instructions() {
            bytes += instructions.len();
            if blocked > 0 {
                // The section comes before its entries.
                decoder.check(stream, &section).expect("as many as may wait");
            }
            decoder.handle_instructions(&instructions).expect("instructions of ours");
            decoder.take_unblocked();
        }
        assert_ne!(decoder.check(stream, &section), Ok(SectionState::Blocked));
        assert_eq!(rewritten(&mut decoder, stream, &section).as_ref(), Ok(fields), "{capacity} {blocked} {number}");
        bytes += section.len();
        if number % (delay + 1) == delay
            && let Some(answers) = decoder.poll_instructions()
        {
            encoder.handle_instructions(&answers).expect("answers of ours");
        }
    }
    bytes
}

#[test]
fn sections_of_ours_with_a_dynamic_table_are_decoded() {
    let Some(folder) = folder() else { return };
    for name in ["fb-req", "fb-resp", "netbsd"] {
        let heads = sections(&fs::read(folder.join(format!("{name}.qif"))).expect("a file"));
        let without = encoded_by_us(&heads, 0, 0, 0);
        for (capacity, blocked) in [(256, 0), (256, 100), (512, 0), (512, 100), (4096, 0), (4096, 100)] {
            let [now, later] = [0, 3].map(|delay| encoded_by_us(&heads, capacity, blocked, delay));
            println!(
                "{name} {capacity} {blocked}: {} bytes a section, {} with late answers, {} without a table",
                now / heads.len(),
                later / heads.len(),
                without / heads.len()
            );
            assert!(now < without, "{name} {capacity} {blocked}: {now} bytes, {without} without a table");
        }
    }
}

#[test]
fn broken_sections_and_instructions_are_refused_with_a_table() {
    let Some(folder) = folder() else { return };
    for number in 1..=12 {
        let file = fs::read(folder.join(format!("errors/err{number}"))).expect("a file");
        let mut table = TableDecoder::new(4096, 100);
        let is_refused = chunks(&file).iter().any(|(stream, bytes)| match stream {
            0 => table.handle_instructions(bytes).is_err(),
            _ => match table.check(*stream, bytes) {
                Ok(SectionState::Blocked) => false,
                Ok(SectionState::Incomplete) | Err(_) => true,
                Ok(_) => rewritten(&mut table, *stream, bytes).is_err(),
            },
        });
        // A section that waits for ever ends by the deadline of its head.
        let waits = chunks(&file)
            .iter()
            .any(|(stream, bytes)| *stream != 0 && table.check(*stream, bytes) == Ok(SectionState::Blocked));
        println!("err{number}: refused {is_refused}, waits {waits}");
        assert!(is_refused || waits || is_no_head(&mut table, &file), "err{number}");
    }
}

/// Whether a section can be decoded, and is no head.
fn is_no_head(table: &mut TableDecoder, file: &[u8]) -> bool {
    chunks(file).iter().filter(|(stream, _)| *stream != 0).any(|(stream, bytes)| {
        let mut plain = Vec::new();
        let is_whole = table.rewrite(*stream, bytes, u32::MAX, &mut plain);
        let mut server = support::server(Limits::default());
        is_whole.is_err() || server.decode(&support::frame(support::HEADERS, &plain)).is_err()
    })
}

/// ls-qpack, by `interop/qpack.py`, which sets `TIDEGATE_PYLSQPACK` to a Python that has it.
struct LsQpack {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl LsQpack {
    fn start() -> Option<Self> {
        let Some(python) = std::env::var_os("TIDEGATE_PYLSQPACK") else {
            println!("skipped: TIDEGATE_PYLSQPACK is not set");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/qpack.py");
        let child = Command::new(python).arg(script).arg("--peer").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a Python");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Some(Self { child, answers })
    }

    fn ask(&mut self, command: &str) -> Vec<String> {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{command}").expect("it lives");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "ls-qpack refuses {command:.100}");
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for LsQpack {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if digits.is_empty() { "-".to_owned() } else { digits }
}

fn from_hexadecimal(text: &str) -> Vec<u8> {
    let digits = if text == "-" { "" } else { text };
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("digits"))
        .collect()
}

fn in_hexadecimal(fields: &Fields) -> String {
    let field = |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", hexadecimal(name), hexadecimal(value));
    fields.iter().map(field).collect::<Vec<_>>().join(",").replace("=-", "=")
}

#[test]
fn ls_qpack_reads_and_writes_the_same_heads() {
    let Some(folder) = folder() else { return };
    for name in ["fb-req", "fb-resp", "netbsd"] {
        let heads = sections(&fs::read(folder.join(format!("{name}.qif"))).expect("a file"));
        for (capacity, blocked) in [(256, 0), (256, 100), (512, 0), (512, 100), (4096, 0), (4096, 100)] {
            let Some(mut peer) = LsQpack::start() else { return };
            let ours = read_by_ls_qpack(&mut peer, &heads, capacity, blocked);
            let theirs = written_by_ls_qpack(&mut peer, &heads, capacity, blocked);
            println!(
                "{name} {capacity} {blocked}: {ours} bytes of ours, {theirs} of ls-qpack, of {} sections",
                heads.len()
            );
        }
    }
}

/// Our encoder, and the decoder of ls-qpack, which gets a third of the sections before their entries.
fn read_by_ls_qpack(peer: &mut LsQpack, heads: &[Fields], capacity: u32, blocked: u32) -> usize {
    peer.ask(&format!("decoder {capacity} {blocked}"));
    let (mut encoder, mut bytes) = (TableEncoder::new(capacity.into(), blocked.into(), capacity), 0);
    for (number, fields) in heads.iter().enumerate() {
        let (stream, mut plain, mut section) = (4 * number as u64, Vec::new(), Vec::new());
        qpack::encode_prefix(&mut plain);
        fields.iter().for_each(|(name, value)| qpack::encode(name, value, false, &mut plain));
        encoder.encode(stream, &plain, true, &mut section);
        let instructions = encoder.poll_instructions().unwrap_or_default();
        bytes += instructions.len() + section.len();
        let send = format!("section {stream} {}", hexadecimal(&section));
        let mut answer = if number % 3 == 0 && blocked > 0 { peer.ask(&send) } else { Vec::new() };
        if !instructions.is_empty() {
            peer.ask(&format!("instructions {}", hexadecimal(&instructions)));
        }
        match answer.first().map(String::as_str) {
            None => answer = peer.ask(&send),
            Some("blocked") => answer = peer.ask(&format!("resume {stream}")),
            Some(_) => {}
        }
        assert_eq!(answer[1], in_hexadecimal(fields), "{capacity} {blocked} {number}");
        encoder.handle_instructions(&from_hexadecimal(&answer[0])).expect("answers");
    }
    bytes
}

/// The encoder of ls-qpack, and our decoder.
fn written_by_ls_qpack(peer: &mut LsQpack, heads: &[Fields], capacity: u32, blocked: u32) -> usize {
    let begin = from_hexadecimal(&peer.ask(&format!("encoder {capacity} {blocked}"))[0]);
    let (mut decoder, mut bytes) = (TableDecoder::new(capacity, blocked), begin.len());
    decoder.handle_instructions(&begin).expect("a capacity");
    for (number, fields) in heads.iter().enumerate() {
        let stream = 4 * number as u64;
        let encoded = peer.ask(&format!("encode {stream} {}", in_hexadecimal(fields)));
        let (instructions, section) = (from_hexadecimal(&encoded[0]), from_hexadecimal(&encoded[1]));
        bytes += instructions.len() + section.len();
        if number % 3 == 0 && blocked > 0 {
            decoder.check(stream, &section).expect("as many as may wait");
        }
        decoder.handle_instructions(&instructions).expect("instructions");
        decoder.take_unblocked();
        assert_ne!(decoder.check(stream, &section), Ok(SectionState::Blocked), "{capacity} {blocked} {number}");
        assert_eq!(rewritten(&mut decoder, stream, &section).as_ref(), Ok(fields), "{capacity} {blocked} {number}");
        if let Some(answers) = decoder.poll_instructions() {
            peer.ask(&format!("answers {}", hexadecimal(&answers)));
        }
    }
    bytes
}
