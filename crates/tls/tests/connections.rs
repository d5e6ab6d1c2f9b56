//! Connections of both roles, on a simulated network.

use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::{Client, Limits, Over};
use tidegate_testkit::network::Network;
use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::{Certificates, ClientConfig, Provider, ServerConfig};

fn configurations(provider: &Provider) -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["tide.test".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(provider, chain.as_bytes(), key.as_bytes()).unwrap();
    let server = ServerConfig::builder(provider, certificates).alpn(["lines"]).build().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder(provider, roots).unwrap().alpn(["other", "lines"]).build().unwrap();
    (server, client)
}

#[test]
fn lines_are_echoed_over_tls_with_each_provider() {
    for provider in [Provider::aws_lc_rs(), Provider::ring()] {
        let (server_config, client_config) = configurations(&provider);
        let network = Network::new(1);
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let codec = move || Over::new(server_config.accept(), Lines::new());
        let address = server
            .serve(443, Limits::default(), codec, async |mut channel| {
                while let Some(line) = channel.recv().await? {
                    let name = channel.with_codec(|codec| codec.filter().server_name().map(str::to_owned))?;
                    assert_eq!(name.as_deref(), Some("tide.test"));
                    channel.send(line.into())?;
                }
                Ok::<_, tidegate::ChannelError>(())
            })
            .unwrap();
        let done = client.spawn(async move {
            let codec = Over::new(client_config.connect("tide.test").unwrap(), Lines::new());
            let mut channel = Client::at(address).connect(codec).await.unwrap();
            channel.send("ebb".into()).unwrap();
            let line = channel.recv().await.unwrap();
            let alpn = channel.with_codec(|codec| codec.filter().alpn().map(<[u8]>::to_vec)).unwrap();
            channel.close().await.unwrap();
            (line.map(|line| line.to_vec()), alpn)
        });
        let (line, alpn) = network.run_task(Duration::from_secs(10), done);
        assert_eq!((line.as_deref(), alpn.as_deref()), (Some(&b"ebb"[..]), Some(&b"lines"[..])));
    }
}
