//! Rates that gateways share in a Redis server over TLS.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::configuration::{Files, ask};
use crate::support::program::{Program, can_use, ending_with_the_test, until};
use crate::tls;

/// A redis-server that speaks TLS alone.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start(certificates: &tls::Files) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = ending_with_the_test("redis-server");
        command.args(["--port", "0", "--tls-port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--bind", "127.0.0.1", "--tls-auth-clients", "no", "--requirepass", "ebb:flow"]);
        for (flag, name) in [
            ("--tls-cert-file", "localhost.pem"),
            ("--tls-key-file", "localhost.key"),
            ("--tls-ca-cert-file", "ca.pem"),
        ] {
            command.args([flag, &certificates.path(name)]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("redis-server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, port }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway(files: &Files, port: u16, ca: &str, scheme: &str) -> Program {
    files.write(
        "gateway.toml",
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ body = \"tide\" }}\n\
             [route.rate]\nlimit = \"1/m:6\"\nname = \"tides\"\non-failure = \"closed\"\n\
             shared = \"{scheme}://:ebb%3Aflow@localhost:{port}/1\"\n{ca}"
        ),
    );
    files.start("gateway.toml", &[])
}

#[test]
fn gateways_share_a_rate_through_redis_over_tls() {
    if !can_use("redis-server", &["--version"]) {
        return;
    }
    let (files, certificates, others) = (Files::new(), tls::Files::new(&["localhost"]), tls::Files::new(&["other"]));
    let redis = Redis::start(&certificates);
    let ca = format!("ca = \"{}\"\n", certificates.path("ca.pem"));
    let gateways = [gateway(&files, redis.port, &ca, "rediss"), gateway(&files, redis.port, &ca, "rediss")];
    // Until the first command has its reply, the limit fails closed.
    until("a reply of Redis", || ask(&gateways[0], "a", "/", "").status == 200);
    until("a reply of Redis to the other", || ask(&gateways[1], "a", "/", "").status != 503);
    let mut served = 0;
    for _ in 0..6 {
        served += gateways.iter().filter(|gateway| ask(gateway, "a", "/", "").status == 200).count();
    }
    assert!(served < 6, "{served} of twelve are served beyond those before");
    // A reply of Redis that comes late is a 503.
    for gateway in &gateways {
        until("a refusal by the count of Redis", || ask(gateway, "a", "/", "").status == 429);
    }
    // A server that no root vouches for is not asked, and a connection without TLS has no reply.
    let wrong = format!("ca = \"{}\"\n", others.path("ca.pem"));
    for program in [gateway(&files, redis.port, &wrong, "rediss"), gateway(&files, redis.port, "", "redis")] {
        assert_eq!(ask(&program, "a", "/", "").status, 503);
    }
}

#[test]
fn mistakes_of_a_shared_rate_over_tls_are_named() {
    let files = Files::new();
    let rate = |keys: &str| format!("[[route]]\nrate = {{ limit = \"1/s\", {keys} }}\nrespond = {{}}\n");
    for (text, expected) in [
        (rate("shared = \"redis://a\", ca = \"ca.pem\""), "`ca` needs a server of `rediss://`"),
        (rate("shared = \"rediss://a b\""), "`shared` is not redis://"),
        (rate("shared = \"rediss://a\", ca = \"none.pem\""), "none.pem"),
    ] {
        let (code, _, errors) = files.check(&text);
        assert_eq!(code, Some(1), "{text}");
        assert!(errors.iter().any(|error| error.contains(expected)), "{expected}: {errors:?}");
    }
}
