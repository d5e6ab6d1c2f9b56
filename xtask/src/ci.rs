//! All checks of a change. What is exhaustive is sampled here, another sample each time; `long.rs` has the whole.

use std::fs;

use crate::chance::cargo_test;
use crate::command::{Failure, Step, cargo, python};
use crate::fuzz;
use crate::injected;
use crate::measure;
use crate::release;
use crate::smoke::smoke;
use crate::steps::{NamedStep, step, step_apart};
use crate::tools;

pub(crate) fn steps() -> Vec<NamedStep> {
    let mut steps = checks();
    steps.extend(examples());
    steps.extend(measurements());
    steps
}

fn checks() -> Vec<NamedStep> {
    vec![
        step("tools", || tools::install(tools::OF_CI)),
        step("format", || cargo(["fmt", "--all", "--check"]).run()),
        step("lints", || cargo("clippy --workspace --all-targets -- -D warnings".split(' ')).run()),
        step("tests, by the command in the README", || cargo_test(test_command()?)),
        // Servers in these tests run on io_uring, if it is available. The contract runs on both backends anyway; this
        // repeats the end-to-end tests of the program on epoll, except those that name their backend.
        step("the program on epoll", || {
            let test = "test --package tidegate-cli --test program -- --skip faults --skip backends";
            cargo_test(cargo(test.split(' ')).env("TIDEGATE_BACKEND", "epoll"))
        }),
        step("the contract with a sample of seeds", || measure::contract_seeds(100, None)),
        step_apart("the contract with a sample of injected bugs", "target/injected", || {
            injected::run(&injected::Options::sample_of(6))
        }),
        step_apart("fuzzing", "target/fuzz/none", || fuzz::run(&fuzz::Options::sample_of(20_000))),
        step_apart("lines that the fuzz corpora reach", "target/fuzz/coverage", || python("fuzz/coverage.py").run()),
        step("documentation", measure::documentation),
        step_apart("packages of all crates", "target/release-packages", release::packages),
        step("the oldest supported compiler", release::oldest_compiler),
        step_apart("address sanitizer", "target/asan", || measure::address_sanitizer(&[])),
    ]
}

/// Each example runs by itself once, on both backends.
fn examples() -> Vec<NamedStep> {
    let run = |name: &'static str, backend: &'static str| {
        let example = move || cargo(["run", "--quiet", "--example", name]).env("TIDEGATE_BACKEND", backend).run();
        step(format!("example {name} on {backend}"), example)
    };
    EXAMPLES.into_iter().flat_map(|name| [run(name, "auto"), run(name, "epoll")]).collect()
}

const EXAMPLES: [&str; 25] = [
    "axum",
    "behind_proxy",
    "chat",
    "client_load",
    "crud",
    "echo",
    "echo_channel",
    "fetch",
    "forwarder",
    "game",
    "health",
    "heartbeat",
    "http_service",
    "long_poll",
    "operations",
    "plaintext",
    "push",
    "socks_server",
    "sse_push",
    "streams",
    "tally",
    "tides",
    "two_protocols",
    "websocket",
    "within_tokio",
];

