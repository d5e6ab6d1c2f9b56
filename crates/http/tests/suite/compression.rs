//! Content codings of responses and of requests.

use std::io::Write as _;
use std::time::Duration;

use tidegate::compress::{Algorithm, Compressor, DecompressionLimits, Decompressor};
use tidegate::http::{
    Body, BodyError, Config, ContentType, Request, RequestDecompression, Response, ResponseCompression, Router,
    StatusCode,
};
use tidegate::task;
use tidegate_testkit::Embedded;

fn open<S: 'static>(router: Router<S>) -> Embedded<()> {
    let (codec, handler) = Config::new().connections(router)();
    Embedded::new(codec, handler)
}

/// The head and the body of a response, without the chunks.
fn receive(pipe: &mut Embedded<()>) -> (String, Vec<u8>) {
    let answer = pipe.take_written();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let (head, rest) = (String::from_utf8(answer[..end].to_vec()).expect("text"), &answer[end..]);
    if !head.contains("Transfer-Encoding: chunked") {
        return (head, rest.to_vec());
    }
    let body = chunks(rest).concat();
    (head, body)
}

fn plain(algorithm: Algorithm, compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
    decompressor.write(compressed, usize::MAX, &mut plain).expect("it is valid");
    decompressor.finish().expect("it is complete");
    plain
}

fn compressed(algorithm: Algorithm, plain: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    Compressor::new(algorithm.into()).finish_with(plain, &mut compressed).expect("it compresses");
    compressed
}

const CODINGS: [(&str, Algorithm); 3] =
    [("br", Algorithm::Brotli), ("zstd", Algorithm::Zstd), ("gzip", Algorithm::Gzip)];

fn get(path: &str, accept: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: sea\r\nAccept-Encoding: {accept}\r\n\r\n").into_bytes()
}

