//! Responses in a folder, over a restart.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::http::cache::Cache;
use tidegate::http::{Response, Router, Server};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Running(ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// A server of a function whose body names its generation.
fn start(cache: &Cache, generation: &'static str) -> Running {
    let cache = cache.clone();
    let router = move || {
        let tide = async move || {
            let body = format!("{generation} {}", "w".repeat(100_000));
            Response::new().body(body).header("Cache-Control", "max-age=3600").expect("a field")
        };
        Router::new().fallback(cache.wrap(tide))
    };
    let server = Server::bind("127.0.0.1:0").expect("an address").half_close(true).loops(1);
    Running(server.start(router).expect("it starts"))
}

fn get(server: &Running) -> String {
    let mut stream = TcpStream::connect(server.0.address().ip().expect("an address")).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").expect("it reads");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    let (_, body) = response.split_once("\r\n\r\n").expect("a head");
    body.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_stored_response_survives_a_restart_and_a_damaged_one_does_not() {
    let folder = Folder(std::env::temp_dir().join(format!("tidegate-cache-suite-{}", std::process::id())));
    let _ = fs::remove_dir_all(&folder.0);
    let open = || Cache::builder().folder(&folder.0).build().expect("a folder");
    let cache = open();
    assert_eq!(get(&start(&cache, "first")), "first");
    // A thread writes it.
    cache.flush();
    let stored = || {
        let paths = fs::read_dir(&folder.0).expect("a folder").map(|item| item.expect("a file").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "response")).collect::<Vec<_>>()
    };
    assert_eq!(stored().len(), 1);
    let cache = open();
    let server = start(&cache, "second");
    assert_eq!((get(&server), get(&server)), ("first".to_owned(), "first".to_owned()));
    assert_eq!((cache.counts().disk_hits, cache.counts().hits), (1, 2));
    let path = stored().remove(0);
    let mut bytes = fs::read(&path).expect("a file");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&path, bytes).expect("a file");
    let cache = open();
    assert_eq!(get(&start(&cache, "third")), "third");
    assert_eq!(cache.counts().disk_hits, 0);
}
