//! Services and key sets over HTTPS.

use tidegate::http::auth::{ForwardAuth, Jwt, JwtKeys};
use tidegate::http::{Router, Server};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};

use crate::support::{Issuer, Running, bearer, claims, jwks, start, status};

/// A server of HTTPS, and clients that trust it or nobody.
struct Secure {
    server: Running,
    trusting: ClientConfig,
    doubting: ClientConfig,
}

impl Secure {
    fn new(router: impl Fn() -> Router + Send + Sync + 'static) -> Self {
        let provider = Provider::aws_lc_rs();
        let certificate = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let (made, other) = (certificate("127.0.0.1"), certificate("127.0.0.1"));
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("a key pair");
        let tls = ServerConfig::builder(&provider, certificates).build().expect("a configuration");
        let server = Server::bind("127.0.0.1:0").expect("a port").tls(tls).loops(1).start(router).expect("a server");
        let trusting = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
            let mut roots = RootCertStore::empty();
            roots.add(made.cert.der().clone()).expect("a root");
            ClientConfig::builder(&provider, roots).and_then(|builder| builder.build()).expect("a configuration")
        };
        Self { server: Running(server), trusting: trusting(&made), doubting: trusting(&other) }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.server.0.address())
    }
}

#[test]
fn a_service_decides_only_if_its_certificate_is_trusted() {
    let service = Secure::new(|| Router::new().get("/", || "welcome"));
    for (tls, expected) in [(Some(&service.trusting), "200"), (Some(&service.doubting), "503"), (None, "503")] {
        let mut forward = ForwardAuth::new(&service.url()).expect("a URL");
        if let Some(tls) = tls {
            forward = forward.tls(tls.clone());
        }
        let server = start(move || Router::new().get("/", || "in").wrap(forward.require()));
        assert_eq!(status(&server.get("/", "")), expected);
    }
}

#[test]
fn keys_count_only_if_the_certificate_of_their_server_is_trusted() {
    let issuer = Issuer::new("1");
    let text = jwks(&[&issuer]);
    let service = Secure::new(move || {
        let text = text.clone();
        Router::new().get("/", move || text.clone())
    });
    for (tls, expected) in [(&service.trusting, "200"), (&service.doubting, "503")] {
        let keys = JwtKeys::url(&service.url()).expect("a URL").tls(tls.clone());
        let jwt = Jwt::builder(keys).build().expect("rules");
        let server = start(move || Router::new().get("/", || "in").wrap(jwt.require()));
        assert_eq!(status(&server.get("/", &bearer(&issuer.token(&claims("ebb"))))), expected);
    }
}