fn measurements() -> Vec<NamedStep> {
    let mut steps = vec![
        step("release builds", measure::release_builds_for_memory),
        step("the program as in the README", smoke),
        step("tests of the comparison", || python("-m").arg("unittest").folder("benches/peers").run()),
        step("instruction counts", || measure::instructions("--check")),
        step("memory", measure::memory),
        step("crowds", || measure::crowds().run()),
        step("short connections", || measure::churn(5, &[])),
        step("system calls", || {
            python("benches/calls.py")
                .args(["--seconds", "1", "--depths", "16"])
                .env("TIDEGATE_PROFILE", "release")
                .run()
        }),
        step("memory of an upload", || {
            let max = (512 * 1024).to_string();
            python("benches/upload.py")
                .args(["--alone", "--rounds", "1", "--max", &max])
                .env("TIDEGATE_PROFILE", "release")
                .run()
        }),
        step("no descriptors", measure::descriptors),
        step("behind nginx and HAProxy", || python("interop/proxies.py").run()),
        step("the live page in a browser", || python("interop/dashboard.py").args(["--backends", "epoll"]).run()),
        step("the image in namespaces", || python("interop/container.py").run()),
        step("the manifest of Kubernetes", || {
            tools::install_python("kubernetes-validate", KUBERNETES_VALIDATE)
                .and_then(|()| python("interop/kubernetes.py").run())
        }),
        step("a rolling restart behind HAProxy", || python("interop/rolling.py").run()),
        step("in front of Python and nginx", || python("interop/gateway.py").run()),
        step("the PROXY protocol of HAProxy and nginx", || python("interop/proxy_protocol.py").run()),
        step("TLS by sslyze and OpenSSL", || {
            tools::install_python("sslyze", SSLYZE).and_then(|()| python("interop/tls.py").run())
        }),
        step("HTTP/2 by h2spec", || {
            let h2spec = "github.com/summerwind/h2spec/cmd/h2spec";
            tools::install_go("h2spec", h2spec, "v2.2.1+incompatible").and_then(|()| python("interop/http2.py").run())
        }),
        step("HTTP/2 with Python, Go, Node and a browser", || {
            tools::install_python_package("httpx", "[http2]", "0.28.1")
                .and_then(|()| python("interop/http2_peers.py").run())
        }),
        step("gRPC by grpcurl", || {
            let grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl";
            tools::install_go("grpcurl", grpcurl, "v1.9.3").and_then(|()| python("interop/grpc.py").run())
        }),
        step("gRPC by the interop client", || {
            let client = "google.golang.org/grpc/interop/client";
            tools::install_go_apart("grpc_interop", "client", client, "v1.85.0")
                .and_then(|()| python("interop/grpc_interop.py").run())
        }),
        step("gRPC by connectconformance", || {
            let runner = "connectrpc.com/conformance/cmd/connectconformance";
            tools::install_go("connectconformance", runner, "v1.0.7")
                .and_then(|()| python("interop/grpc_conformance.py").run())
        }),
        step("the WebSocket cases of kosoku", || {
            tools::install_python("kosoku", KOSOKU).and_then(|()| python("interop/websocket.py").run())
        }),
        step("WebSocket with Python, Node and a browser", || {
            install_websocket_clients().and_then(|()| python("interop/websocket_clients.py").run())
        }),
        step("two browsers in a chat", || python("interop/chat.py").run()),
        step("slow clients", || python("interop/slow.py").run()),
        step("slow clients of a proxy", slow_clients_of_a_proxy),
        step("a proxy between two toxiproxies", || install_toxiproxy().and_then(|()| python("interop/toxic.py").run())),
        step("SOCKS of microsocks, Dante, curl and proxychains4", || python("interop/socks.py").run()),
    ];
    for queue in ["array", "linked"] {
        steps.push(step(format!("tests and lints of the {queue} queue"), move || test_queue(queue)));
    }
    steps
}

/// The version of kubernetes-validate, which has the schemas of Kubernetes up to its own.
const KUBERNETES_VALIDATE: &str = "1.37.0";

/// A short form: the deadlines are those of the server, which has a step of its own.
fn slow_clients_of_a_proxy() -> Result<(), Failure> {
    let flags = "--proxy --backends epoll --connections 400 --rate 400 --seconds 7 --deadline 2";
    let attacks = ["--attacks", "slow heads", "slow bodies", "ranges", "slow reading"];
    python("interop/slow.py").args(flags.split(' ')).args(attacks).run()
}

pub(crate) fn install_websocket_clients() -> Result<(), Failure> {
    tools::install_python_package("websockets", "", "15.0.1").and_then(|()| tools::install_node("ws", "8.18.3"))
}

pub(crate) fn install_toxiproxy() -> Result<(), Failure> {
    let package = "github.com/Shopify/toxiproxy/v2/cmd/server";
    tools::install_go_apart("toxiproxy", "server", package, "v2.12.0")
}

/// The version of kosoku.
pub(crate) const KOSOKU: &str = "0.1.0";

/// The version of sslyze.
pub(crate) const SSLYZE: &str = "6.3.1";

/// The buffer's tests with another queue in its place: docs/queue-experiment.md.
pub(crate) fn test_queue(queue: &str) -> Result<(), Failure> {
    let cargo = |command: &str| {
        let step = cargo([command, "--manifest-path", "benches/experiment/buffer/Cargo.toml", "--locked"]);
        let step = step.args(["--target-dir", &format!("target/experiment/buffer/{queue}")]);
        step.env("RUSTFLAGS", format!("--cfg tidegate_queue=\"{queue}\""))
    };
    cargo("test").arg("--tests").run()?;
    cargo("clippy").args(["--all-targets", "--", "-D", "warnings"]).run()
}

/// The test command in the README, exactly.
fn test_command() -> Result<Step, Failure> {
    let readme = fs::read_to_string("README.md").map_err(|error| Failure(format!("README.md: {error}")))?;
    let line = readme.lines().find(|line| line.starts_with("cargo test "));
    let line = line.ok_or_else(|| Failure("README.md has no line that begins with `cargo test`".into()))?;
    Ok(Step::line(line.split('#').next().unwrap_or_default()))
}
