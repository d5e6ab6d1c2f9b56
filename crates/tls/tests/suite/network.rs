//! TLS on a simulated network with its faults, by seed, and on sockets.

use std::time::Duration;

use tidegate::framing::{Lines, Raw};
use tidegate::{Address, Backend, Client, EventLoop, Limits, Over, Server, task};
use tidegate_testkit::network::{FaultRates, Network};
use tidegate_testkit::seeds;
use tidegate_tls::{ClientConfig, Provider, ServerConfig};

use crate::support::{NAME, VERSIONS, configurations, download, serve, usual};

async fn fetch(address: Address, config: ClientConfig, bytes: usize) {
    let codec = Over::new(config.connect(NAME).unwrap(), Raw);
    let mut channel = Client::at(address).connect(codec).await.unwrap();
    download(&mut channel, bytes).await.unwrap();
    channel.close().await.unwrap();
}

/// Whether two runs of a seed are the same is no question here: the keys differ.
#[test]
fn downloads_are_complete_whatever_the_faults_of_the_network() {
    for seed in seeds(20) {
        let version = VERSIONS[seed as usize % 2];
        let (server_config, client_config) =
            configurations(&Provider::ring(), |server| server, |client| client.versions(&[version]));
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign());
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let codec = move || Over::new(server_config.accept(), Raw);
        let address = server.serve(443, Limits::default(), codec, serve).unwrap();
        for bytes in [1, 1 << 20] {
            let done = client.spawn(fetch(address.clone(), client_config.clone(), bytes));
            network.run_task(Duration::from_secs(1_000), done);
        }
    }
}

#[test]
fn lines_are_echoed_and_the_server_knows_the_requested_name() {
    for seed in seeds(10) {
        let (server_config, client_config) =
            configurations(&Provider::aws_lc_rs(), |server| server.alpn(["lines"]), |client| client.alpn(["lines"]));
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign());
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let address = server.serve(
            443,
            Limits::default(),
            move || lines(&server_config),
            async |mut channel| {
                while let Some(line) = channel.recv().await? {
                    let name = channel.with_codec(|codec| codec.filter().server_name().map(str::to_owned))?;
                    assert_eq!(name.as_deref(), Some(NAME));
                    channel.send(line.into())?;
                }
                Ok::<_, tidegate::ChannelError>(())
            },
        );
        let address = address.unwrap();
        let done = client.spawn(async move {
            let codec = Over::new(client_config.connect(NAME).unwrap(), Lines::new());
            let mut channel = Client::at(address).connect(codec).await.unwrap();
            for line in ["ebb", "flow"] {
                channel.send(line.into()).unwrap();
                assert_eq!(channel.recv().await.unwrap().as_deref(), Some(line.as_bytes()));
            }
            channel.close().await.unwrap();
        });
        network.run_task(Duration::from_secs(1_000), done);
    }
}

fn lines(config: &ServerConfig) -> Over<tidegate_tls::Tls, Lines> {
    Over::new(config.accept(), Lines::new())
}

#[test]
fn a_download_over_loopback_is_complete() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else {
            println!("skipped: there is no {backend:?} here");
            continue;
        };
        let (server_config, client_config) = usual();
        let codec = move || Over::new(server_config.accept(), Raw);
        let server = Server::bind("127.0.0.1:0").unwrap().backend(backend).loops(1).serve(codec, serve).unwrap();
        let address = server.address().clone();
        let client = async move { task::spawn(fetch(address, client_config, 32 << 20)).await };
        event_loop.block_on(client).unwrap().unwrap();
        server.drain(Duration::from_secs(1));
    }
}
