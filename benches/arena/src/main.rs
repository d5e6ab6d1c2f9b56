//! `arena ADDRESS [LOOPS] [--precompressed] [--tls ADDRESS [--http3]] [--database SETTINGS [--database-on runtime|loop]]`: serves
//! until it is killed.
//!
//! With `--precompressed` it writes variants of its files beside them, in brotli and gzip, and sends those.
//!
//! SETTINGS is how to connect to PostgreSQL, as libpq reads it: `host=/run/postgresql user=postgres`. Without it the
//! workloads of a database are missing. Its connection is on the tokio runtime, or there is one on each loop.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use arena::Options;
use arena::connector::Connector;
use arena::database::Database;

#[tidegate::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut positional = Vec::new();
    let (mut tls_address, mut settings, mut on_loops) = (None, None, false);
    let (mut precompressed, mut http3) = (false, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--precompressed" => precompressed = true,
            "--http3" => http3 = true,
            "--tls" => tls_address = Some(value()?),
            "--database" => settings = Some(value()?),
            "--database-on" => {
                on_loops = match value()?.as_str() {
                    "runtime" => false,
                    "loop" => true,
                    other => {
                        return Err(format!("a connection is on the `runtime` or on each `loop`, not {other}").into());
                    }
                }
            }
            _ => positional.push(argument),
        }
    }
    let address = positional
        .first()
        .ok_or("usage: arena ADDRESS [LOOPS] [--precompressed] [--tls ADDRESS [--http3]] [--database SETTINGS]")?;
    let loops = positional.get(1).map(|loops| loops.parse()).transpose()?;
    let database = match settings {
        None => None,
        Some(settings) if on_loops => Some(Connector::Loop(settings)),
        Some(settings) => Some(Connector::TokioRuntime(Arc::new(Database::connect(&settings).await?))),
    };
    let folder =
        std::env::temp_dir().join(if precompressed { "tidegate-arena-precompressed" } else { "tidegate-arena" });
    arena::files::write(&folder)?;
    if precompressed {
        arena::files::write_variants(&folder)?;
    }
    let options = Options { loops, tls_address: tls_address.as_deref(), http3, database };
    let server = arena::start(address, &folder, options)?;
    println!("listening on {}", server.address());
    server.ended().await;
    Ok(())
}
