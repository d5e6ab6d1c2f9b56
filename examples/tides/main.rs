//! Tides: the server that grows from chapter to chapter of `docs/guide`; all code there is an excerpt of this.
//!
//! ```text
//! cargo run --example tides                                   # checks itself, prints the results and exits
//! cargo run --example tides -- 127.0.0.1:7003                 # serves until it is killed
//! cargo run --example tides -- 127.0.0.1:7003 tides.socket    # the same, and a later one takes over from it
//! ```

#![forbid(unsafe_code)]

mod clerk;
mod client;
#[cfg(test)]
mod network;
mod office;
mod protocol;
mod session;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::{Backend, EventLoop, Limits, Server, ServerHandle, StartError, WaterMarks};

use crate::clerk::Clerk;
use crate::client::Gauge;
use crate::office::Office;
use crate::protocol::{Answer, Request, Tides};
use crate::session::session;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check()?,
        [address] => start(address)?.wait(),
        [address, path] => serve(address, path)?,
        _ => return Err("usage: tides [ADDRESS [TAKEOVER]]".into()),
    }
    Ok(())
}

fn office() -> Office {
    Office::new(office_path())
}

/// The file in which levels are saved.
fn office_path() -> PathBuf {
    std::env::temp_dir().join(format!("tides-{}", std::process::id()))
}

/// A server of handlers.
fn start(address: &str) -> Result<ServerHandle, StartError> {
    let office = office();
    Server::bind(address)?.start(move || (Tides::new(), Clerk::new(office.clone())))
}

/// A server of channels.
fn start_sessions(address: &str) -> Result<ServerHandle, StartError> {
    let office = office();
    Server::bind(address)?.serve(Tides::new, move |channel| session(channel, office.clone()))
}

/// Limits for a small machine with many gauges.
fn limits() -> Limits {
    Limits {
        water: WaterMarks::new(16 * 1024, 8 * 1024),
        write_timeout: Duration::from_secs(20),
        connections_max: 20_000,
        memory_max: 64 * 1024 * 1024,
        ..Limits::default()
    }
}

/// Serves until a later server takes over, then drains.
fn serve(address: &str, path: &str) -> Result<(), StartError> {
    // Early, before this process opens anything itself.
    let server = match Server::from_environment()? {
        Some(server) => server,
        None => Server::bind(address)?,
    };
    let office = office();
    let make = move || (Tides::new(), Clerk::new(office.clone()));
    let running = server.limits(limits()).takeover(path).start(make)?;
    println!("listening on {}", running.address());
    if running.superseded().wait() {
        println!("another has taken over");
    }
    running.drain(Duration::from_secs(10));
    Ok(())
}

fn check() -> Result<(), Box<dyn Error>> {
    for start in [start, start_sessions] {
        let server = start("127.0.0.1:0")?;
        println!("listening on {}, {} loops", server.address(), server.loops());
        let address = server.address().to_string();
        EventLoop::on(Backend::Auto)?.block_on(async move { talk(&address).await })??;
        let messages: u64 = server.counts().iter().map(|counts| counts.messages).sum();
        server.drain(Duration::from_secs(1));
        println!("{messages} requests served");
        std::fs::remove_file(office_path())?;
    }
    Ok(())
}

async fn talk(address: &str) -> Result<(), Box<dyn Error>> {
    let mut watcher = Gauge::connect(address).await?;
    assert_eq!(watcher.ask(Request::Watch).await?, Answer::Ok);
    let mut gauge = Gauge::connect(address).await?;
    assert_eq!(gauge.get("brest").await?, Answer::Unknown);
    assert_eq!(gauge.set("brest", 412).await?, Answer::Ok);
    assert_eq!(gauge.set("st-malo", 871).await?, Answer::Ok);
    println!("the watcher receives: {:?}", watcher.next().await?);
    println!("at brest: {:?}", gauge.get("brest").await?);
    assert_eq!(gauge.list().await?, [("brest".into(), 412), ("st-malo".into(), 871)]);
    assert_eq!(gauge.ask(Request::Save).await?, Answer::Ok);
    Ok(())
}
