//! An authority for tests: it validates names over the network, and breaks the rules on demand.
//!
//! It checks nonces and URLs, not signatures: pebble does that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tidegate::http::{Request, Response, Router, Server};
use tidegate::tls::rustls::pki_types::{CertificateSigningRequestDer, ServerName};
use tidegate::tls::rustls::{ClientConnection, RootCertStore};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{ServerHandle, blocking};

use crate::support::accepting_any;

/// A running authority. It drains when it is dropped.
pub(crate) struct Authority {
    pub(crate) server: ServerHandle,
    pub(crate) state: Arc<Mutex<AuthorityState>>,
    roots: RootCertStore,
}

/// The authority's records and behaviour.
pub(crate) struct AuthorityState {
    base: String,
    issuer: Issuer<'static, KeyPair>,
    issuer_pem: String,
    nonces: HashSet<String>,
    orders: Vec<OrderRecord>,
    pub(crate) accounts: u64,
    /// Answers in place of the usual ones, by the first part of the path: `order`, `finalize`.
    pub(crate) faults: HashMap<&'static str, VecDeque<Fault>>,
    /// The requests, as method and path.
    pub(crate) log: Vec<String>,
    /// Where names are validated.
    pub(crate) target: Option<SocketAddr>,
    pub(crate) offers: Vec<&'static str>,
    /// Orders stay in this state, whatever happens.
    pub(crate) stuck: Option<&'static str>,
    /// Begin and length of certificates.
    pub(crate) lifetime: (Duration, Duration),
    pub(crate) change: fn(&mut CertificateParams),
    pub(crate) rewrites_chain: fn(&AuthorityState, String) -> String,
    /// The window in which certificates are renewed.
    pub(crate) window: Option<(String, String)>,
    /// The certificates that orders replace.
    pub(crate) replaced: Vec<String>,
    pub(crate) token: &'static str,
    pub(crate) waits_for: Option<u64>,
    /// The records of DNS-01, by name and value.
    pub(crate) records: Vec<(String, String)>,
}

struct OrderRecord {
    names: Vec<String>,
    status: &'static str,
    challenge_error: Option<String>,
    chain: Option<String>,
}

