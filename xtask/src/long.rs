//! What `ci.rs` samples, complete; the peers of the comparison; and the long measurements, for an otherwise idle machine.

use crate::ci;
use crate::command::{Failure, cargo, python};
use crate::fuzz;
use crate::injected;
use crate::measure::{self, BACKENDS, server};
use crate::release;
use crate::steps::{NamedStep, step};
use crate::tools;

pub(crate) fn steps() -> Vec<NamedStep> {
    let mut steps = exhaustive();
    steps.extend(costs());
    steps.extend(comparisons());
    steps
}

fn exhaustive() -> Vec<NamedStep> {
    vec![
        step("tools", || tools::install(tools::OF_CI).and_then(|()| tools::install_crate("smugglex", "0.4.0"))),
        step("packages that compile", release::packages_that_compile),
        step("interfaces beside the baseline", || {
            tools::install_crate("cargo-semver-checks", release::SEMVER_CHECKS).and_then(|()| release::interfaces())
        }),
        step("the contract with 10,000 seeds", || measure::contract_seeds(10_000, Some(0))),
        step("the contract with all injected bugs", || injected::run(&injected::Options::all())),
        step("a million simulated connections", || measure::simulated_crowd(1_000_000)),
        step("a million streams on 64 sessions", || {
            let test = "test --release --package tidegate-engine --test suite -- --nocapture stream_memory::";
            cargo(test.split(' ')).env("TIDEGATE_STREAMS", "1000000").run()
        }),
        step("a hundred million heads beside httparse", || {
            let test = "test --release --package tidegate-scan --test suite -- --nocapture httparse::mutated";
            cargo(test.split(' ')).env("TIDEGATE_HEADS", "100000000").run()
        }),
        step("fuzzing, ten minutes each", || fuzz::run(&fuzz::Options::all(600))),
        step("a hundred restarts", || {
            let test = "test --release --package tidegate-cli --test program -- --nocapture restarts_of";
            cargo(test.split(' ')).env("TIDEGATE_RESTARTS", "100").run()
        }),
        step("behind nginx and HAProxy", || {
            python("interop/proxies.py").args(["--mib", "256", "--seconds", "20"]).run()
        }),
        step("a rolling restart behind HAProxy", || python("interop/rolling.py").args(["--requests", "1000000"]).run()),
        step("in front of Python and nginx", || python("interop/gateway.py").run()),
        step("the PROXY protocol of HAProxy and nginx", || python("interop/proxy_protocol.py").run()),
        step("WebSocket with Python, Node, a browser and websocat", || {
            ci::install_websocket_clients()?;
            tools::install_crate("websocat", "1.14.0")?;
            python("interop/websocket_clients.py").arg("--websocat").run()
        }),
        step("all WebSocket cases of kosoku", || {
            tools::install_python("kosoku", ci::KOSOKU)?;
            python("interop/websocket.py").arg("--all").run()
        }),
        step("all WebSocket cases of kosoku over TLS", || {
            tools::install_python("kosoku", ci::KOSOKU)?;
            python("interop/websocket.py").args(["--all", "--tls"]).run()
        }),
        step("TLS by sslyze, OpenSSL and testssl.sh", || {
            tools::install(tools::OF_LONG)?;
            tools::install_python("sslyze", ci::SSLYZE)?;
            python("interop/tls.py").arg("--testssl").run()
        }),
        step("a hundred thousand handshakes that are dropped", || {
            let test = "test --release --package tidegate-tls --test suite -- --nocapture crowd::";
            cargo(test.split(' ')).env("TIDEGATE_HANDSHAKES", "100000").run()
        }),
        step("smuggled requests", || python("interop/smuggling.py").args(["--timeout", "10"]).run()),
        step("requests smuggled through a proxy", || {
            python("interop/smuggling.py").args(["--proxy", "--timeout", "10"]).run()
        }),
        step("slow clients, a minute of each", || {
            let flags = "--seconds 60 --deadline 20 --least-rate 240 --rate 200 --patient";
            python("interop/slow.py").args(flags.split(' ')).run()
        }),
        step("slow clients of a proxy", || python("interop/slow.py").arg("--proxy").run()),
        step("a proxy between two toxiproxies", || {
            ci::install_toxiproxy()?;
            python("interop/toxic.py").args(["--requests", "30"]).run()
        }),
    ]
}

