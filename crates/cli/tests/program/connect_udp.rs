//! `serve --connect-udp`: UDP tunnels over each HTTP version, its rules, its figures; and `proxy --upgrade connect-udp`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use tidegate::http::{CapsuleClient, ExtendedConnectError, UdpTunnel};
use tidegate::http1::Version;
use tidegate::http3::HttpDatagramLimits;
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Backend, EventLoop, task};

use crate::configuration::{Files, admin};
use crate::support::peer::Peer;
use crate::support::program::{Program, run, tidegate};

const VERSIONS: [Version; 3] = [Version::Http11, Version::Http2, Version::Http3];

/// Sends a datagram through a tunnel to a target, which sends it back. Returns whether datagrams are those of QUIC.
fn exchange(version: Version, proxy: SocketAddr, host: &'static str) -> Result<bool, ExtendedConnectError> {
    let tls = ClientConfig::dangerous_builder_without_verification(&Provider::aws_lc_rs()).build().expect("TLS");
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    target.set_nonblocking(true).expect("a socket");
    let port = target.local_addr().expect("an address").port();
    let ran = EventLoop::on(Backend::Epoll).expect("a loop").block_on(async move {
        let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), &tls, HttpDatagramLimits::default());
        let connection = client.expect("a socket").connect_over(version, proxy, "localhost").await?;
        let mut tunnel = UdpTunnel::open(&connection, host, port).await?;
        tunnel.send(b"ebb").expect("a datagram");
        let mut space = [0; 100];
        let (count, source) = loop {
            match target.recv_from(&mut space) {
                Ok(received) => break received,
                Err(_) => task::sleep(Duration::from_millis(1)).await,
            }
        };
        target.send_to(&space[..count], source).expect("a datagram");
        assert_eq!(tunnel.recv().await.expect("a datagram").as_deref(), Some(&b"ebb"[..]));
        Ok(tunnel.datagram_bytes_max().is_some())
    });
    ran.expect("it runs")
}

fn metrics(program: &Program) -> String {
    let at = admin(program);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    Peer::to(&at.into()).exchange(request).text().to_owned()
}

#[test]
fn a_flag_makes_a_udp_proxy_that_refuses_this_machine_unless_it_is_allowed() {
    let flags = ["--loops", "1", "--tls-self-signed", "--http3", "--admin", "127.0.0.1:0", "--connect-udp"];
    let open = Program::serve(&[&flags[..], &["--connect-udp-allow", "127.0.0.0/8"]].concat());
    let closed = Program::serve(&flags);
    for version in VERSIONS {
        assert_eq!(exchange(version, open.ip(), "127.0.0.1").expect("a tunnel"), version == Version::Http3);
        for (program, host) in [(&open, "10.0.0.1"), (&closed, "127.0.0.1"), (&closed, "::1")] {
            let refused = exchange(version, program.ip(), host);
            assert!(matches!(refused, Err(ExtendedConnectError::Refused(403))), "{version:?} {host}: {refused:?}");
        }
    }
    let text = metrics(&open);
    let proxy = "proxy=\"/.well-known/masque/udp/{target_host}/{target_port}/\"";
    for (name, label, value) in [
        ("opened_total", "", 3),
        ("refused_total", ",reason=\"target\"", 3),
        ("datagrams_total", ",direction=\"to_target\"", 3),
        ("bytes_total", ",direction=\"to_client\"", 9),
        ("dropped_total", "", 0),
    ] {
        let line = format!("tidegate_udp_proxy_{name}{{{proxy}{label}}} {value}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn a_udp_proxy_of_the_flags_asks_for_a_password_and_has_clients() {
    let flags = ["--loops", "1", "--tls-self-signed", "--connect-udp", "--connect-udp-allow", "127.0.0.0/8"];
    for (more, status) in [(["--auth", "ebb:flow"], 401), (["--connect-udp-clients", "192.0.2.0/24"], 403)] {
        let program = Program::serve(&[&flags[..], &more].concat());
        let refused = exchange(Version::Http2, program.ip(), "127.0.0.1");
        assert!(matches!(refused, Err(ExtendedConnectError::Refused(code)) if code == status), "{refused:?}");
    }
    let (code, _, errors) = run(&["serve", "--connect-udp-allow", "127.0.0.0/8"]);
    assert!(code == Some(2) && errors.iter().any(|line| line.contains("--connect-udp")), "{errors:?}");
}

#[test]
fn a_gateway_passes_tunnels_on_to_a_udp_proxy() {
    let allow = ["--loops", "1", "--connect-udp", "--connect-udp-allow", "127.0.0.0/8"];
    let proxy = Program::serve(&allow);
    let upstream = format!("http://{}", proxy.ip());
    let flags = ["--loops", "1", "--tls-self-signed", "--http3", "--upstream", &upstream];
    let gateway = Program::proxy(&[&flags[..], &["--upgrade", "connect-udp"]].concat());
    let without = Program::proxy(&flags);
    for version in VERSIONS {
        assert_eq!(exchange(version, gateway.ip(), "127.0.0.1").expect("a tunnel"), version == Version::Http3);
        let refused = exchange(version, without.ip(), "127.0.0.1");
        assert!(matches!(refused, Err(ExtendedConnectError::Refused(400 | 501))), "{version:?}: {refused:?}");
    }
}

#[test]
fn a_route_of_the_file_is_a_udp_proxy_with_a_path_of_its_own() {
    let files = Files::new();
    let text = |path: &str, rule: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nself-signed = true\n[[route]]\n{path}connect-udp = {{ {rule} }}\n"
        )
    };
    files.write("gateway.toml", &text("", "allow = \"127.0.0.0/8\", ports = [\"1-65535\"], tunnels = 8"));
    let program = Program::start(tidegate(&["run", "--loops", "1", "--config", &files.path("gateway.toml")])).unwrap();
    exchange(Version::Http2, program.ip(), "127.0.0.1").expect("a tunnel");
    for (path, rule, mistake) in [
        ("path = \"/udp/*\"\n", "", "{target_host}"),
        ("path = \"/*\"\n", "", "{target_host}"),
        ("", "nat64 = \"64:ff9b::/95\"", "NAT64"),
        ("", "ports = \"ebb\"", "8000-8100"),
        ("", "allow = \"sea\"", "sea"),
        ("respond = {}\n", "", "a route has one of"),
    ] {
        files.write("wrong.toml", &text(path, rule));
        let (code, _, errors) = run(&["check-config", &files.path("wrong.toml")]);
        assert!(code != Some(0) && errors.iter().any(|line| line.contains(mistake)), "{mistake}: {errors:?}");
    }
}