/// An answer in place of the usual one.
#[derive(Clone)]
pub(crate) enum Fault {
    Raw(u16, Vec<(&'static str, String)>, Vec<u8>),
    Problem(u16, &'static str, Option<&'static str>),
}

impl Authority {
    pub(crate) fn start() -> Self {
        let provider = Provider::aws_lc_rs();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let pair = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificates = Certificates::from_pem(&provider, pair.0.as_bytes(), pair.1.as_bytes()).expect("a key pair");
        let tls = ServerConfig::builder(&provider, certificates).build().expect("a configuration");
        let state = Arc::new(Mutex::new(AuthorityState::new()));
        let served = state.clone();
        let router = move || {
            let state = served.clone();
            Router::new().fallback(async move |request: Request| answer(&state, request).await)
        };
        let server = Server::bind("127.0.0.1:0").expect("a port").tls(tls).loops(1).start(router).expect("a server");
        lock(&state).base = format!("https://{}", server.address());
        Self { server, state, roots }
    }

    pub(crate) fn directory(&self) -> String {
        format!("{}/dir", self.lock().base)
    }

    /// A configuration of clients that trust this server.
    pub(crate) fn client(&self) -> ClientConfig {
        let builder = ClientConfig::builder(&Provider::aws_lc_rs(), self.roots.clone()).expect("roots");
        builder.build().expect("a configuration")
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, AuthorityState> {
        lock(&self.state)
    }

    pub(crate) fn fault(&self, endpoint: &'static str, fault: Fault) {
        self.lock().faults.entry(endpoint).or_default().push_back(fault);
    }

    /// How many requests there were whose method and path begin so.
    pub(crate) fn requests(&self, prefix: &str) -> usize {
        self.lock().log.iter().filter(|line| line.starts_with(prefix)).count()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.server.drain(Duration::ZERO);
    }
}

impl AuthorityState {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer_pem = params.self_signed(&key).expect("a root").pem();
        Self {
            base: String::new(),
            issuer: Issuer::new(params, key),
            issuer_pem,
            nonces: HashSet::new(),
            orders: Vec::new(),
            accounts: 0,
            faults: HashMap::new(),
            log: Vec::new(),
            target: None,
            offers: vec!["tls-alpn-01", "http-01"],
            stuck: None,
            lifetime: (Duration::from_secs(3600), Duration::from_secs(90 * 24 * 3600)),
            change: |_| {},
            rewrites_chain: |_, chain| chain,
            window: None,
            replaced: Vec::new(),
            token: "DGyRejmCefe7v4NfDGDKfA",
            waits_for: None,
            records: Vec::new(),
        }
    }

    /// One without faults.
    pub(crate) fn usual() -> Self {
        Self::new()
    }

    /// A root that has signed nothing.
    pub(crate) fn other_root() -> String {
        Self::new().issuer_pem
    }

    pub(crate) fn issuer_pem(&self) -> &str {
        &self.issuer_pem
    }

    fn nonce(&mut self) -> String {
        let nonce = format!("nonce-{}", self.log.len() * 1000 + self.nonces.len());
        self.nonces.insert(nonce.clone());
        nonce
    }

    /// A response with a nonce.
    fn json(&mut self, status: u16, location: Option<String>, value: &Value) -> Response {
        self.reply(status, location, value.to_string().into_bytes())
    }

    fn reply(&mut self, status: u16, location: Option<String>, body: Vec<u8>) -> Response {
        let nonce = self.nonce();
        let mut response = Response::status(status.try_into().expect("a status")).body(body);
        response.add_header("Replay-Nonce", nonce).expect("a field");
        if let Some(location) = location {
            response.add_header("Location", location).expect("a field");
        }
        if let Some(seconds) = self.waits_for {
            response.add_header("Retry-After", seconds.to_string()).expect("a field");
        }
        response
    }

    fn problem(&mut self, status: u16, kind: &str, wait: Option<&str>) -> Response {
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let mut response =
            self.json(status, None, &json!({"type": kind, "detail": "as the test wants", "status": status}));
        if let Some(wait) = wait {
            response.add_header("Retry-After", wait).expect("a field");
        }
        response
    }

    fn order(&mut self, number: usize, status: u16) -> Response {
        let base = self.base.clone();
        let Some(order) = self.orders.get(number) else { return self.problem(404, "malformed", None) };
        let state = self.stuck.unwrap_or(order.status);
        let authorizations: Vec<_> =
            (0..order.names.len()).map(|name| format!("{base}/authz/{number}/{name}")).collect();
        let identifiers: Vec<_> = order.names.iter().map(|name| json!({"type": "dns", "value": name})).collect();
        let mut value = json!({
            "status": state, "identifiers": identifiers, "authorizations": authorizations,
            "finalize": format!("{base}/finalize/{number}"),
        });
        if order.chain.is_some() {
            value["certificate"] = format!("{base}/cert/{number}").into();
        }
        if status == 201
            && let Some(replaced) = self.replaced.last()
        {
            value["replaces"] = replaced.as_str().into();
        }
        self.json(status, Some(format!("{base}/order/{number}")), &value)
    }

    /// The responses to requests without a signature.
    fn unsigned(&mut self, endpoint: &str) -> Option<Response> {
        match endpoint {
            "dir" => {
                let base = &self.base;
                let mut directory = json!({
                    "newNonce": format!("{base}/nonce"), "newAccount": format!("{base}/account"),
                    "newOrder": format!("{base}/order"),
                });
                if self.window.is_some() {
                    directory["renewalInfo"] = format!("{base}/renewal").into();
                }
                Some(self.json(200, None, &directory))
            }
            "nonce" => Some(self.reply(200, None, Vec::new())),
            "renewal" => Some(match self.window.clone() {
                None => self.problem(404, "malformed", None),
                Some((start, end)) => self.json(200, None, &json!({"suggestedWindow": {"start": start, "end": end}})),
            }),
            _ => None,
        }
    }

    fn new_order(&mut self, payload: &Value) -> Response {
        let names = payload["identifiers"].as_array().expect("identifiers").iter();
        let names = names.map(|name| name["value"].as_str().expect("a name").to_owned()).collect();
        if let Some(replaced) = payload["replaces"].as_str() {
            self.replaced.push(replaced.to_owned());
        }
        self.orders.push(OrderRecord { names, status: "pending", challenge_error: None, chain: None });
        self.order(self.orders.len() - 1, 201)
    }

    fn challenges(&self, number: usize, name: usize) -> Vec<Value> {
        let order = &self.orders[number];
        let challenge = |kind: &&str| {
            let mut value = json!({
                "type": kind, "url": format!("{}/challenge/{number}/{name}/{kind}", self.base),
                "token": self.token, "status": "pending",
            });
            if let Some(error) = &order.challenge_error {
                value["status"] = "invalid".into();
                value["error"] = json!({"type": "urn:ietf:params:acme:error:unauthorized", "detail": error});
            }
            value
        };
        self.offers.iter().map(challenge).collect()
    }

    fn authorization(&mut self, number: usize, name: usize) -> Response {
        let status = match self.orders[number].status {
            "pending" => "pending",
            "invalid" => "invalid",
            _ => "valid",
        };
        let ordered = &self.orders[number].names[name];
        let (value, wildcard) = ordered.strip_prefix("*.").map_or((ordered.as_str(), false), |domain| (domain, true));
        let identifier = json!({"type": "dns", "value": value});
        let challenges = self.challenges(number, name);
        let authorization =
            json!({"status": status, "identifier": identifier, "challenges": challenges, "wildcard": wildcard});
        self.json(200, None, &authorization)
    }

    fn validated(&mut self, number: usize, result: Result<(), String>) {
        let order = &mut self.orders[number];
        match result {
            Ok(()) => order.status = "ready",
            Err(error) => (order.status, order.challenge_error) = ("invalid", Some(error)),
        }
    }

    fn finalize(&mut self, number: usize, payload: &Value) -> Response {
        let csr = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().expect("a request")).expect("base64");
        let mut csr =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr)).expect("a request");
        let now = SystemTime::now();
        (csr.params.not_before, csr.params.not_after) =
            ((now - self.lifetime.0).into(), (now - self.lifetime.0 + self.lifetime.1).into());
        csr.params.use_authority_key_identifier_extension = true;
        (self.change)(&mut csr.params);
        let first = csr.signed_by(&self.issuer).expect("a certificate").pem();
        let chain = (self.rewrites_chain)(self, format!("{first}{}", self.issuer_pem));
        let order = &mut self.orders[number];
        (order.status, order.chain) = ("valid", Some(chain));
        self.order(number, 200)
    }
}