#[test]
fn bodies_of_all_kinds_are_compressed_with_the_preferred_coding() {
    let text = "the tide rises, the tide falls\n".repeat(200);
    let long = "the tide rises, the tide falls\n".repeat(20_000);
    let path = std::env::temp_dir().join(format!("tidegate-compression-{}", std::process::id()));
    std::fs::File::create(&path).unwrap().write_all(long.as_bytes()).unwrap();
    let (whole, pieces, from_file) = (text.clone(), text.clone(), path.clone());
    let large = long.clone();
    let router = Router::new()
        .get("/text", move || whole.clone())
        .get("/long", move || large.clone())
        .get("/file", move || {
            let file = std::sync::Arc::new(std::fs::File::open(&from_file).unwrap());
            let length = file.metadata().unwrap().len();
            let region = tidegate::codec::FileRegion { file, offset: 0, length };
            Response::new().content_type(ContentType::TEXT).body(region)
        })
        .get("/pieces", move || {
            let pieces = pieces.clone();
            Response::text(Body::produce(async move |writer| {
                for piece in pieces.as_bytes().chunks(1000) {
                    writer.write(piece.to_vec()).await?;
                }
                Ok(())
            }))
        })
        .with(ResponseCompression::new());
    let connections = Config::new().connections(router);
    for (name, algorithm) in CODINGS {
        for (path, expected) in [("/text", &text), ("/pieces", &text), ("/long", &long), ("/file", &long)] {
            let (codec, handler) = connections();
            let mut pipe = Embedded::new(codec, handler);
            pipe.receive(&get(path, &format!("{name}, identity;q=0.1")));
            let (head, body) = receive(&mut pipe);
            assert!(head.contains(&format!("\r\nContent-Encoding: {name}\r\n")), "{path} {head}");
            assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{path} {head}");
            assert!(body.len() < expected.len() / 5, "{path} {name}: {} bytes", body.len());
            assert!(plain(algorithm, &body) == expected.as_bytes(), "{path} {name}");
            // The head of the response to HEAD is the same, as far as it is known.
            pipe.receive(&[b"HEAD", &get(path, name)[3..]].concat());
            let head = String::from_utf8(pipe.take_written()).unwrap();
            assert!(
                head.contains(&format!("\r\nContent-Encoding: {name}\r\n")) && head.ends_with("\r\n\r\n"),
                "{head}"
            );
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn compressed_or_unwanted_bodies_are_left_alone() {
    let text = || "the tide rises, the tide falls\n".repeat(100);
    let with = |name: &'static str, value: &'static str| move || Response::text(text()).header(name, value);
    let router = Router::new()
        .get("/image", move || Response::new().header("Content-Type", "image/png").map(|one| one.body(text())))
        .get("/typeless", move || Response::new().body(text()))
        .get("/coded", with("Content-Encoding", "gzip"))
        .get("/part", move || Response::text(text()).with_status(StatusCode::PARTIAL_CONTENT))
        .get("/kept", with("Cache-Control", "public, no-transform"))
        .get("/short", || "short")
        .get("/etag", with("ETag", "\"7\""))
        .get("/weak", with("ETag", "W/\"7\""))
        .get("/vary", with("Vary", "Origin, Accept-Encoding"))
        .with(ResponseCompression::new());
    let mut pipe = open(router);
    for path in ["/image", "/typeless", "/coded", "/part", "/kept", "/short"] {
        pipe.receive(&get(path, "gzip"));
        let (head, body) = receive(&mut pipe);
        assert!(path == "/coded" || !head.contains("Content-Encoding"), "{path} {head}");
        assert!(body.starts_with(if path == "/short" { b"short" } else { b"the t" }), "{path} {head}");
    }
    for accept in ["", "identity", "gzip;q=0", "deflate;q=0, compress", "*;q=0"] {
        pipe.receive(&get("/etag", accept));
        let (head, body) = receive(&mut pipe);
        assert!(!head.contains("Content-Encoding") && head.contains("\r\nETag: \"7\"\r\n"), "{accept} {head}");
        assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{accept} {head}");
        assert!(body.starts_with(b"the tide"), "{accept}");
    }
    for (path, field) in [
        ("/etag", "\r\nETag: W/\"7\"\r\n"),
        ("/weak", "\r\nETag: W/\"7\"\r\n"),
        ("/vary", "\r\nVary: Origin, Accept-Encoding\r\n"),
    ] {
        pipe.receive(&get(path, "gzip"));
        let (head, _) = receive(&mut pipe);
        assert!(head.contains("\r\nContent-Encoding: gzip\r\n") && head.contains(field), "{head}");
        assert_eq!(head.matches("Vary").count(), 1, "{head}");
    }
}

#[test]
fn a_body_stays_as_it_is_if_any_field_forbids_to_change_it() {
    let text = || "the tide rises, the tide falls\n".repeat(100);
    let with = |fields: &'static [(&'static str, &'static str)]| {
        move || fields.iter().try_fold(Response::text(text()), |made, (name, value)| made.header(name, value))
    };
    let router = Router::new()
        .get("/second-line", with(&[("Cache-Control", "public"), ("Cache-Control", "max-age=5, No-Transform")]))
        .get("/content-digest", with(&[("Content-Digest", "sha-256=:AAAA:")]))
        .get("/repr-digest", with(&[("Repr-Digest", "sha-256=:AAAA:")]))
        .get("/digest", with(&[("Digest", "sha-256=AAAA")]))
        .get("/md5", with(&[("Content-MD5", "AAAA")]))
        .get("/other", with(&[("Cache-Control", "public"), ("Vary", "Origin"), ("Vary", "accept-encoding")]))
        .with(ResponseCompression::new());
    let mut pipe = open(router);
    for path in ["/second-line", "/content-digest", "/repr-digest", "/digest", "/md5"] {
        pipe.receive(&get(path, "gzip"));
        let (head, body) = receive(&mut pipe);
        assert!(!head.contains("Content-Encoding") && body == text().as_bytes(), "{path} {head}");
    }
    pipe.receive(&get("/other", "gzip\r\nCache-Control: max-age=0\r\nCache-Control: no-transform"));
    let (head, body) = receive(&mut pipe);
    assert!(!head.contains("Content-Encoding") && body == text().as_bytes(), "{head}");
    pipe.receive(&get("/other", "gzip\r\nCache-Control: max-age=0"));
    let (head, _) = receive(&mut pipe);
    assert!(head.contains("\r\nContent-Encoding: gzip\r\n"), "{head}");
    assert_eq!(head.matches("Vary").count(), 2, "{head}");
}

#[test]
fn a_part_has_the_vary_of_its_whole() {
    let part = |media: &'static str, range: &'static str| {
        move || {
            let response = Response::new().with_status(StatusCode::PARTIAL_CONTENT).header("Content-Type", media)?;
            let response = if range.is_empty() { response } else { response.header("Content-Range", range)? };
            Ok::<_, tidegate::http::InvalidField>(response.body("tide"))
        }
    };
    let router = Router::new()
        .get("/text", part("text/plain", "bytes 0-3/9000"))
        .get("/parts", part("multipart/byteranges; boundary=a", ""))
        .get("/short", part("text/plain", "bytes 0-3/9"))
        .get("/image", part("image/png", "bytes 0-3/9000"))
        .with(ResponseCompression::new());
    let mut pipe = open(router);
    for (path, varies) in [("/text", true), ("/parts", true), ("/short", false), ("/image", false)] {
        pipe.receive(&get(path, "gzip"));
        let (head, body) = receive(&mut pipe);
        assert_eq!(head.contains("\r\nVary: Accept-Encoding\r\n"), varies, "{path} {head}");
        assert!(!head.contains("Content-Encoding") && body == b"tide", "{path} {head}");
    }
}

#[test]
fn the_output_of_a_producer_leaves_when_it_waits() {
    for (name, algorithm) in CODINGS {
        let mut pipe = open(Router::new().nest("/nested", producing()));
        pipe.receive(&get("/nested", name));
        let answer = pipe.take_written();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
        let mut text = Vec::new();
        for chunk in chunks(&answer[end..]) {
            decompressor.write(&chunk, usize::MAX, &mut text).expect("it is valid");
        }
        assert_eq!(String::from_utf8(text.clone()).unwrap(), "ebb and ".repeat(10), "{name}");
        pipe.advance(Duration::from_secs(5));
        for chunk in chunks(&pipe.take_written()) {
            decompressor.write(&chunk, usize::MAX, &mut text).expect("it is valid");
        }
        decompressor.finish().expect("it is complete");
        assert!(text.ends_with(b"flow"), "{name}");
    }
}

fn producing() -> Router {
    let produce = || {
        Response::text(Body::produce(async |writer| {
            writer.write("ebb and ".repeat(10)).await?;
            task::sleep(Duration::from_secs(5)).await;
            writer.write("flow").await?;
            Ok(())
        }))
    };
    Router::new().get("/", produce).with(ResponseCompression::new())
}

fn chunks(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).expect("a chunk");
        chunks.push(rest[line + 2..line + 2 + length].to_vec());
        rest = &rest[line + 2 + length + 2..];
    }
    chunks
}

