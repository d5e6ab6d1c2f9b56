//! Runs a load in this process, and servers that answer as a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use tidegate_load::Options;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// Runs a load to its end. Returns whether it had no errors, and its figures.
pub(crate) fn load(arguments: &[&str]) -> (bool, Value) {
    let file = TemporaryFile::new();
    let path = file.0.to_str().expect("a text");
    let parsed =
        Arguments::try_parse_from([&["load", "--json", path], arguments].concat()).expect("the flags are right");
    let is_good = tidegate_load::run(&parsed.options).expect("it runs");
    let text = std::fs::read_to_string(&file.0).expect("it is written");
    (is_good, serde_json::from_str(&text).expect("JSON"))
}

/// Runs a load for a time within which `is_enough` holds for its figures: a machine that runs other programs may leave the
/// load or the server without a processor for all of a short one.
pub(crate) fn load_until(arguments: &[&str], is_enough: impl Fn(&Value) -> bool) -> (bool, Value) {
    let mut loads = DURATIONS.iter().map(|duration| load(&[arguments, &["-d", duration]].concat()));
    loads.find(|(_, figures)| is_enough(figures)).expect("one of the times is enough")
}

/// From the usual one to one that no machine is without a processor for.
const DURATIONS: [&str; 3] = ["300ms", "3s", "60s"];

/// The error of a load that cannot start.
pub(crate) fn refused(arguments: &[&str]) -> String {
    match Arguments::try_parse_from([&["load"], arguments].concat()) {
        Ok(parsed) => tidegate_load::run(&parsed.options).expect_err("it is refused").to_string(),
        Err(error) => error.to_string(),
    }
}

/// A file that is removed when this is dropped.
pub(crate) struct TemporaryFile(pub(crate) PathBuf);

impl TemporaryFile {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-load-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that runs a function on each connection.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedServer {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, is_over) = (listener.local_addr().expect("it is bound"), Arc::new(AtomicBool::new(false)));
        let (serve, over) = (Arc::new(serve), is_over.clone());
        let thread = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (serve, stream) = (serve.clone(), stream.expect("it accepts"));
                stream.set_read_timeout(Some(PATIENCE)).expect("a stream");
                connections.push(std::thread::spawn(move || serve(stream)));
            }
            connections.into_iter().for_each(|connection| drop(connection.join()));
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// Answers the first receive of a connection with one text, and each later one with another.
    pub(crate) fn answering(first: &'static str, others: &'static str) -> Self {
        Self::start(move |mut stream| {
            let mut answer = first;
            let mut bytes = [0; 65_536];
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) && stream.write_all(answer.as_bytes()).is_ok() {
                answer = others;
            }
        })
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
