//! A folder for one test, a server of it, and a client that reads bytes.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate::Backend;
use tidegate::http::{Files, Router, Server};

use crate::support::{Running, start};

/// A folder that is removed when it is dropped. The root is within it, so that there is something outside the root.
pub(crate) struct Folder {
    outer: PathBuf,
    pub(crate) root: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let outer = std::env::temp_dir().join(format!("tidegate-files-{}-{number}", std::process::id()));
        let root = outer.join("root");
        fs::create_dir_all(&root).unwrap();
        let folder = Self { outer, root };
        fs::write(folder.outer.join("secret"), "secret").unwrap();
        folder
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn files(&self) -> Files {
        Files::new(&self.root).unwrap()
    }

    /// A server of the files at `/`.
    pub(crate) fn serve(&self, set: impl Fn(Files) -> Files) -> Running {
        let files = set(self.files());
        start(move || Router::new().fallback(files.clone()))
    }

    /// The same on a driver; none where the system does not have it.
    pub(crate) fn serve_on(&self, backend: Backend) -> Option<Running> {
        let files = self.files();
        let server = Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1);
        match server.start(move || Router::new().fallback(files.clone())) {
            Ok(server) => Some(Running(server)),
            Err(error) => {
                println!("skipped: {backend:?}: {error}");
                None
            }
        }
    }

    pub(crate) fn secret(&self) -> PathBuf {
        self.outer.join("secret")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.outer);
    }
}

/// A response.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn of(response: &[u8]) -> Self {
        let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(response[..end + 2].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: response[end + 4..].to_vec() }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let value = values.next();
        assert_eq!(values.next(), None, "{name} comes once: {}", self.head);
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n")
}

pub(crate) fn ask(server: &Running, method: &str, path: &str, fields: &[(&str, &str)]) -> Got {
    let mut stream = server.connect();
    stream.write_all(request(method, path, fields).as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    Got::of(&response)
}

pub(crate) fn get(server: &Running, path: &str) -> Got {
    ask(server, "GET", path, &[])
}

/// Bytes that differ from place to place.
pub(crate) fn content(length: usize) -> Vec<u8> {
    // Copies: a computation for each byte of megabytes takes long without optimisation.
    let period: Vec<_> = (0..251 * 256).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