fn upload() -> Router {
    Router::new()
        .post("/collected", |request: Request| request.bytes().to_vec())
        .post("/read", async |mut request: Request| {
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                length += piece?.len();
            }
            Ok::<_, BodyError>(length.to_string())
        })
        .with(RequestDecompression::new())
}

fn post(path: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn bodies_of_requests_are_decompressed_at_every_split() {
    let text = b"the tide rises, the tide falls".repeat(10);
    let connections = Config::new().connections(upload());
    for (name, algorithm) in CODINGS {
        let body = compressed(algorithm, &text);
        for path in ["/collected", "/read"] {
            let wire = post(path, name, &body);
            for split in 1..wire.len() {
                let (codec, handler) = connections();
                let mut pipe = Embedded::new(codec, handler);
                pipe.receive(&wire[..split]);
                pipe.receive(&wire[split..]);
                let (head, answer) = receive(&mut pipe);
                assert!(head.starts_with("HTTP/1.1 200 "), "{name} {path} split at {split}: {head}");
                let expected = if path == "/read" { b"300".to_vec() } else { text.clone() };
                assert_eq!(answer, expected, "{name} {path} split at {split}");
            }
        }
    }
    let twice = compressed(Algorithm::Brotli, &compressed(Algorithm::Gzip, &text));
    let mut pipe = open(upload());
    pipe.receive(&post("/collected", "gzip, br", &twice));
    assert_eq!(receive(&mut pipe).1, text);
}

/// A function that passes a request on, as a proxy does, announces the body that it has.
#[test]
fn the_head_of_a_decompressed_request_has_no_fields_about_its_coding() {
    let facts = |request: &Request| {
        let names: Vec<_> = request.headers().map(|(name, _)| name.to_ascii_lowercase()).collect();
        format!("{} {:?}", names.join(" "), request.content_length())
    };
    let router = Router::new()
        .post("/collected", move |request: Request| facts(&request))
        .post("/read", async move |request: Request| facts(&request))
        .with(RequestDecompression::new());
    let connections = Config::new().connections(router);
    let body = compressed(Algorithm::Gzip, b"the tide rises");
    for path in ["/collected", "/read"] {
        for (coding, expected) in [
            ("gzip", "host None".to_owned()),
            ("identity", format!("host content-encoding content-length Some({})", body.len())),
        ] {
            let (codec, handler) = connections();
            let mut pipe = Embedded::new(codec, handler);
            pipe.receive(&post(path, coding, &body));
            assert_eq!(String::from_utf8(receive(&mut pipe).1).unwrap(), expected, "{path} {coding}");
        }
    }
}

#[test]
fn bombs_and_invalid_bodies_are_refused_in_bounded_memory() {
    let zeros = vec![0; 64 << 20];
    for (name, algorithm) in CODINGS {
        let bomb = compressed(algorithm, &zeros);
        assert!(bomb.len() < 100_000, "{name}: {} bytes", bomb.len());
        for path in ["/collected", "/read"] {
            let mut pipe = open(upload());
            pipe.receive(&post(path, name, &bomb));
            let (head, _) = receive(&mut pipe);
            assert!(head.starts_with("HTTP/1.1 413 "), "{name} {path}: {head}");
        }
        let nested = compressed(Algorithm::Gzip, &bomb);
        let mut pipe = open(upload());
        pipe.receive(&post("/read", &format!("{name}, gzip"), &nested));
        assert!(receive(&mut pipe).0.starts_with("HTTP/1.1 413 "), "{name} within gzip");
        for path in ["/collected", "/read"] {
            for body in [&b"no such data"[..], &bomb[..bomb.len() / 2], b"\x1f\x8b"] {
                let mut pipe = open(upload());
                pipe.receive(&post(path, name, body));
                let (head, _) = receive(&mut pipe);
                assert!(head.starts_with("HTTP/1.1 4"), "{name} {path}: {head}");
            }
        }
    }
    for coding in ["compress", "gzip, snappy", "x", &"gzip, ".repeat(100)] {
        let mut pipe = open(upload());
        pipe.receive(&post("/collected", coding, b"x"));
        let (head, _) = receive(&mut pipe);
        let offered = "\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n";
        assert!(head.starts_with("HTTP/1.1 415 ") && head.contains(offered), "{coding}: {head}");
    }
}

#[test]
fn bytes_behind_a_coded_body_have_the_same_result_at_every_split() {
    let connections = Config::new().connections(upload());
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    for (name, algorithm) in CODINGS {
        let message = compressed(algorithm, b"the tide rises, the tide falls");
        // Zeros are padding of gzip.
        let padding = if algorithm == Algorithm::Gzip { "200" } else { "400" };
        for (more, status) in [(&[0][..], padding), (&[0, 1], "400"), (&[1], "400"), (&[0, 0], padding)] {
            let body = [&message, more].concat();
            for path in ["/collected", "/read"] {
                for split in 1..body.len() {
                    let (codec, handler) = connections();
                    let mut pipe = Embedded::new(codec, handler);
                    let head = format!("POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Encoding: {name}\r\n");
                    pipe.receive(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
                    pipe.receive(&chunk(&body[..split]));
                    pipe.receive(&[chunk(&body[split..]), b"0\r\n\r\n".to_vec()].concat());
                    let (head, _) = receive(&mut pipe);
                    assert_eq!(head[9..12], *status, "{name} {path} and {more:?}, split at {split}: {head}");
                }
            }
        }
    }
}

/// Some clients send chunks and `Content-Encoding` whether they have a body or not.
#[test]
fn a_coded_body_of_no_bytes_is_empty() {
    for coding in ["gzip", "br", "zstd", "deflate", "gzip, br"] {
        for (path, expected) in [("/collected", &b""[..]), ("/read", b"0")] {
            let mut pipe = open(upload());
            let head = format!("POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Encoding: {coding}\r\n");
            pipe.receive(format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n").as_bytes());
            let (head, body) = receive(&mut pipe);
            assert!(head.starts_with("HTTP/1.1 200 "), "{coding} {path}: {head}");
            assert_eq!(body, expected, "{coding} {path}");
        }
    }
}

#[test]
fn a_304_of_a_function_has_the_vary_of_its_200() {
    let answer = |response: fn() -> Response| {
        let mut pipe = open(Router::new().get("/", response).with(ResponseCompression::new()));
        pipe.receive(&get("/", "gzip"));
        receive(&mut pipe).0
    };
    let not_modified = || Response::status(StatusCode::NOT_MODIFIED).header("ETag", "\"7\"").expect("a field");
    let head = answer(not_modified);
    assert!(head.contains("\r\nVary: Accept-Encoding\r\n") && head.contains("\r\nETag: \"7\"\r\n"), "{head}");
    for (known, expected) in
        [("W/\"7\"", "W/\"7\""), ("\"7\"", "\"7\""), ("\"7\", W/\"7\"", "\"7\""), ("W/\"77\"", "\"7\"")]
    {
        let mut pipe = open(Router::new().get("/", not_modified).with(ResponseCompression::new()));
        pipe.receive(format!("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {known}\r\n\r\n").as_bytes());
        let head = receive(&mut pipe).0;
        assert!(head.contains(&format!("\r\nETag: {expected}\r\n")), "{known}: {head}");
    }
    let varied =
        || Response::status(StatusCode::NOT_MODIFIED).header("Vary", "accept-encoding, Cookie").expect("a field");
    assert_eq!(answer(varied).matches("Vary").count(), 1);
    let empty = || Response::status(StatusCode::NO_CONTENT);
    assert!(!answer(empty).contains("Vary"));
}
