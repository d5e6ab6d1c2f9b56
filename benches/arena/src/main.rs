//! `arena ADDRESS [LOOPS [TLS-ADDRESS]]`: serves until it is killed.

#![forbid(unsafe_code)]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: arena ADDRESS [LOOPS [TLS-ADDRESS]]")?;
    let loops = arguments.next().map(|loops| loops.parse()).transpose()?;
    let tls_address = arguments.next();
    let folder = std::env::temp_dir().join("tidegate-arena");
    arena::files::write(&folder)?;
    let server = arena::start(&address, tls_address.as_deref(), loops, &folder)?;
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}
