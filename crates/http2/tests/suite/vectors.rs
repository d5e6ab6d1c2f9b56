//! Test vectors of the field: HPACK as other encoders write it, and frames with their errors.
//!
//! They lie beside the repository, in `../shared/vectors`; without them the tests print a line and pass.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate::http2::hpack::Decoder;
use tidegate::http2::{ErrorCode, Limits};

use crate::support::{self, Peer, SETTINGS, frame};

/// The files of a folder, in their order. `None` if there is no such folder.
fn files(folder: &str) -> Option<Vec<(PathBuf, Value)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = ["../shared", "../../shared"].map(|shared| root.join(shared).join("vectors").join(folder));
    let Some(folder) = found.iter().find(|folder| folder.is_dir()) else {
        assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "{folder} is missing");
        println!("skipped: {folder} is missing");
        return None;
    };
    let mut paths: Vec<_> = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    // One file of the collection is empty.
    paths.retain(|path| path.metadata().is_ok_and(|file| file.len() > 0));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a file");
        (path, serde_json::from_str(&text).expect("JSON"))
    };
    Some(paths.into_iter().map(read).collect())
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("a text").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("hexadecimal") as u8;
    hex.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn blocks_of_other_encoders_are_decoded() {
    for folder in ["hpack/go-hpack", "hpack/nghttp2-change-table-size"] {
        let Some(files) = files(folder) else { return };
        let mut blocks = 0;
        for (path, story) in &files {
            let cases = story["cases"].as_array().expect("cases");
            let largest = cases.iter().filter_map(|case| case["header_table_size"].as_u64()).max().unwrap_or(4096);
            let mut decoder = Decoder::new(u32::try_from(largest).expect("a size"));
            for case in cases {
                let mut fields = Vec::new();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                decoder
                    .decode(&bytes(&case["wire"]), &mut Vec::new(), |name, value| {
                        fields.push((text(name), text(value)));
                    })
                    .unwrap_or_else(|error| panic!("{}: {}: {error}", path.display(), case["seqno"]));
                let expected: Vec<_> = case["headers"]
                    .as_array()
                    .expect("headers")
                    .iter()
                    .map(|field| {
                        let (name, value) = field.as_object().expect("a field").iter().next().expect("one");
                        (name.clone(), value.as_str().expect("a text").to_owned())
                    })
                    .collect();
                assert_eq!(fields, expected, "{}: {}", path.display(), case["seqno"]);
                blocks += 1;
            }
        }
        println!("{folder}: {blocks} blocks");
        assert!(blocks > 100);
    }
}

#[test]
fn frames_with_an_error_end_the_connection_or_their_stream_with_its_code() {
    let Some(files) = files("http2-frames/error") else { return };
    for (path, case) in files {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let wire = bytes(&case["wire"]);
        let codes: Vec<_> = case["error"].as_array().expect("codes").iter().filter_map(Value::as_u64).collect();
        let mut peer = Peer::new(Limits::default());
        // The streams that the frames concern are open.
        let open =
            [peer.request(1, "POST", "/echo", &[], false), peer.request(3, "POST", "/echo", &[], false)].concat();
        peer.send(&open);
        peer.send(&wire);
        let frames = peer.frames();
        let found: Vec<_> = frames
            .iter()
            .filter_map(|frame| match frame.kind {
                support::RST_STREAM => Some(support::error_code(frame).0),
                support::GOAWAY => Some(u32::from_be_bytes(frame.content[4..8].try_into().expect("four bytes"))),
                _ => None,
            })
            .map(u64::from)
            .collect();
        assert_eq!(found.len(), 1, "{name}: {frames:?}");
        // A server refuses every PUSH_PROMISE, whatever is wrong with it.
        let is_expected = codes.contains(&found[0]) || name.starts_with("push_promise");
        assert!(is_expected, "{name}: {:?} in place of {codes:?}", ErrorCode(found[0] as u32));
    }
}

#[test]
fn valid_frames_are_accepted() {
    for folder in ["data", "goaway", "ping", "priority", "rst_stream", "settings", "window_update"] {
        let Some(files) = files(&format!("http2-frames/{folder}")) else { return };
        for (path, case) in files {
            let mut wire = bytes(&case["wire"]);
            // The frames concern streams of both sides; here they concern one that the peer has opened.
            if wire[5..9] != [0; 4] {
                wire[5..9].copy_from_slice(&[0, 0, 0, 9]);
            }
            let mut peer = Peer::new(Limits::default());
            let open = peer.request(9, "POST", "/echo", &[], false);
            peer.send(&open);
            peer.send(&wire);
            peer.send(&frame(SETTINGS, 0, 0, &[]));
            let frames = peer.frames();
            assert!(frames.iter().all(|frame| frame.kind != support::GOAWAY), "{}: {frames:?}", path.display());
            peer.assert_open();
        }
    }
}
