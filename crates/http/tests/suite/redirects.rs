//! Redirects, fixed responses, and fields of responses that are set from the request.

use tidegate::http::{
    Edit, FixedResponse, Redirect, RequestIds, Response, ResponseFields, Router, StatusCode, Template, TrustedProxies,
};

use crate::support::{split, start};

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

#[test]
fn a_redirect_names_the_same_target_on_another_host() {
    let server = start(|| {
        let redirect = |status, location| Redirect::new(status, template(location)).unwrap();
        Router::new()
            .any("/old/{*rest}", redirect(StatusCode::MOVED_PERMANENTLY, "/new/{request.param.rest}"))
            .fallback(redirect(StatusCode::PERMANENT_REDIRECT, "https://{request.hostname}{request.target}"))
    });
    for (target, status, location) in [
        ("/a%20b?c=d", "308", "https://sea.example/a%20b?c=d"),
        ("//evil.example/%2e%2e", "308", "https://sea.example//evil.example/%2e%2e"),
        ("/old/x/y?z", "301", "/new/x/y"),
        ("/old//evil.example", "301", "/new//evil.example"),
    ] {
        let wire = format!("POST {target} HTTP/1.1\r\nHost: sea.example:80\r\nContent-Length: 3\r\n\r\nabc");
        let (head, body) = split(&server.exchange(&wire));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains(&format!("\r\nLocation: {location}\r\n")), "{head}");
        assert_eq!(body, "");
    }
}

#[test]
fn a_fixed_response_has_its_body_also_for_head() {
    let server = start(|| {
        let robots = FixedResponse::new(StatusCode::OK)
            .content_type("text/plain")
            .unwrap()
            .edit(&Edit::set("X-For", template("{request.method} {client.ip}")).unwrap())
            .body("User-agent: *\n");
        Router::new().any("/robots.txt", robots)
    });
    let (head, body) = server.get("/robots.txt");
    assert!(
        head.contains("\r\nContent-Type: text/plain\r\n") && head.contains("\r\nX-For: GET 127.0.0.1\r\n"),
        "{head}"
    );
    assert_eq!(body, "User-agent: *\n");
    let (head, body) = split(&server.exchange("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert!(head.contains("\r\nContent-Length: 14"), "{head}");
    assert_eq!(body, "");
}

#[test]
fn fields_of_a_response_are_set_from_its_request() {
    let server = start(|| {
        let trusted = TrustedProxies::new("127.0.0.0/8".parse().unwrap());
        let fields = ResponseFields::new()
            .edit(Edit::set("X-Client", template("{client.ip} {request.id}")).unwrap())
            .edit(Edit::remove("X-Secret"))
            .edit(Edit::add("X-Status", template("{response.status}")).unwrap())
            .edit(Edit::set("Content-Type", "text/css").unwrap())
            .edit(Edit::set("X-Sent", template("[{request.header.X-Sent}]")).unwrap())
            .trusted(trusted);
        Router::new()
            .get("/", || {
                let response = Response::text("body").header("X-Secret", "1")?.header("x_secret", "2")?;
                response.header("X-Status", "3")
            })
            .with(RequestIds::new())
            .with(fields)
    });
    let wire = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: 7\r\nX-Forwarded-For: 9.9.9.9\r\n\
                X-Sent: a\tb\r\n\r\n";
    let (head, _) = split(&server.exchange(wire));
    assert!(head.contains("\r\nX-Client: 9.9.9.9 7\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("secret"), "{head}");
    assert!(head.contains("\r\nX-Status: 3\r\n") && head.contains("\r\nX-Status: 200\r\n"), "{head}");
    assert_eq!(head.matches("Content-Type").count(), 1, "{head}");
    assert!(head.contains("\r\nContent-Type: text/css\r\n") && head.contains("\r\nX-Sent: [a\tb]\r\n"), "{head}");
}
