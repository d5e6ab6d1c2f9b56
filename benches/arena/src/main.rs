//! `arena ADDRESS [LOOPS] [--precompressed] [--http2 ADDRESS] [--tls ADDRESS [--http3]]
//! [--database SETTINGS [--database-on runtime|loop]] [--redis URL] [--files FOLDER]`: serves until it is killed.
//!
//! With `--http2` it has another address, for HTTP/2 alone.
//!
//! It writes its files into FOLDER, with `--precompressed` variants beside them, in brotli and gzip, and sends those.
//!
//! SETTINGS is how to connect to PostgreSQL, as libpq reads it: `host=/run/postgresql user=postgres`. Without it the
//! workloads of a database are missing. Its connection is on the tokio runtime, or there is one on each loop. With
//! `--redis` single items are cached in Redis.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arena::Options;
use arena::connector::Connector;
use arena::database::Database;
use arena::shared_cache::SharedCache;

#[tidegate::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut positional = Vec::new();
    let (mut tls_address, mut settings, mut on_loops) = (None, None, false);
    let (mut precompressed, mut http3) = (false, false);
    let (mut http2_address, mut redis, mut folder) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--precompressed" => precompressed = true,
            "--http3" => http3 = true,
            "--tls" => tls_address = Some(value()?),
            "--http2" => http2_address = Some(value()?),
            "--files" => folder = Some(PathBuf::from(value()?)),
            "--redis" => redis = Some(value()?),
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
    let address = positional.first().ok_or(USAGE)?;
    let loops = positional.get(1).map(|loops| loops.parse()).transpose()?;
    let database = match settings {
        None => None,
        Some(settings) if on_loops => Some(Connector::Loop(settings)),
        Some(settings) => Some(Connector::TokioRuntime(Arc::new(Database::connect(&settings).await?))),
    };
    let usual_folder = if precompressed { "tidegate-arena-precompressed" } else { "tidegate-arena" };
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join(usual_folder));
    arena::files::write(&folder)?;
    if precompressed {
        arena::files::write_variants(&folder)?;
    }
    let shared_cache = redis.as_deref().map(SharedCache::connect).transpose()?;
    let (tls_address, http2_address) = (tls_address.as_deref(), http2_address.as_deref());
    let options = Options { loops, tls_address, http3, http2_address, database, shared_cache };
    let server = arena::start(address, &folder, options)?;
    println!("listening on {}", server.address());
    server.ended().await;
    Ok(())
}

const USAGE: &str = "usage: arena ADDRESS [LOOPS] [--precompressed] [--http2 ADDRESS] [--tls ADDRESS [--http3]] \
    [--database SETTINGS [--database-on runtime|loop]] [--redis URL] [--files FOLDER]";
