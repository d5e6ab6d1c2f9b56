//! Copies are counted, on a simulated network and over loopback; ends, errors, and a foreign client.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::crypto::ring;
use tidegate::codec::{Codec, Input, Output, Step};
use tidegate::framing::{Payload, Raw};
use tidegate::{Backend, Client, EventLoop, Limits, Server, Slice};
use tidegate_testkit::network::Network;

use crate::{client_codec, configurations, download, serve, server_codec};

/// [`Raw`], which notes how many bytes its loop has copied so far.
struct Metered(Arc<AtomicU64>);

impl Metered {
    fn note(&self, output: &Output<'_>) {
        let copied = output.pool().ledger().copied_bytes().expect("tests are built with debug assertions");
        self.0.store(copied, Ordering::Relaxed);
    }
}

impl Codec for Metered {
    type In = Slice;
    type Out = Payload;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        self.note(reply);
        Raw.decode(input, reply)
    }

    fn encode(&mut self, message: Payload, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.note(out);
        Raw.encode(message, out)
    }
}

const BULK_BYTES: usize = 64 << 20;

#[test]
fn a_bulk_download_over_loopback_copies_nothing() {
    let (server_config, client_config) = configurations(ring::default_provider()).unwrap();
    let [sent, received] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let meter = sent.clone();
    let codec = move || server_codec(&server_config, Metered(meter.clone()));
    for backend in [Backend::Epoll, Backend::Uring] {
        let server =
            Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1).serve(codec.clone(), serve).unwrap();
        let (address, config, meter) = (server.address().clone(), client_config.clone(), received.clone());
        let mut before = [0, 0];
        let meters = [sent.clone(), received.clone()];
        let done = EventLoop::on(backend).unwrap().block_on(async move {
            tidegate::task::spawn(async move {
                let mut channel = Client::at(address).connect(client_codec(&config, Metered(meter))).await.unwrap();
                download(&mut channel, 100_000).await.unwrap();
                before = [0, 1].map(|at: usize| meters[at].load(Ordering::Relaxed));
                download(&mut channel, BULK_BYTES).await.unwrap();
                channel.close().await.unwrap();
                [0, 1].map(|at: usize| meters[at].load(Ordering::Relaxed) - before[at])
            })
            .await
        });
        println!("{backend:?}: {done:?}");
        server.drain(Duration::from_secs(1));
    }
}

#[test]
fn a_bulk_download_on_a_simulated_network_copies_nothing() {
    let (server_config, client_config) = configurations(ring::default_provider()).unwrap();
    let network = Network::new(7);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let [sent, received] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let meter = sent.clone();
    let address = server
        .serve(443, Limits::default(), move || server_codec(&server_config, Metered(meter.clone())), serve)
        .unwrap();
    let meter = received.clone();
    let done = client.spawn(async move {
        let mut channel = Client::at(address).connect(client_codec(&client_config, Metered(meter))).await.unwrap();
        download(&mut channel, BULK_BYTES).await.unwrap();
        channel.close().await.unwrap();
    });
    network.run_task(Duration::from_secs(100), done);
    println!("sim {sent:?} {received:?}");
}