async fn answer(state: &Arc<Mutex<AuthorityState>>, mut request: Request) -> Response {
    let path = request.path().to_owned();
    let parts: Vec<_> = path.split('/').skip(1).collect();
    let number = |index: usize| parts.get(index).and_then(|part| part.parse().ok()).unwrap_or(usize::MAX);
    let endpoint = parts[0];
    let (method, url) = (request.method(), format!("{}{path}", lock(state).base));
    let body = request.body_mut().collect(1 << 20).await.expect("a body").into_bytes();
    {
        let mut state = lock(state);
        state.log.push(format!("{method} {path}"));
        if let Some(fault) = state.faults.get_mut(endpoint).and_then(VecDeque::pop_front) {
            return faulty(&mut state, fault);
        }
        if let Some(response) = state.unsigned(endpoint) {
            return response;
        }
    }
    let payload = match opened(state, &body, &url) {
        Ok(payload) => payload,
        Err(response) => return *response,
    };
    if endpoint == "challenge" {
        let kind = parts[3].to_owned();
        let (validated, order, name) = (state.clone(), number(1), number(2));
        let result = blocking(move || validate(&validated, order, name, &kind)).await.expect("a thread");
        let mut state = lock(state);
        state.validated(order, result);
        let challenge = json!({"type": parts[3], "url": url, "token": state.token, "status": "processing"});
        return state.json(200, None, &challenge);
    }
    let mut state = lock(state);
    match (endpoint, parts.len()) {
        ("account", 1) => {
            state.accounts += 1;
            let location = format!("{}/account/{}", state.base, state.accounts);
            state.json(201, Some(location), &json!({"status": "valid"}))
        }
        ("order", 1) => state.new_order(&payload),
        ("order", _) => state.order(number(1), 200),
        ("authz", _) => state.authorization(number(1), number(2)),
        ("finalize", _) => state.finalize(number(1), &payload),
        ("cert", _) => {
            let chain = state.orders[number(1)].chain.clone().expect("a chain");
            state.reply(200, None, chain.into_bytes())
        }
        _ => state.problem(404, "malformed", None),
    }
}

