//! Connections that leave HTTP.

use tidegate::framing::{Lines, Raw};
use tidegate::http::client::ClientError;
use tidegate::http::{Client, IntoResponse, Request, Response, Router, StatusCode, Upgrade};

use crate::support::{Any, Scripted, Served, read_head, run};

#[expect(clippy::needless_pass_by_value, reason = "a function of a route takes its request")]
fn shout(request: Request) -> Response {
    if !request.asks_for_upgrade("shout") {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let upgrade = Upgrade::channel(Lines::new(), async |mut channel| {
        while let Some(line) = channel.recv().await? {
            channel.send(line.to_ascii_uppercase().into())?;
        }
        Ok::<_, Any>(())
    });
    Response::upgrade("shout", upgrade).into_response()
}

#[test]
fn a_response_becomes_a_channel_of_another_protocol() {
    let server = Served::start(|| Router::new().get("/", shout));
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let response = client.get(&uri).send().await?;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(response.into_channel(Raw).is_err());
        let response = client.get(&uri).upgrade("shout").send().await?;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut channel = response.into_channel(Lines::new()).map_err(|_| "it has not switched")?;
        for line in ["ebb", "flow"] {
            channel.send(line.into())?;
            assert_eq!(channel.recv().await?.as_deref(), Some(line.to_uppercase().as_bytes()));
        }
        assert_eq!(client.connections(), client.idle_connections(), "the channel is none of the pool");
        let error = client.get(&uri).upgrade("no protocol").send().await.expect_err("it is no token");
        assert!(matches!(error, ClientError::Request(_)), "{error}");
        Ok(())
    });
}

#[test]
fn a_connect_makes_a_tunnel_whose_first_bytes_may_come_with_the_response() {
    let server = Scripted::start(|_, stream| {
        let head = read_head(stream).unwrap_or_default();
        assert!(head.starts_with("CONNECT sea.example:443 HTTP/1.1\r\nHost: sea.example:443\r\n"), "{head}");
        let _ = std::io::Write::write_all(stream, b"HTTP/1.1 200 OK\r\n\r\nhello\n");
    });
    let address = server.address();
    run(async move {
        let client = Client::new();
        let request = client.request(tidegate::http::Method::CONNECT, "http://sea.example:443").at(address);
        let response = request.send().await?;
        let mut channel = response.into_channel(Lines::new()).map_err(|_| "it is no tunnel")?;
        assert_eq!(channel.recv().await?.as_deref(), Some(&b"hello"[..]));
        Ok(())
    });
}
