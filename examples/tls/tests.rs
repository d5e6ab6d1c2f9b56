//! The example checks itself, and a foreign client downloads from it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Backend, EventLoop, Over, Server, task};

use crate::{WATER, check, configurations, serve};

#[test]
fn a_download_is_complete() {
    let (server_config, client_config) = configurations().unwrap();
    let codec = move || Over::new(server_config.accept(), Raw);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(codec, serve).unwrap();
    let address = server.address().clone();
    let mut client = EventLoop::on(Backend::Auto).unwrap();
    let checked =
        async move { task::spawn(async move { check(address, client_config, 1 << 20).await.unwrap() }).await };
    client.block_on(checked).unwrap().unwrap();
    server.drain(Duration::from_secs(1));
}

#[test]
fn openssl_downloads_over_both_versions() {
    let (server_config, _) = configurations().unwrap();
    let codec = move || Over::new(server_config.accept(), Raw);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(codec, serve).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let address = server.address().to_string();
        let client = Command::new("openssl")
            .args(["s_client", "-quiet", version, "-connect", &address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut client = match client {
            Ok(client) => client,
            Err(error) => {
                let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
                assert!(!required, "openssl is required: {error}");
                return println!("skipped: there is no openssl here: {error}");
            }
        };
        let (mut stdin, mut stdout) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        let mut received = vec![0; 1 << 20];
        let done = stdin.write_all(b"1048576\n").and_then(|()| stdout.read_exact(&mut received));
        client.kill().unwrap();
        client.wait().unwrap();
        done.unwrap();
        assert!(received.chunks(WATER.len()).all(|piece| piece == WATER), "{version}");
    }
    server.drain(Duration::from_secs(1));
}