fn faulty(state: &mut AuthorityState, fault: Fault) -> Response {
    match fault {
        Fault::Problem(status, kind, wait) => state.problem(status, kind, wait),
        Fault::Raw(status, fields, body) => {
            let mut response = Response::status(status.try_into().expect("a status")).body(body);
            for (name, value) in fields {
                response.add_header(name, value).expect("a field");
            }
            response
        }
    }
}

/// The payload of a request whose nonce is fresh and whose URL is its own.
fn opened(state: &Mutex<AuthorityState>, body: &[u8], url: &str) -> Result<Value, Box<Response>> {
    let mut state = lock(state);
    let decoded = |text: &Value| URL_SAFE_NO_PAD.decode(text.as_str().expect("a text")).expect("base64");
    let signed: Value = serde_json::from_slice(body).expect("JSON");
    let header: Value = serde_json::from_slice(&decoded(&signed["protected"])).expect("JSON");
    let nonce = header["nonce"].as_str().expect("a nonce");
    if !state.nonces.remove(nonce) {
        return Err(Box::new(state.problem(400, "badNonce", None)));
    }
    assert_eq!(header["url"], url, "the request is for another URL");
    let is_known = header["kid"].as_str().is_none_or(|id| {
        let number: u64 = id.rsplit('/').next().and_then(|part| part.parse().ok()).expect("an account");
        number <= state.accounts
    });
    if !is_known {
        return Err(Box::new(state.problem(400, "accountDoesNotExist", None)));
    }
    Ok(serde_json::from_slice(&decoded(&signed["payload"])).unwrap_or(Value::Null))
}

/// Validates a name at the target. The key authorization begins with the token, and its thumbprint is not compared.
fn validate(state: &Mutex<AuthorityState>, order: usize, name: usize, kind: &str) -> Result<(), String> {
    if kind == "dns-01" {
        let state = lock(state);
        let name = &state.orders[order].names[name];
        let record = format!("_acme-challenge.{}", name.trim_start_matches("*."));
        // The digest of a key authorization, whose thumbprint is not compared.
        let is_digest = |value: &str| URL_SAFE_NO_PAD.decode(value).is_ok_and(|digest| digest.len() == 32);
        let is_there = state.records.iter().any(|(name, value)| *name == record && is_digest(value));
        return if is_there { Ok(()) } else { Err(format!("no record {record} in {:?}", state.records)) };
    }
    let (name, token, target) = {
        let state = lock(state);
        (state.orders[order].names[name].clone(), state.token, state.target.expect("a target"))
    };
    let mut stream = TcpStream::connect(target).map_err(|error| error.to_string())?;
    if kind == "http-01" {
        let head =
            format!("GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
        let mut response = String::new();
        stream.read_to_string(&mut response).map_err(|error| error.to_string())?;
        let is_right = response.starts_with("HTTP/1.1 200") && response.contains(&format!("\r\n\r\n{token}."));
        return if is_right { Ok(()) } else { Err(format!("wrong answer: {response}")) };
    }
    let mut config = accepting_any();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let server_name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(config.into(), server_name).map_err(|error| error.to_string())?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let first = tls.peer_certificates().and_then(|chain| chain.first()).ok_or("no certificate")?;
    let has_extension = first.windows(ACME_IDENTIFIER.len()).any(|bytes| bytes == ACME_IDENTIFIER);
    let has_protocol = tls.alpn_protocol() == Some(b"acme-tls/1");
    if has_extension && has_protocol { Ok(()) } else { Err("the certificate is none of a challenge".to_owned()) }
}

fn lock(state: &Mutex<AuthorityState>) -> MutexGuard<'_, AuthorityState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// id-pe-acmeIdentifier, critical.
const ACME_IDENTIFIER: &[u8] = &[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xff];
