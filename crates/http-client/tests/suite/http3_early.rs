//! Early data (0-RTT) of the client: safe requests are sent before the handshake is complete, and others after it.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate::http::client::{ClientError, ClientLimits, Http3Config};
use tidegate::http::{Client, EarlyData, Request, Router};
use tidegate::quic::TransportLimits;

use crate::http3_stage::Stage;

/// The requests that functions have seen: the method, and the field that marks early ones.
type Seen = Rc<RefCell<Vec<String>>>;

fn router(seen: &Seen) -> Router {
    let note = |seen: &Seen| {
        let seen = seen.clone();
        move |request: Request| {
            let mark = request.header_str("early-data").unwrap_or("-").to_owned();
            seen.borrow_mut().push(format!("{} {mark}", request.method()));
            "done"
        }
    };
    let careful = Router::new().get("/", note(seen)).with(EarlyData::refuse());
    Router::new().get("/", note(seen)).post("/", note(seen)).nest("/careful", careful)
}

fn limits() -> TransportLimits {
    TransportLimits { early_data: true, ..TransportLimits::default() }
}

fn client(stage: &Stage) -> Client {
    client_with(stage, ClientLimits::default())
}

fn client_with(stage: &Stage, limits: ClientLimits) -> Client {
    let defaults = Http3Config::default();
    let transport = TransportLimits { early_data: true, ..defaults.transport };
    stage.client_with(Http3Config { transport, ..defaults }, limits)
}

/// Sends requests by a client of its own, whose TLS sessions are those of the stage.
fn send(stage: &mut Stage, requests: Vec<(&'static str, String)>) -> Result<Vec<u16>, ClientError> {
    send_by(stage, client(stage), requests)
}

fn send_by(stage: &mut Stage, client: Client, requests: Vec<(&'static str, String)>) -> Result<Vec<u16>, ClientError> {
    stage.task(async move {
        let mut statuses = Vec::new();
        for (method, uri) in requests {
            let request = if method == "POST" { client.post(uri).body("ebb") } else { client.get(uri) };
            let response = request.send().await?;
            statuses.push(response.status().as_u16());
            response.text().await?;
        }
        Ok(statuses)
    })
}

#[test]
fn a_safe_request_is_sent_early_and_any_other_after_the_handshake() {
    for first in ["GET", "POST"] {
        let mut stage = Stage::network();
        let seen = Seen::default();
        let uri = format!("https://{}/", stage.serve(limits(), router(&seen)));
        assert_eq!(send(&mut stage, vec![("GET", uri.clone())]).expect("responses"), [200]);
        assert_eq!(seen.take(), ["GET -"]);
        assert_eq!(send(&mut stage, vec![(first, uri.clone()), ("POST", uri)]).expect("responses"), [200, 200]);
        let mark = if first == "GET" { "GET 1" } else { "POST -" };
        assert_eq!(seen.take(), [mark, "POST -"]);
    }
}

#[test]
fn a_request_that_is_too_early_is_sent_again_after_the_handshake() {
    let mut stage = Stage::network();
    let seen = Seen::default();
    let address = stage.serve(limits(), router(&seen));
    assert_eq!(send(&mut stage, vec![("GET", format!("https://{address}/"))]).expect("a response"), [200]);
    assert_eq!(send(&mut stage, vec![("GET", format!("https://{address}/careful"))]).expect("a response"), [200]);
    assert_eq!(seen.take(), ["GET -", "GET -"]);
}

#[test]
fn requests_are_sent_again_if_the_server_refuses_early_data() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let first = stage.serve(limits(), router(&seen));
        assert_eq!(send(stage, vec![("GET", format!("https://{first}/"))]).expect("a response"), [200]);
        // A server that was started again has forgotten its sessions.
        let second = format!("https://{}/", stage.serve(limits(), router(&seen)));
        assert_eq!(send(stage, vec![("GET", second.clone()), ("POST", second)]).expect("responses"), [200, 200]);
        assert_eq!(seen.take(), ["GET -", "GET -", "POST -"]);
    });
}

#[test]
fn a_client_with_many_sessions_of_a_server_that_has_forgotten_them_needs_no_retry() {
    Stage::each(|stage| {
        for method in ["GET", "POST"] {
            let seen = Seen::default();
            let first = stage.serve(limits(), router(&seen));
            // Each connection uses up one session, and brings two.
            for _ in 0..8 {
                assert_eq!(send(stage, vec![("GET", format!("https://{first}/"))]).expect("a response"), [200]);
            }
            seen.take();
            let second = format!("https://{}/", stage.serve(limits(), router(&seen)));
            let mut of_client = ClientLimits::default();
            of_client.retries_max = 0;
            let client = client_with(stage, of_client);
            assert_eq!(send_by(stage, client, vec![(method, second)]).expect("a response"), [200], "{method}");
            assert_eq!(seen.take(), [format!("{method} -")]);
        }
    });
}
