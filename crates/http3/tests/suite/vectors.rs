//! Test vectors of the field: QPACK as other encoders write it with a table of 0 bytes.
//!
//! They lie beside the repository, in `../shared/vectors`; without them the tests print a line and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
