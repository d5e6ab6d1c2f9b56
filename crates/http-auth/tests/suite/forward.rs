//! Another service decides.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::http::auth::{ForwardAuth, InvalidService};
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Client, IntoResponse, InvalidField, Request, Response, Router, StatusCode, TrustedProxies};
use tidegate::{Backend, EventLoop};
use tidegate_testkit::ClosedPort;

use crate::support::{Running, body, field, start, status};

/// Shows the fields of its request, but for those of the connection.
#[expect(clippy::needless_pass_by_value, reason = "it is a function of a router")]
fn show(request: Request) -> String {
    let names = ["host", "connection"];
    let fields = request.headers().filter(|(name, _)| !names.contains(&&*name.to_ascii_lowercase()));
    let mut lines: Vec<_> =
        fields.map(|(name, value)| format!("{}={}", name.to_lowercase(), String::from_utf8_lossy(value))).collect();
    lines.sort();
    format!("{} {} {}", request.method(), request.target(), lines.join(" "))
}

/// A service that decides by the field `Authorization`.
fn service() -> Running {
    start(|| {
        Router::new().get("/verify", |request: Request| -> Result<Response, InvalidField> {
            let mut response = match request.header_str("authorization") {
                Some("ebb") => {
                    Response::text("welcome").header("Remote-User", "ebb")?.header("Remote-Groups", "crew")?
                }
                Some("guest") => Response::new(),
                Some("login") => Response::status(StatusCode::FOUND).header("Location", "https://login.example/")?,
                Some("banned") => Response::status(StatusCode::FORBIDDEN).body("no entry"),
                Some("many") => Response::status(StatusCode::TOO_MANY_REQUESTS).header("Retry-After", "7")?,
                Some("broken") => StatusCode::BAD_GATEWAY.into_response(),
                Some("unchanged") => StatusCode::NOT_MODIFIED.into_response(),
                Some("long") => Response::status(StatusCode::UNAUTHORIZED).body("x".repeat(100_000)),
                _ => Response::status(StatusCode::UNAUTHORIZED)
                    .header("WWW-Authenticate", "Bearer realm=\"sea\"")?
                    .header("Set-Cookie", "next=/; Secure")?
                    .body("who are you?"),
            };
            response.add_header("X-Question", show(request))?;
            Ok(response)
        })
    })
}

fn forward(service: &Running) -> ForwardAuth {
    let forward = ForwardAuth::new(&service.url("/verify")).expect("a URL");
    forward.copy(["Remote-User", "Remote-Groups"]).expect("names")
}

/// A server behind it, which shows the request that has passed.
fn guarded(forward: ForwardAuth) -> Running {
    start(move || Router::new().any("/{*path}", show).wrap(forward.require()))
}

#[test]
fn a_request_passes_with_the_fields_of_the_service_and_not_with_those_of_the_client() {
    let (service, forged) =
        (service(), "Remote-User: admin\r\nREMOTE_GROUPS: admin\r\nremote.user: admin\r\nKept: yes\r\n");
    let server = guarded(forward(&service));
    let response = server.get("/log?q", &format!("Authorization: ebb\r\n{forged}"));
    assert_eq!(body(&response), "GET /log?q authorization=ebb kept=yes remote-groups=crew remote-user=ebb");
    // The service names no user: nobody else does.
    let response = server.get("/log", &format!("Authorization: guest\r\n{forged}"));
    assert_eq!(body(&response), "GET /log authorization=guest kept=yes");
}

#[test]
fn a_path_without_a_route_is_not_shown_to_others() {
    let service = service();
    let server = guarded(forward(&service));
    assert_eq!(status(&server.get("/", "")), "401");
    assert_eq!(status(&server.get("/", "Authorization: ebb\r\n")), "404");
}

#[test]
fn a_request_with_several_authorization_fields_is_refused() {
    let service = service();
    let server = guarded(forward(&service));
    for (one, other) in [("ebb", "admin"), ("admin", "ebb"), ("ebb", "ebb")] {
        let response = server.get("/log", &format!("Authorization: {one}\r\nauthorization: {other}\r\n"));
        assert_eq!(status(&response), "400", "{one} {other}");
    }
}

#[test]
fn each_answer_of_the_service_has_its_consequence() {
    let service = service();
    let server = guarded(forward(&service));
    let ask = |user: &str| server.get("/log", &format!("Authorization: {user}\r\n"));
    let response = ask("nobody");
    assert_eq!((status(&response), body(&response)), ("401", "who are you?"), "{response}");
    assert_eq!(field(&response, "WWW-Authenticate"), Some("Bearer realm=\"sea\""));
    assert_eq!(field(&response, "Set-Cookie"), Some("next=/; Secure"));
    let response = ask("login");
    assert_eq!((status(&response), field(&response, "Location")), ("302", Some("https://login.example/")));
    assert_eq!(body(&ask("banned")), "no entry");
    let response = ask("many");
    assert_eq!((status(&response), field(&response, "Retry-After")), ("429", Some("7")));
    for failing in ["broken", "unchanged", "long"] {
        assert_eq!(status(&ask(failing)), "503", "{failing}");
    }
    assert_eq!(status(&ask("ebb")), "200");
}

