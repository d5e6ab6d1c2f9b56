//! Certificates that an authority issues, before there is one; `interop/acme.py` has them with an authority.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use tidegate::tls::Provider;
use tidegate::tls::rustls::pki_types::ServerName;
use tidegate::tls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidegate_testkit::ClosedPort;

use crate::configuration::Files;
use crate::support::program::{Program, until};

/// Begins a handshake that offers these protocols, and waits until the server has ended it.
fn fail_to_shake_hands(program: &Program, protocols: &[&str]) {
    let provider = Provider::aws_lc_rs().crypto().clone();
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("sea.example").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(program.ip()).unwrap();
    tls.write_tls(&mut stream).unwrap();
    // An alert, then the end.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.first() == Some(&21), "an alert and not {rest:?}");
}

/// The numbers of handshakes that a line stands for, its own included.
fn handshakes_in(lines: &[String]) -> usize {
    let others = |line: &String| line.split("others=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    lines.iter().map(|line| others(line).unwrap_or_default() + 1).sum()
}

#[test]
fn handshakes_before_the_first_certificate_share_one_warning() {
    let files = Files::new();
    let closed = ClosedPort::tcp();
    let directory = format!("https://{}/directory", closed.address());
    let program = Program::serve(&[
        "--loops",
        "1",
        "--acme",
        "sea.example",
        "--acme-directory",
        &directory,
        "--acme-folder",
        &files.path("acme"),
    ]);
    for _ in 0..20 {
        fail_to_shake_hands(&program, &["h2", "http/1.1"]);
        // A challenge that this server has not asked for.
        fail_to_shake_hands(&program, &["acme-tls/1"]);
    }
    let warnings = program.until_logged("there is no certificate yet", 1);
    assert!(warnings.iter().all(|line| line.contains("WARN") && line.contains("others=")), "{warnings:?}");
    // A line stands for those of ten seconds, and 40 handshakes do not take a minute.
    assert!(warnings.len() < 8 && handshakes_in(&warnings) <= 40, "{warnings:?}");
    let is_of_connection = |line: &&String| line.contains("ERROR") && line.contains("connection");
    assert_eq!(program.log().iter().filter(is_of_connection).count(), 0, "{:?}", program.log());
    until("the count of all handshakes", || program.count("closed_protocol") == 40);
}

#[test]
fn a_listener_of_the_file_has_certificates_of_an_authority() {
    let files = Files::new();
    let closed = ClosedPort::tcp();
    let directory = format!("https://{}/directory", closed.address());
    let text = |names: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\n\
             acme = {{ names = {names}, directory = \"{directory}\", folder = \"acme\", contact = \"mailto:a@sea.example\" }}\n\
             [[route]]\nrespond = {{}}\n"
        )
    };
    let (code, lines, errors) = files.check(&text("\"sea.example\""));
    assert_eq!((code, &errors[..]), (Some(0), &[][..]), "{lines:?}");
    assert!(!std::path::Path::new(&files.path("acme")).exists(), "a check makes no folder");
    files.write("gateway.toml", &text("\"sea.example\""));
    let program = files.start("gateway.toml", &[]);
    program.until_logged("no certificate was issued", 1);
    fail_to_shake_hands(&program, &["http/1.1"]);
    program.until_logged("there is no certificate yet", 1);
    assert!(std::path::Path::new(&files.path("acme")).is_dir());
    // Other names are another certificate, and the renewals of the first one end.
    files.write("gateway.toml", &text("[\"sea.example\", \"www.sea.example\"]"));
    program.signal(rustix::process::Signal::HUP);
    program.until_logged("certificate no longer in use", 1);
    program.until_logged("configuration reloaded", 1);
    assert!(!program.log().iter().any(|line| line.contains("not reloaded")), "{:?}", program.log());
}

#[test]
fn mistakes_of_an_authority_are_named_before_anything_starts() {
    let files = Files::new();
    let listen = |keys: &str| {
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\n{keys}\n[[route]]\nrespond = {{}}\n")
    };
    let acme = |keys: &str| {
        listen(&format!(
            "acme = {{ names = \"sea.example\", directory = \"https://ca.example/dir\", folder = \"acme\"{keys} }}"
        ))
    };
    for (text, expected) in [
        (listen("acme = {}"), "acme has no `names`"),
        (listen("acme = { domains = \"a\" }"), "did you mean `names`"),
        (acme(", challenges = \"http-01\""), "the challenge `http-01` needs an http listener"),
        (
            // A listener that passes on answers no challenge.
            acme(", challenges = \"http-01\"")
                + "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"tcp\"\nupstream = \"t\"\n\
                   [[upstream]]\nname = \"t\"\nservers = [\"tcp://a:1\"]\n",
            "the challenge `http-01` needs an http listener",
        ),
        (acme(", challenges = \"dns-02\""), "tls-alpn-01"),
        (acme(", challenges = \"dns-01\""), "DNS-01 needs a program"),
        (acme(", root = \"none.pem\""), "none.pem"),
        (acme(" }\nself-signed = true\n#"), "`certificates`, `acme` and `self-signed` exclude each other"),
        (acme("").replace("https://ca", "http://ca"), "https"),
        (acme("").replace("\"sea.example\"", "\"*.sea.example\""), "*.sea.example"),
        (acme("").replace("protocol = \"https\"\n", ""), "need `protocol = \"https\"`"),
    ] {
        let (code, _, errors) = files.check(&text);
        assert_eq!(code, Some(1), "{text}");
        assert!(errors.iter().any(|error| error.contains(expected)), "{expected}: {errors:?}");
    }
}
