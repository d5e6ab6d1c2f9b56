//! `Origin`: an HTTP/1.1 server behind the program, which keeps the heads of its requests and answers as a test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A server with one response for each connection. Dropping it ends it.
pub(crate) struct Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Answers each request with the text that `respond` makes of its head, behind `HTTP/1.1 `. The responses end with their connection.
    pub(crate) fn start(respond: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, is_over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (seen, ends) = (heads.clone(), is_over.clone());
        let serve = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                if let Some((head, mut stream)) = stream.ok().and_then(read_head) {
                    let response = format!("HTTP/1.1 {}", respond(&head));
                    seen.lock().unwrap().push(head);
                    let _ = stream.write_all(response.as_bytes());
                }
            }
        };
        let thread = Some(std::thread::spawn(serve));
        Self { address, heads, is_over, thread }
    }

    /// One that answers with the head of the request as its body.
    pub(crate) fn echo() -> Self {
        Self::start(|head| format!("200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{head}", head.len()))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of its requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// The head of the only request of a connection, whose body is read too.
fn read_head(stream: TcpStream) -> Option<(String, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, reader.into_inner()))
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
