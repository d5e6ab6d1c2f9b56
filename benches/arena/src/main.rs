//! `arena ADDRESS [LOOPS [DATABASE [companion | loop]]]`: serves until it is killed.
//!
//! DATABASE is how to connect to PostgreSQL, as libpq reads it: `host=/run/postgresql user=postgres`. Without it the
//! workloads of a database are missing. The last argument chooses where its connection is: on the companion, which is the
//! default, or on each loop.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use arena::connector::Connector;
use arena::database::Database;

#[tidegate::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: arena ADDRESS [LOOPS [DATABASE [companion | loop]]]")?;
    let loops = arguments.next().map(|loops| loops.parse()).transpose()?;
    let database = match (arguments.next(), arguments.next().as_deref()) {
        (None, _) => None,
        (Some(settings), None | Some("companion")) => {
            Some(Connector::Companion(Arc::new(Database::connect(&settings).await?)))
        }
        (Some(settings), Some("loop")) => Some(Connector::Loop(settings)),
        (Some(_), Some(_)) => return Err("a connection is on the `companion` or on each `loop`".into()),
    };
    let folder = std::env::temp_dir().join("tidegate-arena");
    arena::files::write(&folder)?;
    let server = arena::start(&address, loops, &folder, database)?;
    println!("listening on {}", server.address());
    server.ended().await;
    Ok(())
}
