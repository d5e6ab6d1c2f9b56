//! HTTPS: foreign clients, certificates that are replaced, and `tidegate load`.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::load::load;
use crate::support::peer::{assert_same, letters};
use crate::support::program::{Directory, Program, run, skip, tidegate};

/// Runs a client with `input`, and returns its output, standard error included. `None` if it is not installed.
fn client(name: &str, arguments: &[&str], input: &str) -> Option<String> {
    let command = Command::new(name)
        .args(arguments)
        .env("NO_PROXY", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match command {
        Ok(child) => child,
        Err(error) => {
            skip(name, &error);
            return None;
        }
    };
    // A client that ends before it has read all of it is no failure of its own.
    let _ = child.stdin.take().expect("it was requested").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it was started");
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Certificates that an authority of the test's has signed, as files: `ca.pem`, and NAME.pem with NAME.key for each.
pub(crate) struct Files(Directory);

impl Files {
    pub(crate) fn new(names: &[&str]) -> Self {
        let folder = Directory::new();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(folder.path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        for name in names {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new([(*name).to_owned(), "127.0.0.1".to_owned()]).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, *name);
            let certificate = params.signed_by(&key, &issuer).unwrap();
            fs::write(folder.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(folder.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path(name)
    }

    pub(crate) fn serve(&self, names: &[&str], more: &[&str]) -> Program {
        let mut arguments = vec!["--loops".to_owned(), "1".to_owned()];
        for name in names {
            let paths = [self.path(&format!("{name}.pem")), self.path(&format!("{name}.key"))];
            let [chain, key] = paths;
            arguments.extend(["--tls-cert".to_owned(), chain, "--tls-key".to_owned(), key]);
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        Program::serve(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

const CURL: [&str; 6] = ["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"];

pub(crate) fn curl(arguments: &[&str]) -> Option<String> {
    client("curl", &[&CURL[..], arguments].concat(), "")
}

#[test]
fn curl_downloads_over_both_versions_and_verifies_the_certificate() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let url = format!("https://{}/bytes/1000000", program.ip());
    let ca = files.path("ca.pem");
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let Some(body) = curl(&[version, &["--cacert", &ca, &url]].concat()) else { return };
        assert_same(body.as_bytes(), &letters(1_000_000));
    }
    let refused = curl(&[&url]).unwrap();
    assert!(refused.contains("certificate"), "{refused}");
    let old = curl(&["--tls-max", "1.1", "--tlsv1.0", "--cacert", &ca, &url]).unwrap();
    assert!(old.contains("curl:"), "{old}");
}

#[test]
fn a_client_gets_the_certificate_with_the_name_that_it_requests() {
    let files = Files::new(&["one.test", "two.test"]);
    let program = files.serve(&["one.test", "two.test"], &[]);
    let address = program.ip().to_string();
    for (name, expected) in
        [("one.test", "CN = one.test"), ("two.test", "CN = two.test"), ("any.test", "CN = one.test")]
    {
        let arguments = ["s_client", "-connect", &address, "-servername", name];
        let Some(output) = client("openssl", &arguments, "") else { return };
        let expected = [expected.to_owned(), expected.replace(" = ", "=")];
        let subject = output.lines().find(|line| line.starts_with("subject=")).unwrap_or_default();
        assert!(expected.iter().any(|expected| subject.ends_with(expected.as_str())), "{name}: {output}");
    }
}

#[test]
fn openssl_resumes_sessions_of_both_versions() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let (address, session) = (program.ip().to_string(), files.path("session"));
    let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let common = ["s_client", "-connect", &address, version, "-ign_eof"];
        let Some(first) = client("openssl", &[&common[..], &["-sess_out", &session]].concat(), request) else { return };
        assert!(first.contains("Hello, World!") && first.contains("New, TLSv1"), "{first}");
        let second = client("openssl", &[&common[..], &["-sess_in", &session]].concat(), request).unwrap();
        assert!(second.contains("Hello, World!") && second.contains("Reused, TLSv1"), "{second}");
    }
}

#[test]
fn openssl_asks_for_a_renegotiation_and_is_refused() {
    let program = Program::serve(&["--tls-self-signed"]);
    let address = program.ip().to_string();
    let arguments = ["s_client", "-connect", &address, "-tls1_2"];
    // A line with the letter R is a request for it. The input ends only when the client ends.
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = match command.spawn() {
        Ok(client) => client,
        Err(error) => return skip("openssl", &error),
    };
    let mut input = client.stdin.take().expect("it was requested");
    input.write_all(b"R\n").unwrap();
    let output = client.wait_with_output().expect("it was started");
    drop(input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
}

#[test]
fn a_client_needs_a_certificate_where_one_is_required() {
    let files = Files::new(&["localhost", "client"]);
    let ca = files.path("ca.pem");
    let program = files.serve(&["localhost"], &["--tls-client-ca", &ca]);
    let url = format!("https://{}/plaintext", program.ip());
    let (chain, key) = (files.path("client.pem"), files.path("client.key"));
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let own = ["--cacert", &ca, "--cert", &chain, "--key", &key, &url];
        let Some(body) = curl(&[version, &own].concat()) else { return };
        assert_eq!(body, "Hello, World!");
        let refused = curl(&[version, &["--cacert", &ca, &url]].concat()).unwrap();
        assert!(refused.contains("curl:"), "{refused}");
    }
}

#[test]
fn gnutls_verifies_the_certificate_and_downloads() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let (port, ca) = (program.ip().port().to_string(), files.path("ca.pem"));
    for version in ["VERS-TLS1.2", "VERS-TLS1.3"] {
        let priority = format!("--priority=NORMAL:-VERS-ALL:+{version}");
        let arguments = [
            "--x509cafile",
            &ca,
            "--port",
            &port,
            &priority,
            "--sni-hostname=localhost",
            "--verify-hostname=localhost",
            "127.0.0.1",
        ];
        let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let Some(output) = client("gnutls-cli", &arguments, request) else { return };
        assert!(output.contains("The certificate is trusted") && output.contains("Hello, World!"), "{output}");
    }
}

#[test]
fn sslscan_finds_the_two_versions_and_no_weakness() {
    let program = Program::serve(&["--tls-self-signed"]);
    let address = program.ip().to_string();
    let Some(output) = client("sslscan", &["--no-colour", &address], "") else { return };
    for line in [
        "SSLv2     disabled",
        "SSLv3     disabled",
        "TLSv1.0   disabled",
        "TLSv1.1   disabled",
        "TLSv1.2   enabled",
        "TLSv1.3   enabled",
    ] {
        assert!(output.contains(line), "{line} is not in\n{output}");
    }
    assert!(
        !output.contains("vulnerable to heartbleed") || output.contains("not vulnerable to heartbleed"),
        "{output}"
    );
}

#[test]
fn sighup_reads_the_certificates_again_and_keeps_the_old_ones_if_they_are_broken() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let url = format!("https://{}/plaintext", program.ip());
    let (old, broken) = (files.path("ca.pem"), files.path("localhost.pem"));
    let whole = fs::read(&broken).unwrap();
    fs::write(&broken, "no certificate").unwrap();
    program.signal(Signal::HUP);
    let lines = program.until_logged("certificates not reloaded", 1);
    assert!(lines.iter().any(|line| line.contains("has no certificate")), "{lines:?}");
    let Some(body) = curl(&["--cacert", &old, &url]) else { return };
    assert_eq!(body, "Hello, World!");

    fs::write(&broken, whole).unwrap();
    let others = Files::new(&["localhost"]);
    for name in ["localhost.pem", "localhost.key"] {
        fs::copy(others.path(name), files.path(name)).unwrap();
    }
    program.signal(Signal::HUP);
    program.until_logged("certificates reloaded", 1);
    assert_eq!(curl(&["--cacert", &others.path("ca.pem"), &url]).unwrap(), "Hello, World!");
    assert!(curl(&["--cacert", &old, &url]).unwrap().contains("curl:"));
}

#[test]
fn sighup_reads_the_authorities_of_clients_again() {
    let (files, others) = (Files::new(&["localhost", "client"]), Files::new(&["client"]));
    let (ca, of_clients) = (files.path("ca.pem"), files.path("clients.pem"));
    fs::copy(&ca, &of_clients).unwrap();
    let program = files.serve(&["localhost"], &["--tls-client-ca", &of_clients]);
    let address = program.ip().to_string();
    let url = format!("https://{address}/plaintext");
    let get = |files: &Files| {
        let (chain, key) = (files.path("client.pem"), files.path("client.key"));
        curl(&["--cacert", &ca, "--cert", &chain, "--key", &key, &url])
    };
    let Some(body) = get(&files) else { return };
    assert_eq!(body, "Hello, World!");
    assert!(get(&others).unwrap().contains("curl:"));
    // A client of the authority has a session.
    let session = files.path("session");
    let (chain, key) = (files.path("client.pem"), files.path("client.key"));
    let common = ["s_client", "-connect", &address, "-tls1_3", "-ign_eof", "-cert", &chain, "-key", &key];
    let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let Some(first) = client("openssl", &[&common[..], &["-sess_out", &session]].concat(), request) else { return };
    assert!(first.contains("Hello, World!"), "{first}");

    fs::write(&of_clients, "no certificate").unwrap();
    program.signal(Signal::HUP);
    program.until_logged("client authorities not reloaded", 1);
    assert_eq!(get(&files).unwrap(), "Hello, World!");
    fs::copy(others.path("ca.pem"), &of_clients).unwrap();
    program.signal(Signal::HUP);
    program.until_logged("client authorities reloaded", 1);
    assert!(get(&files).unwrap().contains("curl:"));
    assert_eq!(get(&others).unwrap(), "Hello, World!");
    let again = client("openssl", &[&common[..], &["-sess_in", &session]].concat(), request).unwrap();
    assert!(!again.contains("Hello, World!") && !again.contains("Reused, TLSv1"), "{again}");
}

#[test]
fn a_restart_with_the_same_ticket_key_keeps_the_sessions() {
    let files = Files::new(&["localhost"]);
    let (session, key) = (files.path("session"), files.path("ticket.key"));
    fs::write(&key, [7; 80]).unwrap();
    let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let get = |flag: &str| {
        let program = files.serve(&["localhost"], &["--tls-ticket-key", &key]);
        let address = program.ip().to_string();
        client("openssl", &["s_client", "-connect", &address, "-tls1_3", "-ign_eof", flag, &session], request)
    };
    let Some(first) = get("-sess_out") else { return };
    assert!(first.contains("Hello, World!") && first.contains("New, TLSv1"), "{first}");
    let second = get("-sess_in").unwrap();
    assert!(second.contains("Hello, World!") && second.contains("Reused, TLSv1"), "{second}");
    fs::write(&key, [8; 80]).unwrap();
    let third = get("-sess_in").unwrap();
    assert!(third.contains("Hello, World!") && third.contains("New, TLSv1"), "{third}");
    fs::write(&key, [8; 81]).unwrap();
    let (code, _, errors) = run(&["serve", "--listen", "127.0.0.1:0", "--tls-self-signed", "--tls-ticket-key", &key]);
    assert!(code == Some(2) && errors.len() == 1 && errors[0].contains("80 or 48"), "{errors:?}");
}

#[test]
fn a_reload_that_changes_listeners_keeps_the_sessions() {
    let files = Files::new(&["localhost"]);
    let (session, path) = (files.path("session"), files.path("gateway.toml"));
    let write = |headers: u32| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nlimits = {{ headers = {headers} }}\n\
             certificates = [{{ cert = \"localhost.pem\", key = \"localhost.key\" }}]\n\
             [[route]]\nrespond = {{ body = \"Hello, World!\" }}\n"
        );
        fs::write(&path, text).unwrap();
    };
    write(50);
    let program = Program::start(tidegate(&["run", "--loops", "1", "--config", &path])).unwrap();
    let address = program.ip().to_string();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let get = |flag: &str| {
        client("openssl", &["s_client", "-connect", &address, "-tls1_3", "-ign_eof", flag, &session], request)
    };
    let Some(first) = get("-sess_out") else { return };
    assert!(first.contains("Hello, World!") && first.contains("New, TLSv1"), "{first}");
    write(51);
    program.signal(Signal::HUP);
    program.until_logged("the replaced server has ended", 1);
    let second = get("-sess_in").unwrap();
    assert!(second.contains("Hello, World!") && second.contains("Reused, TLSv1"), "{second}");
}

#[test]
fn a_load_over_tls_has_no_errors() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let (url, ca) = (format!("https://{}/plaintext", program.ip()), files.path("ca.pem"));
    for trust in [&["--insecure"][..], &["--root", &ca]] {
        let (code, figures, _) = load(&[&[&url, "-n", "500", "-c", "4", "--pipeline", "16"], trust].concat());
        assert_eq!((code, figures["requests"].as_u64()), (Some(0), Some(500)), "{figures}");
    }
}

#[test]
fn a_load_trusts_the_servers_that_the_system_trusts() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &[]);
    let url = format!("https://{}/plaintext", program.ip());
    let with_roots = |roots: &str, limit: [&str; 2]| {
        let mut command = tidegate(&[&["load", "--json", "-", &url, "-c", "2"], &limit[..]].concat());
        let command = command.env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR").stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.code(), [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()))
    };
    let (code, [figures, _]) = with_roots(&files.path("ca.pem"), ["-n", "50"]);
    let requests = serde_json::from_str::<serde_json::Value>(&figures).unwrap()["requests"].as_u64();
    assert!(code == Some(0) && requests == Some(50), "{figures}");
    // Another authority vouches for nothing here.
    let (code, [figures, _]) = with_roots(&Files::new(&[]).path("ca.pem"), ["-d", "1"]);
    let requests = serde_json::from_str::<serde_json::Value>(&figures).unwrap()["requests"].as_u64();
    assert_eq!((code, requests), (Some(1), Some(0)), "{figures}");
    let (code, [_, errors]) = with_roots(&files.path("localhost.key"), ["-d", "1"]);
    assert!(code == Some(2) && errors.contains("--insecure"), "{errors}");
}

#[test]
fn flags_that_do_not_fit_are_refused_with_the_reason() {
    let files = Files::new(&["localhost"]);
    let (chain, key) = (files.path("localhost.pem"), files.path("localhost.key"));
    for (arguments, expected) in [
        (&["--tls-cert", &chain][..], "--tls-key"),
        (&["--tls-cert", &chain, "--tls-cert", &chain, "--tls-key", &key], "--tls-key"),
        (&["--tls-cert", "/nowhere.pem", "--tls-key", &key], "cannot read /nowhere.pem"),
        (&["--tls-cert", &key, "--tls-key", &key], "has no certificate"),
        (&["--tls-cert", &chain, "--tls-key", &chain], "has no private key"),
        (&["--tls-client-ca", &chain], "--tls-cert"),
        (&["--tls-self-signed", "--tls-cert", &chain, "--tls-key", &key], "cannot be used with"),
    ] {
        let (code, _, errors) = run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        assert!(code == Some(2) && errors[0].contains(expected), "{errors:?}");
    }
}