#[test]
fn the_service_gets_the_fields_of_the_client_and_which_request_it_was() {
    let service = service();
    let claims = "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Uri: /public\r\nX_Forwarded_Method: GET\r\n\
                  X-Forwarded-Proto: https\r\nX-Forwarded-Host: harbour\r\nX-Original-URL: http://sea/public\r\n\
                  X-Original-URI: /public\r\nX_Original_Method: GET\r\nX-Rewrite-Url: /public\r\n\
                  X-Auth-Request-Redirect: http://cliff/\r\n";
    let conditions = "If-None-Match: *\r\nRange: bytes=0-1\r\nContent-Type: text/plain\r\nCookie: a=b\r\n";
    let wire = format!("DELETE /log?q=%2F HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{claims}{conditions}\r\n");
    let server = guarded(forward(&service));
    let question = |server: &Running, wire: &str| {
        let response = server.exchange(wire);
        field(&response, "X-Question").expect("a refusal of the service").to_owned()
    };
    let expected = "GET /verify cookie=a=b x-forwarded-for=127.0.0.1 x-forwarded-host=sea x-forwarded-method=DELETE \
                    x-forwarded-proto=http x-forwarded-uri=/log?q=%2F";
    assert_eq!(question(&server, &wire), expected);
    let trusted = TrustedProxies::new("127.0.0.0/8".parse().expect("a network"));
    let server = guarded(forward(&service).trusted(trusted).request_fields(["Authorization"]).expect("a name"));
    let expected = "GET /verify x-forwarded-for=198.51.100.1 x-forwarded-host=harbour x-forwarded-method=DELETE \
                    x-forwarded-proto=https x-forwarded-uri=/log?q=%2F";
    assert_eq!(question(&server, &wire), expected, "a trusted proxy names the client, and never the request");
}

#[test]
fn a_proxy_passes_the_fields_of_the_service_on_and_no_client_has_them_dropped() {
    let (service, upstream) = (service(), start(|| Router::new().fallback(show)));
    let forward = forward(&service);
    let upstreams = Upstreams::new([upstream.url("").as_str()]).expect("an upstream");
    let server = start(move || Router::new().fallback(Proxy::new(&upstreams)).wrap(forward.require()));
    let response = server.get("/log", "Authorization: ebb\r\nRemote-User: admin\r\n");
    assert!(body(&response).contains(" remote-groups=crew remote-user=ebb "), "{response}");
    // RFC 9110 §7.6.1: a proxy does not pass on the fields that `Connection` names.
    let wire = "GET /log HTTP/1.1\r\nHost: sea\r\nConnection: close, remote-user\r\nAuthorization: ebb\r\n\r\n";
    assert_eq!(status(&server.exchange(wire)), "400");
}

#[test]
fn a_service_that_hangs_is_waited_for_until_the_deadline() {
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", hanging.local_addr().expect("an address"));
    let forward = ForwardAuth::new(&url).expect("a URL").timeout(Duration::from_millis(50));
    assert_eq!(status(&guarded(forward.clone()).get("/log", "")), "504");
    let response =
        guarded(forward.fails_open(true).copy(["Remote-User"]).expect("a name")).get("/log", "Remote-User: x\r\n");
    assert_eq!(body(&response), "GET /log ", "it may be left open, and the client names no user then either");
    drop(hanging);
}

#[test]
fn a_service_that_is_not_there_or_speaks_another_protocol_refuses() {
    let closed = ClosedPort::tcp();
    let server = guarded(ForwardAuth::new(&format!("http://{}/", closed.address())).expect("a URL"));
    assert_eq!(status(&server.get("/log", "")), "503");
    let garbled = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", garbled.local_addr().expect("an address"));
    let answering = thread::spawn(move || {
        let (mut stream, _) = garbled.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"SSH-2.0-sea\r\n\r\n");
    });
    assert_eq!(status(&guarded(ForwardAuth::new(&url).expect("a URL")).get("/log", "")), "503");
    answering.join().expect("it ends");
}

#[test]
fn connections_to_the_service_are_kept() {
    let connections = Arc::new(AtomicU32::new(0));
    let count = connections.clone();
    let service = start(move || {
        let count = count.clone();
        let router = Router::new().connection_state(move |_| count.fetch_add(1, Ordering::SeqCst));
        router.get("/verify", |_: tidegate::http::ConnectionState<u32>| "welcome")
    });
    let server = guarded(forward(&service));
    for _ in 0..5 {
        assert_eq!(status(&server.get("/log", "")), "200");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    for (url, expected) in [
        ("", InvalidService::Url),
        ("/verify", InvalidService::Url),
        ("127.0.0.1:9091", InvalidService::Url),
        ("ftp://sea/", InvalidService::Scheme),
    ] {
        assert_eq!(ForwardAuth::new(url).err(), Some(expected), "{url}");
    }
    let forward = || ForwardAuth::new("http://sea/").expect("a URL");
    for name in ["Content-Length", "host", "Connection", "transfer_encoding"] {
        assert_eq!(forward().copy([name]).err(), Some(InvalidField::Reserved), "{name}");
    }
    assert_eq!(forward().copy(["a b"]).err(), Some(InvalidField::Name));
}

#[test]
fn a_request_by_http2_passes_with_the_fields_of_the_service() {
    let service = service();
    let server = guarded(forward(&service));
    let url = server.url("/log");
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let text = event_loop.block_on(async move {
        let client = Client::builder().http2_prior_knowledge(true).build();
        let request = client.post(&url).header("Authorization", "ebb").header("Remote-User", "admin");
        request.body("x".repeat(100_000)).send().await.expect("a response").text().await.expect("a body")
    });
    let text = text.expect("the loop runs");
    assert!(text.starts_with("POST /log ") && text.ends_with(" remote-groups=crew remote-user=ebb"), "{text}");
    assert!(!text.contains("admin"), "{text}");
}
