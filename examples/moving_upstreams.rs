//! A gateway whose upstreams move while it runs: they are those of the EndpointSlices of a Kubernetes service.
//!
//! ```sh
//! cargo run --example moving_upstreams                            # checks itself, and ends
//! kubectl get endpointslices -l kubernetes.io/service-name=app -o json > slices.json
//! cargo run --example moving_upstreams -- 127.0.0.1:8080 slices.json  # reads the file every second
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use serde::Deserialize;
use tidegate::http::client::Client;
use tidegate::http::proxy::{Proxy, UpstreamUrl, Upstreams, UpstreamsHandle};
use tidegate::http::{Router, Server};
use tidegate::{Backend, EventLoop, ServerHandle};

/// An `EndpointSliceList` of `discovery.k8s.io/v1`: of its fields, those that name servers.
#[derive(Debug, Deserialize)]
struct SliceList {
    items: Vec<EndpointSlice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    address_type: String,
    #[serde(default)]
    endpoints: Vec<PodEndpoint>,
    #[serde(default)]
    ports: Vec<PodPort>,
}

#[derive(Debug, Deserialize)]
struct PodEndpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Debug, Default, Deserialize)]
struct Conditions {
    /// Unknown is ready.
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct PodPort {
    port: Option<u16>,
}

/// The servers of a list: each ready endpoint, at the first port of its slice.
fn servers(list: &str) -> Result<Vec<(UpstreamUrl, u32)>, Box<dyn Error>> {
    let list: SliceList = serde_json::from_str(list)?;
    let mut servers = Vec::new();
    for slice in list.items {
        let Some(port) = slice.ports.first().and_then(|port| port.port) else { continue };
        let is_ready = |endpoint: &&PodEndpoint| endpoint.conditions.ready != Some(false);
        for endpoint in slice.endpoints.iter().filter(is_ready) {
            // All addresses of an endpoint are of one pod, and the first one is enough.
            let Some(address) = endpoint.addresses.first() else { continue };
            let url = match &*slice.address_type {
                "IPv6" => format!("http://[{address}]:{port}"),
                _ => format!("http://{address}:{port}"),
            };
            servers.push((url.parse()?, 1));
        }
    }
    Ok(servers)
}

/// Starts a gateway without servers, and returns the handle that sets them.
fn gateway(address: &str) -> Result<(ServerHandle, UpstreamsHandle), Box<dyn Error>> {
    let upstreams = Upstreams::builder().allow_empty().build()?;
    let handle = upstreams.handle();
    let server = Server::bind(address)?.start(move || Router::new().fallback(Proxy::new(&upstreams)))?;
    Ok((server, handle))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check(),
        [address, file] => {
            let (server, handle) = gateway(address)?;
            println!("listening on {}", server.address());
            loop {
                match std::fs::read_to_string(file).map_err(Into::into).and_then(|list| servers(&list)) {
                    Ok(servers) => handle.set(servers)?,
                    // The servers stay: a file that is half written is no list without servers.
                    Err(error) => eprintln!("{file}: {error}"),
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        _ => Err("give an address and a file, or nothing".into()),
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let service =
        |name: &'static str| Server::bind("127.0.0.1:0")?.loops(1).start(move || Router::new().fallback(move || name));
    let (first, second) = (service("first")?, service("second")?);
    let (server, handle) = gateway("127.0.0.1:0")?;
    let port = |service: &ServerHandle| service.address().ip().map_or(0, |address| address.port());
    let list = |port: u16| {
        format!(
            r#"{{"kind": "List", "items": [{{"addressType": "IPv4", "ports": [{{"name": "http", "port": {port}}}], "endpoints": [
                {{"addresses": ["127.0.0.1"], "conditions": {{"ready": true}}}},
                {{"addresses": ["192.0.2.1"], "conditions": {{"ready": false}}}}
            ]}}]}}"#
        )
    };
    let url = format!("http://{}/", server.address());
    let (handle, lists) = (handle, [list(port(&first)), list(port(&second))]);
    let answers = EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = Client::new();
        let mut answers = vec![client.get(&url).send().await?.status().to_string()];
        for list in lists {
            handle.set(servers(&list)?)?;
            answers.push(client.get(&url).send().await?.text().await?);
        }
        Ok::<_, Box<dyn Error>>(answers)
    })??;
    assert_eq!(answers, ["503 Service Unavailable", "first", "second"]);
    assert!(servers("{\"items\": [{}]}").is_err());
    println!("the upstreams have moved: {answers:?}");
    Ok(())
}

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
