//! may_minihttp as its authors enter it in public benchmarks, on one worker.

use std::net::{SocketAddr, TcpListener};
use std::{env, error, io};

use may_minihttp::{HttpService, HttpServiceFactory, Request, Response};

struct Plaintext;

impl HttpService for Plaintext {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        match request.path() {
            "/plaintext" => response.header("Content-Type: text/plain").body("Hello, World!"),
            _ => drop(response.status_code(404, "Not Found")),
        }
        Ok(())
    }
}

struct Factory;

impl HttpServiceFactory for Factory {
    type Service = Plaintext;

    fn new_service(&self, _id: usize) -> Plaintext {
        Plaintext
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let address: SocketAddr = env::args().nth(1).ok_or("usage: minihttp ADDRESS")?.parse()?;
    // The crate never tells which port it was given, so port 0 is resolved before it binds.
    let address = TcpListener::bind(address)?.local_addr()?;
    may::config().set_workers(1).set_pool_capacity(1000).set_stack_size(0x1000).set_worker_pin(false);
    let server = Factory.start(address)?;
    println!("listening on {address}");
    server.join().map_err(|_| "the accept loop panicked")?;
    Ok(())
}