fn costs() -> Vec<NamedStep> {
    let mut steps = vec![step("release builds", measure::release_builds), step("memory", measure::memory)];
    for backend in BACKENDS {
        steps.push(step(format!("memory of 15,000 connections on {backend}"), move || {
            let server = server(&format!("--quiet --max-connections 20000 --backend {backend}"));
            let bars = ["idle", "--connections", "15000", "--max", "320", "--server", &server];
            python("benches/memory.py").args(bars).run()
        }));
        steps.push(step(format!("crowds on {backend}"), move || {
            measure::crowds().env("TIDEGATE_BACKEND", backend).run()
        }));
    }
    steps.push(step("short connections", || measure::churn(60, &["--rate-min", "10000"])));
    steps.push(step("turns beside scrapes and lists of connections", || {
        for backend in BACKENDS {
            let server = server(&format!("--quiet --backend {backend} --admin 127.0.0.1:0"));
            python("benches/scrape.py").args(["--max", "1024", "--server", &server]).run()?;
        }
        Ok(())
    }));
    steps.push(step("system calls", || python("benches/calls.py").run()));
    steps.push(step("no descriptors", measure::descriptors));
    steps
}

fn comparisons() -> Vec<NamedStep> {
    vec![
        step("tools of the peers", || tools::install(tools::OF_PEERS)),
        step("release build of the peers", || {
            cargo("build --release --manifest-path benches/peers/Cargo.toml".split(' ')).run()
        }),
        step("the peers answer alike", || python("benches/peers/check.py").run()),
        step("comparison", || python("benches/compare.py").args(["--rounds", "5"]).run()),
        step("epoll beside io_uring", || {
            let backends =
                BACKENDS.map(|backend| format!("{backend}={}", server(&format!("--quiet --backend {backend}"))));
            compare(&["--rounds", "12", "--seconds", "2"], &backends)
        }),
        step("a channel beside a handler", || {
            let plaintext = "target/release/examples/plaintext 127.0.0.1:0";
            let kinds = ["handler", "channel"].map(|kind| format!("{kind}={plaintext} {kind}"));
            compare(&["--rounds", "9", "--seconds", "2", "--depths", "16"], &kinds)
        }),
        step("a forwarder beside HAProxy", || python("benches/forward.py").run()),
        step("a proxy beside nginx and HAProxy, one request at a time", || {
            python("benches/proxy.py").args(["target/release/tidegate", "--depths", "1", "--bars"]).run()
        }),
        step("TLS beside hyper and nginx", || python("benches/tls.py").args(["--idle-max", "4300"]).run()),
        step("gRPC beside tonic on hyper", || {
            cargo("build --release --example grpc".split(' ')).run()?;
            cargo("build --release --manifest-path benches/peers/tonic014/Cargo.toml".split(' ')).run()?;
            python("benches/grpc.py").run()
        }),
        step("equivalent requests", || python("benches/compare.py").args(["--server", "tidegate", "--variants"]).run()),
        step("queue experiment", || cargo("run --release -- experiment --rounds 5".split(' ')).run()),
        step("side by side", || python("benches/peers/run.py").args(["--out", "target/benchmarks"]).run()),
    ]
}

fn compare(flags: &[&str], servers: &[String]) -> Result<(), Failure> {
    let servers = servers.iter().flat_map(|server| ["--server", server.as_str()]);
    python("benches/compare.py").args(flags.iter().copied()).args(servers).run()
}
