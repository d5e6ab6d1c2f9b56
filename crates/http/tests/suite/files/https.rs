//! Files through TLS: their bytes pass through memory, in bounded pieces.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate::http::{Router, Server};
use tidegate::tls::{Certificates, Provider, ServerConfig};

use super::folder::{Folder, Got, content, request};
use crate::support::Running;

#[test]
fn files_and_ranges_are_sent_through_tls() {
    let folder = Folder::new();
    let bytes = content(3_000_000);
    let path = folder.write("file", &bytes);
    let files = folder.files();
    let (provider, made) = (Provider::ring(), rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).unwrap();
    let tls = ServerConfig::builder(&provider, certificates).build().unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls).loops(1);
    let server = Running(server.start(move || Router::new().nest_files("/", files.clone())).unwrap());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let connect = || {
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(client.clone(), name).unwrap(), server.connect())
    };
    let ask = |fields: &[(&str, &str)]| {
        let mut stream = connect();
        stream.write_all(request("GET", "/file", fields).as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        Got::of(&response)
    };
    assert!(ask(&[]).body == bytes);
    let got = ask(&[("Range", "bytes=-5")]);
    assert_eq!((got.status, &got.body[..]), (206, &bytes[bytes.len() - 5..]));
    let got = ask(&[("Range", "bytes=1000000-1999999,0-0")]);
    assert!(got.status == 206 && got.body.windows(1_000_000).any(|window| *window == bytes[1_000_000..2_000_000]));

    // A file that shrinks: the peer sees neither other bytes nor a proper end.
    let big = content(64 * 1024 * 1024);
    std::fs::write(&path, &big).unwrap();
    let mut stream = connect();
    stream.write_all(request("GET", "/file", &[]).as_bytes()).unwrap();
    let mut received = vec![0; 1024];
    stream.read_exact(&mut received).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    let ended = stream.read_to_end(&mut received);
    let got = Got::of(&received);
    assert!(ended.is_err(), "the end of the connection is no proper end of TLS");
    assert!(got.body.len() < big.len() && got.body == big[..got.body.len()]);
}

#[test]
fn a_server_takes_its_certificate_from_two_files() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = folder.write("chain.pem", made.cert.pem().as_bytes());
    let key = folder.write("key.pem", made.signing_key.serialize_pem().as_bytes());
    let bind = || Server::bind("127.0.0.1:0").unwrap().loops(1);
    let missing = bind().tls_files(folder.root.join("none.pem"), &key);
    assert!(missing.unwrap_err().to_string().contains("none.pem"));
    let swapped = bind().tls_files(&key, &chain);
    assert!(swapped.unwrap_err().to_string().contains("key.pem has no certificate"));
    let server = bind().tls_files(&chain, &key).unwrap();
    let server = Running(server.start(|| Router::new().get("/", || "hello")).unwrap());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(client), name).unwrap(), server.connect());
    stream.write_all(request("GET", "/", &[]).as_bytes()).unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
}
