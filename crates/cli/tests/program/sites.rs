//! `serve --root` and `--config`: files over real connections, and a configuration that is read again.

use std::fs;

use rustix::process::Signal;

use crate::support::peer::{Peer, Reply};
use crate::support::program::{Directory, Program, run};

/// A directory with files of a site.
fn site() -> Directory {
    let directory = Directory::new();
    fs::write(directory.path("index.html"), "<h1>tides</h1>").unwrap();
    fs::write(directory.path("a.css"), "body { color: navy }\n".repeat(1000)).unwrap();
    fs::create_dir(directory.path("sub")).unwrap();
    fs::write(directory.path("sub/x.txt"), "x").unwrap();
    fs::write(directory.path("404.html"), "<h1>lost</h1>").unwrap();
    directory
}

fn ask(program: &Program, target: &str, fields: &str) -> Reply {
    Peer::connect(program).exchange(format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n"))
}

#[test]
fn a_directory_is_served_with_the_options_of_the_flags() {
    let directory = site();
    let (root, page) = (directory.path(""), format!("404={}", directory.path("404.html")));
    let program = Program::serve(&[
        "--loops",
        "1",
        "--root",
        &root,
        "--listing",
        "--redirect",
        "/old=/a.css",
        "--error-page",
        &page,
        "--cache-control",
        "max-age=60",
        "--access-log",
        "json",
    ]);
    let index = ask(&program, "/", "");
    assert_eq!((index.status, index.text()), (200, "<h1>tides</h1>"));
    assert_eq!(index.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(index.field("cache-control"), Some("max-age=60"));
    let etag = index.field("etag").expect("an ETag").to_owned();
    assert_eq!(ask(&program, "/", &format!("If-None-Match: {etag}\r\n")).status, 304);
    let part = ask(&program, "/a.css", "Range: bytes=0-3\r\n");
    assert_eq!((part.status, part.text()), (206, "body"));
    let packed = ask(&program, "/a.css", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.field("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < 1000 && packed.body.starts_with(b"\x1f\x8b"));
    assert_eq!(ask(&program, "/a.css", "").body.len(), 21_000);
    let moved = ask(&program, "/old?v=1", "");
    assert_eq!((moved.status, moved.field("location")), (308, Some("/a.css?v=1")));
    let lost = ask(&program, "/none", "");
    assert_eq!((lost.status, lost.text()), (404, "<h1>lost</h1>"));
    assert!(ask(&program, "/sub/", "").text().contains("x.txt"));
    for target in ["/../etc/passwd", "/%2e%2e/etc/passwd", "/sub/..%2f..%2fetc/passwd", "/plaintext"] {
        assert_eq!(ask(&program, target, "").status, 404, "{target}");
    }
    let lines = program.until_logged("\"target\":\"/old?v=1\"", 1);
    assert!(lines.iter().any(|line| line.contains("\"status\":308")), "{lines:?}");
}

#[test]
fn a_configuration_is_read_again_at_a_signal_unless_it_has_a_mistake() {
    let (one, two, files) = (site(), site(), Directory::new());
    fs::write(two.path("index.html"), "two").unwrap();
    let path = files.path("sites.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    let (root_one, root_two) = (one.path(""), two.path(""));
    write(&format!("[[route]]\nfolder = \"{root_one}\"\n"));
    let program = Program::serve(&["--loops", "2", "--config", &path]);
    let at = |host: &str| {
        let mut peer = Peer::connect(&program);
        peer.exchange(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    assert_eq!(at("sea.example").text(), "<h1>tides</h1>");

    let hosts = "hosts = [\"sea.example\"]\nbasic-auth = { users = { ebb = \"flow\" } }\n";
    let second = format!("[[site]]\n{hosts}[[site.route]]\nfolder = \"{root_two}\"\n");
    write(&format!("[[route]]\nfolder = \"{root_one}\"\n{second}"));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(at("other.example").text(), "<h1>tides</h1>");
    assert_eq!(at("sea.example").status, 401);
    let authorised = "Host: sea.example\r\nAuthorization: Basic ZWJiOmZsb3c=\r\nConnection: close\r\n\r\n";
    assert_eq!(Peer::connect(&program).exchange(format!("GET / HTTP/1.1\r\n{authorised}")).text(), "two");

    write("[[route]]\nfoldr = \"/\"\n");
    program.signal(Signal::HUP);
    let lines = program.until_logged("configuration not reloaded", 1);
    let line = lines.iter().find(|line| line.contains("not reloaded")).unwrap();
    assert!(line.contains("sites.toml:2:1") && line.contains("`folder`"), "{line}");
    assert_eq!(at("sea.example").status, 401);

    // A server without a valid configuration does not start.
    let (code, _, errors) = run(&["serve", "--listen", "127.0.0.1:0", "--config", &path]);
    assert_eq!(code, Some(2));
    assert!(errors.len() == 1 && errors[0].contains("sites.toml:2:1"), "{errors:?}");
}

#[test]
fn mistakes_in_flags_are_reported_in_one_line() {
    let directory = site();
    let root = directory.path("");
    let cases: [(&[&str], &str); 7] = [
        (&["--root", "/nowhere"], "not a directory"),
        (&["--root", &root, "--redirect", "/old"], "FROM=TO"),
        (&["--root", &root, "--redirect", "old=/new"], "not a path"),
        (&["--root", &root, "--error-page", "200=x"], "status of an error"),
        (&["--root", &root, "--cache-control", "a\nb"], "control characters"),
        (&["--root", &root, "--config", "x"], "cannot be used with"),
        (&["--listing"], "--root"),
    ];
    for (flags, text) in cases {
        let (code, _, errors) = run(&[&["serve", "--listen", "127.0.0.1:0"], flags].concat());
        assert_eq!(code, Some(2), "{flags:?}");
        assert!(errors.len() == 1 && errors[0].contains(text), "{flags:?}: {errors:?}");
    }
}

#[test]
fn files_are_served_through_tls() {
    let directory = site();
    let program = Program::serve(&["--loops", "1", "--root", &directory.path(""), "--tls-self-signed"]);
    let url = format!("https://{}/a.css", program.ip());
    let output = std::process::Command::new("curl").args(["-sk", "--noproxy", "*", "--max-time", "60", &url]).output();
    match output {
        Ok(output) => assert_eq!(output.stdout.len(), 21_000),
        Err(error) => crate::support::program::skip("curl", &error),
    }
}