#[test]
fn a_udp_proxy_for_all_networks_without_authentication_is_warned_of() {
    let all = ["--connect-udp-clients", "0.0.0.0/1", "--connect-udp-clients", "128.0.0.0/1"];
    let flags = ["--loops", "1", "--tls-self-signed", "--connect-udp", "--connect-udp-nat64", "2001:db8:64::/96"];
    Program::serve(&[&flags[..], &all].concat()).until_logged("--connect-udp-clients has all networks", 1);
    let files = Files::new();
    let text = |rule: &str, more: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\n{more}connect-udp = {{ nat64 = \"2001:db8:64::/96\"{rule} }}\n"
        )
    };
    for (rule, more, is_open) in [
        (", clients = [\"0.0.0.0/0\", \"::/0\"]", "", true),
        (", clients = \"::/0\"", "allow = \"::/0\"\n", true),
        (", clients = \"::/0\"", "allow = \"10.0.0.0/8\"\n", false),
        (", clients = \"::/0\"", "basic-auth = { users = { ebb = \"flow\" } }\n", false),
        (", clients = \"10.0.0.0/8\"", "", false),
        ("", "", false),
    ] {
        files.write("gateway.toml", &text(rule, more));
        let (code, _, errors) = run(&["check-config", &files.path("gateway.toml")]);
        let is_warned = errors.iter().any(|line| line.contains("warning") && line.contains("clients of all networks"));
        assert_eq!((code, is_warned), (Some(0), is_open), "{rule} {more}: {errors:?}");
    }
}

#[test]
fn open_tunnels_count_towards_the_rules_of_a_reload() {
    let files = Files::new();
    let text = |rule: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nself-signed = true\n\
             [[route]]\nconnect-udp = {{ allow = \"127.0.0.0/8\"{rule} }}\n"
        )
    };
    files.write("gateway.toml", &text(""));
    let program = files.start("gateway.toml", &["--admin", "127.0.0.1:0"]);
    let tls = ClientConfig::dangerous_builder_without_verification(&Provider::aws_lc_rs()).build().expect("TLS");
    let address = program.ip();
    let has_tunnels = |count: u32| {
        let text = metrics(&program);
        let line = format!("/{{target_port}}/\"}} {count}\n");
        text.contains(&format!("tidegate_udp_proxy_tunnels{{proxy=\"/.well-known/masque/udp/{{target_host}}{line}"))
    };
    let ran = EventLoop::on(Backend::Epoll).expect("a loop").block_on(async {
        let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), &tls, HttpDatagramLimits::default());
        let client = client.expect("a socket");
        let connection = client.connect_over(Version::Http2, address, "localhost").await.expect("a connection");
        let first = UdpTunnel::open(&connection, "127.0.0.1", 9).await.expect("a tunnel");
        files.write("gateway.toml", &text(", tunnels = 1"));
        program.signal(Signal::HUP);
        program.until_logged("configuration reloaded", 1);
        assert!(has_tunnels(1), "{}", metrics(&program));
        let second = UdpTunnel::open(&connection, "127.0.0.1", 9).await;
        assert!(matches!(second, Err(ExtendedConnectError::Refused(503))), "{second:?}");
        drop(first);
        while !has_tunnels(0) {
            task::sleep(Duration::from_millis(1)).await;
        }
        UdpTunnel::open(&connection, "127.0.0.1", 9).await.expect("a tunnel");
    });
    ran.expect("it runs");
}
