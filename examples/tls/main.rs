//! Downloads over TLS.
//!
//! ```text
//! cargo run --example tls                      # checks itself, prints the results and exits
//! cargo run --example tls -- 127.0.0.1:7443    # serves until it is killed:
//! (echo 1000; sleep 1) | openssl s_client -quiet -connect 127.0.0.1:7443
//! ```

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::error::Error;
use std::time::Duration;

use tidegate::codec::Pipeline;
use tidegate::framing::{Payload, Raw};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{Address, Backend, Channel, Client, EventLoop, Over, Server, Slice, task};

/// A number of bytes in decimal digits and a line feed get as many bytes.
async fn serve<P: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<P>) -> Result<(), Box<dyn Error>> {
    let mut wanted = 0_u64;
    while let Some(request) = channel.recv().await? {
        for byte in request.iter() {
            match byte {
                b'0'..=b'9' => wanted = wanted.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
                b'\n' => send(&mut channel, std::mem::take(&mut wanted)).await?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Sends so many bytes of [`WATER`], as fast as the peer reads them.
async fn send<P: Pipeline<Out = Payload>>(channel: &mut Channel<P>, mut left: u64) -> Result<(), Box<dyn Error>> {
    while left > 0 {
        let count = left.min(WATER.len() as u64);
        channel.ready().await?;
        channel.send(WATER[..count as usize].into())?;
        left -= count;
    }
    Ok(())
}

/// Downloads so many bytes and compares them.
async fn download<P>(channel: &mut Channel<P>, bytes: usize) -> Result<(), Box<dyn Error>>
where
    P: Pipeline<In = Slice, Out = Payload>,
{
    channel.send(format!("{bytes}\n").into())?;
    let mut received = 0;
    while received < bytes {
        let piece = channel.recv().await?.ok_or("the server has ended")?;
        for part in piece.chunks(WATER.len()) {
            let at = received % WATER.len();
            let (first, second) = part.split_at(part.len().min(WATER.len() - at));
            if first != &WATER[at..][..first.len()] || second != &WATER[..second.len()] {
                return Err(format!("other bytes than expected from {received} on").into());
            }
            received += part.len();
        }
    }
    if received == bytes { Ok(()) } else { Err(format!("{received} bytes instead of {bytes}").into()) }
}

/// A certificate for `localhost`, made up on the spot, and the configurations of both sides.
fn configurations() -> Result<(ServerConfig, ClientConfig), Box<dyn Error>> {
    let provider = Provider::aws_lc_rs();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?;
    let server = ServerConfig::builder(&provider, certificates).build()?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let client = ClientConfig::builder(&provider, roots)?.build()?;
    Ok((server, client))
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let (server_config, client_config) = configurations()?;
    let codec = move || Over::new(server_config.accept(), Raw);
    let server = Server::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?.serve(codec, serve)?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let (to, bytes) = (server.address().clone(), 64 << 20);
    // In a task, which runs while received bytes are still in the loop's scratch.
    EventLoop::on(Backend::Auto)?.block_on(async move { task::spawn(check(to, client_config, bytes)).await })???;
    println!("downloaded {bytes} bytes");
    server.drain(Duration::from_secs(1));
    Ok(())
}

async fn check(server: Address, config: ClientConfig, bytes: usize) -> Result<(), Box<dyn Error>> {
    let codec = Over::new(config.connect("localhost")?, Raw);
    let mut channel = Client::at(server).connect(codec).await?;
    download(&mut channel, bytes).await?;
    channel.close().await?;
    Ok(())
}

/// The downloaded bytes, repeated: no two records of them are alike.
static WATER: [u8; WATER_BYTES] = {
    let (mut water, mut index, mut state) = ([0; WATER_BYTES], 0, 1_u32);
    while index < WATER_BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        water[index] = (state >> 24) as u8;
        index += 1;
    }
    water
};

const WATER_BYTES: usize = 64 * 1024;
