//! may_minihttp as its authors enter it in public benchmarks, on one worker.

use std::io::BufRead;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::{env, error, io};

use may_minihttp::{HttpService, HttpServiceFactory, Request, Response};
use mimalloc::MiMalloc;
use rustix::net::sockopt;
use rustix::process::{self, PidfdFlags, PidfdGetfdFlags};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

struct Endpoints;

impl HttpService for Endpoints {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/plain");
        match request.path() {
            "/plaintext" => response.body("Hello, World!"),
            "/echo" => echo(request, response)?,
            path => match filler(path) {
                Some(text) => response.body(text),
                None => drop(response.status_code(404, "Not Found")),
            },
        }
        Ok(())
    }
}

/// Copies the received part of a body into the response, and waits for the rest.
fn echo(request: Request, response: &mut Response) -> io::Result<()> {
    let mut body = request.body();
    loop {
        let bytes = body.fill_buf()?;
        let count = bytes.len();
        if count == 0 {
            return Ok(());
        }
        response.body_mut().extend_from_slice(bytes);
        body.consume(count);
    }
}

/// The body of `/bytes/N`.
fn filler(path: &str) -> Option<&'static str> {
    FILLER.get(..path.strip_prefix("/bytes/")?.parse().ok()?)
}

struct Factory {
    process: OwnedFd,
}

impl HttpServiceFactory for Factory {
    type Service = Endpoints;

    /// Sets TCP_NODELAY on the connection before it is served. The crate neither sets it nor exposes its sockets, but a
    /// connection's `id` is its descriptor, which can be duplicated.
    fn new_service(&self, id: usize) -> Endpoints {
        let socket = process::pidfd_getfd(&self.process, id as i32, PidfdGetfdFlags::empty());
        if let Err(reason) = socket.and_then(|socket| sockopt::set_tcp_nodelay(socket, true)) {
            eprintln!("a connection is without no-delay: {reason}");
        }
        Endpoints
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let address: SocketAddr = env::args().nth(1).ok_or("usage: minihttp ADDRESS")?.parse()?;
    // The crate does not report its port, so port 0 is resolved before it binds.
    let address = TcpListener::bind(address)?.local_addr()?;
    may::config().set_workers(1).set_pool_capacity(1000).set_stack_size(0x1000).set_worker_pin(false);
    let process = process::pidfd_open(process::getpid(), PidfdFlags::empty())?;
    let server = Factory { process }.start(address)?;
    println!("listening on {address}");
    server.join().map_err(|_| "the accept loop panicked")?;
    Ok(())
}

const FILLER: &str = match str::from_utf8(&[b'x'; 64 * 1024]) {
    Ok(text) => text,
    Err(_) => unreachable!(),
};
