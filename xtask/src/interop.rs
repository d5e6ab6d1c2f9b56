//! Other programs against ours: a step for each script in `interop/`. One script of each protocol runs in ci, the others and
//! the long forms in long.

use crate::command::{Failure, cargo, python};
use crate::steps::{NamedStep, step, step_apart};
use crate::tools::{self, Tool};

/// One representative of each protocol.
pub(crate) fn representatives() -> Vec<NamedStep> {
    vec![
        script("behind nginx and HAProxy", &[], "proxies.py"),
        script("the PROXY protocol of HAProxy and nginx", &[], "proxy_protocol.py"),
        script("TLS by sslyze and OpenSSL", &[tools::SSLYZE], "tls.py"),
        script("HTTP/2 by h2spec", &[tools::H2SPEC], "http2.py"),
        script("gRPC by grpcurl", &[tools::GRPCURL], "grpc.py"),
        script("the WebSocket cases of kosoku", &[tools::KOSOKU], "websocket.py"),
        script("SOCKS of microsocks, Dante, curl and proxychains4", &[], "socks.py"),
    ]
}

/// All others, and the long forms of those above.
pub(crate) fn others() -> Vec<NamedStep> {
    vec![
        script("large bodies behind nginx and HAProxy", &[], "proxies.py --mib 256 --seconds 20"),
        script("in front of Python and nginx", &[], "gateway.py"),
        script("a million requests during rolling restarts behind HAProxy", &[], "rolling.py --requests 1000000"),
        script("HTTP/2 with Python, Go, Node and a browser", &[tools::HTTPX], "http2_peers.py"),
        script("gRPC by the interop client", &[tools::GRPC_INTEROP], "grpc_interop.py"),
        script("gRPC by connectconformance", &[tools::CONNECTCONFORMANCE], "grpc_conformance.py"),
        script(
            "WebSocket with Python, Node, a browser and websocat",
            &[tools::WEBSOCKETS, tools::WS, tools::WEBSOCAT],
            "websocket_clients.py --websocat",
        ),
        script("all WebSocket cases of kosoku", &[tools::KOSOKU], "websocket.py --all"),
        script("all WebSocket cases of kosoku over TLS", &[tools::KOSOKU], "websocket.py --all --tls"),
        script("TLS by testssl.sh", &[tools::SSLYZE], "tls.py --testssl"),
        script("two browsers in a chat", &[], "chat.py"),
        script("the live page in a browser", &[], "dashboard.py --backends epoll"),
        script("the manifest of Kubernetes", &[tools::KUBERNETES_VALIDATE], "kubernetes.py"),
        step_apart("the image in namespaces", "target/x86_64-unknown-linux-gnu", || {
            python("interop/container.py").run()
        })
        .of(INPUTS),
        script("smuggled requests", &[tools::SMUGGLEX], "smuggling.py --timeout 10"),
        script("requests smuggled through a proxy", &[tools::SMUGGLEX], "smuggling.py --proxy --timeout 10"),
        script(
            "slow clients, half a minute of each",
            &[],
            "slow.py --seconds 30 --deadline 10 --least-rate 480 --rate 200 --patient",
        ),
        script("slow clients of a proxy", &[], "slow.py --proxy"),
        script("a proxy between two toxiproxies", &[tools::TOXIPROXY], "toxic.py --requests 30"),
    ]
}

/// A step that runs a script with its arguments, after the tools and the program are there.
fn script(name: &str, tools: &'static [Tool], line: &'static str) -> NamedStep {
    step(name, move || {
        tools.iter().try_for_each(|tool| tool.install())?;
        release_program()?;
        let (script, arguments) = line.split_once(' ').unwrap_or((line, ""));
        python(&format!("interop/{script}")).args(arguments.split_whitespace()).run()
    })
    .of(INPUTS)
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
        let is_run = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|extension| extension == "py")
                && fs::read_to_string(path).unwrap().contains("__main__")
        };
        let mut names: Vec<_> = scripts.filter(is_run).map(|path| path.file_name().unwrap().to_owned()).collect();
        names.retain(|name| name != "naive.py" && name != "image.py");
        assert!(names.len() > 15, "{names:?}");
        for name in names.iter().map(|name| name.to_str().unwrap()) {
            assert!(steps.contains(&format!("\"{name}")) || steps.contains(&format!("interop/{name}")), "{name}");
        }
    }
}
