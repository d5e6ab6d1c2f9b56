//! The request cases of llhttp, the parser of Node.js, as a second opinion on what to accept.
//!
//! They lie beside the repository, in `../shared/vectors/llhttp`, and are left out with a line where they are not.
//! llhttp parses messages one by one and does not ask for `Host`, so a `Host` is put into cases that have none. It
//! knows many protocols and leaves to its user what this crate decides; [`DEVIATIONS`] says where the two differ,
//! and why.

mod support;

use std::path::{Path, PathBuf};

use support::{Seen, seen};

/// Where our answer differs: file, case, and the reason.
const DEVIATIONS: &[(&str, &str, &str)] = &[
    ("invalid", "HTTP protocol and ANNOUNCE method", METHODS),
    ("invalid", "Invalid method", METHODS),
    ("method", "SOURCE request with ICE", PROTOCOLS),
    ("method", "OPTIONS request with RTSP", PROTOCOLS),
    ("method", "ANNOUNCE request with RTSP", PROTOCOLS),
    ("sample", "No HTTP version", "HTTP/0.9 is not spoken here"),
    ("transfer-encoding", "POST with `chunked` as last transfer-encoding", TARGETS),
    ("transfer-encoding", "POST with `chunked` as last transfer-encoding (multiple headers)", TARGETS),
    ("transfer-encoding", "Trailing headers", "Content-Type is no trailer (RFC 9110 §6.5.1)"),
    ("uri", "Fragment in URI", TARGETS),
    ("uri", "`host:port` and basic auth", "user information in an http target is an error (RFC 9110 §4.2.4)"),
];

const METHODS: &str = "any token is a method; an application answers those that it does not know";
const PROTOCOLS: &str = "RTSP and ICE are other protocols";
const TARGETS: &str = "a request target has no fragment (RFC 9112 §3.2)";

#[test]
fn requests_are_accepted_and_refused_as_by_llhttp() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/llhttp/test/request");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
        assert!(!required, "there is no {}", folder.display());
        return println!("skipped: there is no {}", folder.display());
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    let (mut count, mut different, mut used) = (0, Vec::new(), Vec::new());
    for file in files {
        let name = file.file_stem().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a readable file");
        for case in cases(&text) {
            count += 1;
            let seen = seen(&with_host(&case.wire));
            if is_refused(&seen, case.is_refused) == case.is_refused {
                continue;
            }
            match DEVIATIONS.iter().position(|(file, title, _)| *file == name && *title == case.title) {
                Some(known) => used.push(known),
                None => different.push(format!(
                    "{name}: {:?}: llhttp {}, we say {:?} to {:?}",
                    case.title,
                    if case.is_refused { "refuses" } else { "accepts" },
                    seen.error,
                    String::from_utf8_lossy(&case.wire)
                )),
            }
        }
    }
    assert!(different.is_empty(), "{} of {count} cases differ:\n{}", different.len(), different.join("\n"));
    let unused: Vec<_> = (0..DEVIATIONS.len()).filter(|index| !used.contains(index)).collect();
    assert!(
        unused.is_empty(),
        "no longer deviations: {:?}",
        unused.iter().map(|&at| DEVIATIONS[at]).collect::<Vec<_>>()
    );
    println!("{count} cases, {} of them deviations with a reason", used.len());
}

struct Case {
    title: String,
    wire: Vec<u8>,
    is_refused: bool,
}

/// The cases for strict parsers: a heading, a comment with the mode, the bytes, and the log of llhttp.
fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for section in text.split("\n##").skip(1) {
        let title = section.trim_start_matches('#').lines().next().unwrap_or_default().trim().to_owned();
        let strict = ["\"type\": \"request\"", "\"type\":\"request\"", "\"type\": \"request-finish\""];
        let is_strict = strict.iter().any(|mode| section.contains(mode)) && !section.contains("\"pause\"");
        let (Some(bytes), Some(log)) = (fenced(section, "http"), fenced(section, "log")) else { continue };
        if is_strict {
            // Pausing for an upgrade is how llhttp says that another protocol begins.
            let is_refused = log.lines().any(|line| line.contains("error code=") && !line.contains("code=22"));
            cases.push(Case { title, wire: unescape(bytes), is_refused });
        }
    }
    cases
}

fn fenced<'t>(section: &'t str, language: &str) -> Option<&'t str> {
    let (_, rest) = section.split_once(&format!("```{language}\n"))?;
    rest.split_once("\n```").map(|(block, _)| block)
}

/// Line ends are CR LF, those that are escaped by a backslash are none, and there are a few escapes.
fn unescape(block: &str) -> Vec<u8> {
    let text = block.replace("\\\n", "").replace('\n', "\r\n");
    let text = text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("\\f", "\x0c");
    let mut wire = Vec::new();
    let mut parts = text.split("\\x");
    wire.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
        wire.push(u8::from_str_radix(&part[..digits], 16).expect("two hexadecimal digits"));
        wire.extend_from_slice(&part.as_bytes()[digits..]);
    }
    wire
}

fn with_host(wire: &[u8]) -> Vec<u8> {
    let text: String = wire.iter().map(|&byte| byte as char).collect();
    let text = if text.to_ascii_lowercase().contains("\nhost") {
        text
    } else {
        text.replace(" HTTP/1.1\r\n", " HTTP/1.1\r\nHost: a\r\n")
    };
    text.chars().map(|character| character as u8).collect()
}

/// llhttp refuses at the first wrong byte, and some cases end there; this codec waits for the end of the head.
fn is_refused(seen: &Seen, expected: bool) -> bool {
    seen.error.is_some() || (expected && seen.cut_off)
}
