//! A server of a folder: `cargo run --release -p tidegate-http --example files -- ADDRESS FOLDER`.

#![forbid(unsafe_code)]

use std::error::Error;

use tidegate::http::{Files, Router, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("the arguments are an address and a folder".into());
    };
    let files = Files::new(folder)?.precompressed(true).listing(true);
    let server = Server::bind(&address)?.start(move || Router::new().nest_files("/", files.clone()))?;
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}
