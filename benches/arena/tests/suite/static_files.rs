//! Files with precompressed variants: this server's responses equal those of nginx as the comparison configures it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

/// The files and their variants, which are written once for all tests.
pub(crate) static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-variants");
    arena::files::write(&folder).unwrap();
    arena::files::write_variants(&folder).unwrap();
    folder
});

/// A response: its status, its fields with names in lower case, its body.
struct Answer {
    status: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn get(address: SocketAddr, target: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n{fields}\r\n").unwrap();
    let mut wire = Vec::new();
    stream.read_to_end(&mut wire).unwrap();
    let end = wire.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(wire[..end].to_vec()).unwrap();
    let (status, lines) = head.split_once("\r\n").expect("fields");
    let fields = lines.lines().filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Answer { status: status.to_owned(), fields, body: wire[end + 4..].to_vec() }
}

/// Asserts the requirements of the workload on a server that has the folder. `codings` are those for which it has
/// variants.
fn check(address: SocketAddr, codings: &[&str]) {
    for (name, length) in arena::files::FILES {
        let target = format!("/static/{name}");
        let content = arena::files::content(name, *length);
        let plain = get(address, &target, "");
        assert!(plain.status.contains(" 200 ") && plain.body == content, "{name}: {}", plain.status);
        assert_eq!(plain.field("content-encoding"), None, "{name}");
        let kind = plain.field("content-type").expect("a type").split(';').next().map(str::to_owned);
        for coding in codings {
            let answer = get(address, &target, &format!("Accept-Encoding: {coding}\r\n"));
            let sent = answer.field("content-encoding");
            let is_text = [".css", ".js", ".html", ".svg", ".json"].iter().any(|suffix| name.ends_with(suffix));
            assert_eq!(sent, is_text.then_some(*coding), "{name}");
            assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()), "{name}");
            assert_eq!(answer.field("content-type").and_then(|kind| kind.split(';').next()), kind.as_deref(), "{name}");
            let decoded = if is_text { decoded(coding, &answer.body) } else { answer.body };
            assert!(decoded == content, "{name} in {coding}");
        }
    }
    assert!(get(address, "/static/nothing.css", "").status.contains(" 404 "));
    assert!(get(address, "/pipelined", "").status.contains(" 404 "));
}

fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut plain),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
    }
    .expect("it is complete");
    plain
}

#[test]
fn tidegate_sends_precompressed_variants() {
    let options = arena::Options { loops: Some(1), ..arena::Options::default() };
    let server = arena::start("127.0.0.1:0", &FOLDER, options).unwrap();
    check(server.address().ip().unwrap(), &["br", "gzip"]);
    // Both are accepted: the client's choice.
    let answer = get(server.address().ip().unwrap(), "/static/app.js", "Accept-Encoding: br;q=1, gzip;q=0.8\r\n");
    assert_eq!(answer.field("content-encoding"), Some("br"));
    server.drain(Duration::ZERO);
}

/// A server that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nginx_sends_the_same() {
    let start = Path::new(env!("CARGO_MANIFEST_DIR")).join("nginx/start");
    let has_nginx =
        ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"].iter().any(|at| Path::new(at).exists());
    if !has_nginx {
        let is_required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
        assert!(!is_required, "nginx is missing (Debian: nginx-light)");
        println!("skipped: nginx is missing (Debian: nginx-light)");
        return;
    }
    for opens_files in ["0", "1"] {
        let mut command = Command::new(&start);
        command.arg(&*FOLDER).env("ARENA_OPEN_FILES", opens_files).stdout(Stdio::piped());
        let mut nginx = Ended(command.spawn().expect("it starts"));
        let mut line = String::new();
        BufReader::new(nginx.0.stdout.take().expect("its output")).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect(&line).parse().expect("an address");
        // Debian has the module for brotli in a package of its own.
        check(address, &["gzip"]);
    }
}
