//! Other programs against ours: a step for each script in `interop/`. One script of each protocol runs in ci, the others and
//! the long forms in long.

use crate::command::{Failure, cargo, python};
use crate::steps::{NamedStep, step, step_apart};
use crate::tools::{self, Tool};

/// One representative of each protocol.
pub(crate) fn representatives() -> Vec<NamedStep> {
    vec![
        in_ci(FIRST_OF_CI, &[], "proxies.py"),
        in_ci("the PROXY protocol of HAProxy and nginx", &[], "proxy_protocol.py"),
        in_ci("TLS by sslyze and OpenSSL", &[tools::SSLYZE], "tls.py"),
        in_ci("HTTP/2 by h2spec", &[tools::H2SPEC], "http2.py"),
        in_ci("HTTP/3 by aioquic", &[tools::AIOQUIC], "http3.py"),
        in_ci("gRPC by grpcurl", &[tools::GRPCURL], "grpc.py"),
        in_ci("the WebSocket cases of kosoku", &[tools::KOSOKU], "websocket.py"),
        in_ci("SOCKS of microsocks, Dante, curl and proxychains4", &[], "socks.py"),
        in_ci("rooms of nodes that redis-server disconnects", &[], "brokers.py redis-buffer"),
    ]
}

/// The first of the representatives.
pub(crate) const FIRST_OF_CI: &str = "behind nginx and HAProxy";

/// All others, and the long forms of those above.
pub(crate) fn others() -> Vec<NamedStep> {
    vec![
        in_long("large bodies behind nginx and HAProxy", &[], "proxies.py --mib 256 --seconds 20"),
        in_long("in front of Python and nginx", &[], "gateway.py"),
        in_long("everyday set-ups beside nginx", &[], "setups.py"),
        in_long("a million requests during rolling restarts behind HAProxy", &[], "rolling.py --requests 1000000"),
        in_long("HTTP/2 with Python, Go, Node and a browser", &[tools::HTTPX], "http2_peers.py"),
        in_long("certificates by pebble", &[tools::PEBBLE, tools::PEBBLE_DNS], "acme.py"),
        in_long("gRPC by the interop client", &[tools::GRPC_INTEROP], "grpc_interop.py"),
        in_long("gRPC by connectconformance", &[tools::CONNECTCONFORMANCE], "grpc_conformance.py"),
        in_long(
            "WebSocket with Python, Node, a browser and websocat",
            &[tools::WEBSOCKETS, tools::WS, tools::WEBSOCAT],
            "websocket_clients.py --websocat",
        ),
        in_long("a DNS zone by dnspython and dig", &[tools::DNSPYTHON], "zone.py"),
        in_long("datagrams by socat and scapy", &[tools::SCAPY], "datagrams.py"),
        in_long("datagrams over links between namespaces", &[], "links.py"),
        in_long("HTTP/3 by h3spec", &[tools::H3SPEC], "h3spec.py"),
        in_long("QUIC by aioquic", &[tools::AIOQUIC], "quic.py"),
        in_long("QPACK tables by ls-qpack", &[tools::AIOQUIC], "qpack.py"),
        in_long("QPACK tables by aioquic", &[tools::AIOQUIC], "qpack_tables.py"),
        in_long("WebTransport by aioquic", &[tools::AIOQUIC], "webtransport.py"),
        in_long("UDP over HTTP by aioquic", &[tools::AIOQUIC], "connect_udp.py"),
        in_long("WebTransport by a browser", &[], "webtransport.py --browser"),
        in_long("a DNS forwarder by dnspython, dig and dnsperf", &[tools::DNSPYTHON], "forwarder.py"),
        in_long("Redis clients through a proxy", &[tools::REDIS_PY, tools::IOREDIS], "redis.py"),
        in_long("rooms of two nodes and a partition", &[], "partition.py"),
        in_long("rooms whose broker fails", &[], "brokers.py"),
        in_long("all WebSocket cases of kosoku", &[tools::KOSOKU], "websocket.py --all"),
        in_long("all WebSocket cases of kosoku over TLS", &[tools::KOSOKU], "websocket.py --all --tls"),
        in_long("TLS by testssl.sh", &[tools::SSLYZE], "tls.py --testssl"),
        in_long("two browsers in a chat", &[], "chat.py"),
        in_long("the live page in a browser", &[], "dashboard.py --backends epoll"),
        in_long("the manifest of Kubernetes", &[tools::KUBERNETES_VALIDATE], "kubernetes.py"),
        step_apart("the image in namespaces", "target/x86_64-unknown-linux-gnu", || {
            tools::install(tools::OF_LONG).and_then(|()| python("interop/container.py").run())
        })
        .of(INPUTS),
        in_long("smuggled requests", &[tools::SMUGGLEX], "smuggling.py --timeout 10"),
        in_long("requests smuggled through a proxy", &[tools::SMUGGLEX], "smuggling.py --proxy --timeout 10"),
        in_long(
            "slow clients, half a minute of each",
            &[],
            "slow.py --seconds 30 --deadline 10 --least-rate 480 --rate 200 --patient",
        ),
        in_long("slow clients of a proxy", &[], "slow.py --proxy"),
        in_long("a proxy between two toxiproxies", &[tools::TOXIPROXY], "toxic.py --requests 30"),
    ]
}

/// A step of ci.
fn in_ci(name: &str, tools: &'static [Tool], line: &'static str) -> NamedStep {
    step(name, move || tools::install(tools::OF_CI).and_then(|()| run(tools, line)))
}

/// A step of long.
fn in_long(name: &str, tools: &'static [Tool], line: &'static str) -> NamedStep {
    let packages = || tools::install(tools::OF_CI).and_then(|()| tools::install(tools::OF_LONG));
    step(name, move || packages().and_then(|()| run(tools, line))).of(INPUTS)
}

/// Runs a script with its arguments, after its tools and the program are there.
fn run(tools: &[Tool], line: &str) -> Result<(), Failure> {
    tools.iter().try_for_each(|tool| tool.install())?;
    release_program()?;
    let (script, arguments) = line.split_once(' ').unwrap_or((line, ""));
    python(&format!("interop/{script}")).args(arguments.split_whitespace()).run()
}

/// The program as the README builds it. Examples are built by the scripts that run them.
pub(crate) fn release_program() -> Result<(), Failure> {
    cargo("build --release --bin tidegate".split(' ')).run()
}

const INPUTS: &[&str] = &["crates", "deploy", "examples", "interop", ":(glob)benches/*.py", "benches/load.lua"];

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn each_script_has_a_step() {
        let steps = include_str!("interop.rs");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop");
        let scripts = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        // A script that others import has no `__main__`. `smuggling.py` starts `naive.py`, and `container.py` `image.py`.
        // `pictures.py` makes files of the repository.
        let is_run = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|extension| extension == "py")
                && fs::read_to_string(path).unwrap().contains("__main__")
        };
        let mut names: Vec<_> = scripts.filter(is_run).map(|path| path.file_name().unwrap().to_owned()).collect();
        names.retain(|name| name != "naive.py" && name != "image.py" && name != "pictures.py");
        assert!(names.len() > 15, "{names:?}");
        for name in names.iter().map(|name| name.to_str().unwrap()) {
            assert!(steps.contains(&format!("\"{name}")) || steps.contains(&format!("interop/{name}")), "{name}");
        }
    }
}
