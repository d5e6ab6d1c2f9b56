//! One application over HTTP/1.1 and HTTP/2 on the same port, on both backends, with clients of the field.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tidegate::Backend;
use tidegate::ServerHandle;
use tidegate::http::{Body, Request, Router, Server};

fn start(backend: Backend) -> Option<ServerHandle> {
    let router = || {
        Router::new()
            .get("/", |request: Request| format!("{:?}", request.version()))
            .get("/later", async || {
                tidegate::task::sleep(Duration::from_millis(1)).await;
                "later"
            })
            .post("/length", async |mut request: Request| {
                let mut length = 0;
                while let Some(piece) = request.body_mut().next().await {
                    length += piece.map_or(0, |piece| piece.len());
                }
                length.to_string()
            })
            .post("/echo", async |request: Request| -> Body { request.into_body() })
    };
    match Server::bind("127.0.0.1:0").expect("an address").backend(backend).loops(1).start(router) {
        Ok(server) => Some(server),
        Err(error) if backend == Backend::Uring => {
            println!("skipped: io_uring: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn each_backend(test: impl Fn(&ServerHandle)) {
    for backend in [Backend::Epoll, Backend::Uring] {
        if let Some(server) = start(backend) {
            test(&server);
            server.drain(Duration::from_secs(5));
        }
    }
}

/// The output of a tool, unless it is missing.
fn output(tool: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(output.stdout)
        }
        Err(error) => {
            assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "{tool}: {error}");
            println!("skipped: {tool} is missing");
            None
        }
    }
}

#[test]
fn curl_gets_the_same_by_each_version() {
    each_backend(|server| {
        let url = format!("http://{}", server.address());
        for (version, expected) in [("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2.0")] {
            let Some(body) = output("curl", &["-sS", version, &url]) else { return };
            assert_eq!(String::from_utf8_lossy(&body), expected);
            let later = output("curl", &["-sS", version, &format!("{url}/later")]);
            assert_eq!(later.as_deref(), Some(&b"later"[..]));
        }
    });
}

#[test]
fn bodies_stream_both_ways() {
    let body: Vec<u8> = (0..3_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = std::env::temp_dir().join(format!("tidegate-http2-{}", std::process::id()));
    std::fs::write(&file, &body).expect("a file");
    each_backend(|server| {
        let data = format!("@{}", file.display());
        let post = |path: &str| {
            let url = format!("http://{}{path}", server.address());
            output("curl", &["-sS", "--http2-prior-knowledge", "--data-binary", &data, &url])
        };
        let Some(length) = post("/length") else { return };
        assert_eq!(length, body.len().to_string().as_bytes());
        assert!(post("/echo").expect("curl is there") == body, "the body comes back as it was sent");
    });
    std::fs::remove_file(&file).expect("the file is there");
}

#[test]
fn h2load_gets_all_responses() {
    each_backend(|server| {
        let url = format!("http://{}/", server.address());
        let Some(report) = output("h2load", &["-n", "2000", "-c", "4", "-m", "50", &url]) else { return };
        let report = String::from_utf8_lossy(&report).into_owned();
        assert!(report.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
    });
}

#[test]
fn a_connection_without_an_end_of_its_preface_is_of_no_version() {
    each_backend(|server| {
        let mut peer = TcpStream::connect(server.address().ip().expect("an IP address")).expect("a connection");
        peer.write_all(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").expect("it is open");
        let mut answer = String::new();
        peer.read_to_string(&mut answer).expect("it closes");
        assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    });
}
