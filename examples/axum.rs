//! An axum router on our loops, without hyper in between; `axum_on_hyper` serves the same router by axum's own server.
//!
//! ```text
//! cargo run --example axum                                # checks itself, and ends
//! cargo run --release --example axum -- 127.0.0.1:8080    # serves
//! ```
//!
//! One loop, on one thread, so that both can be compared.

#![forbid(unsafe_code)]

#[path = "axum_router/mod.rs"]
mod axum_router;

use std::error::Error;
use std::time::Duration;

use tidegate::Listener;

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1);
    let address = given.clone().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = Listener::bind(&address)?;
    let server = tidegate::axum::serve_on(listener, axum_router::router()).server(|server| server.loops(1)).start()?;
    if given.is_none() {
        axum_router::check(server.address().ip().ok_or("an IP address")?)?;
        server.drain(Duration::from_secs(1));
        return Ok(());
    }
    println!("listening on http://{}", server.address());
    server.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate::http::{Config, Router};
    use tidegate_testkit::Embedded;

    use super::*;

    #[test]
    fn it_answers_as_serve_does() {
        let routes = Router::new().fallback(tidegate::axum::function(axum_router::router()));
        let (codec, handler) = Config::new().connections(routes)();
        let mut pipe = Embedded::new(codec, handler);
        for (path, content_type, body) in [
            ("/plaintext", "text/plain", "Hello, World!"),
            ("/json", "application/json", r#"{"message":"Hello, World!"}"#),
        ] {
            pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").as_bytes());
            let answer = String::from_utf8(pipe.take_written()).unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\r\n\r\n{body}")),
                "{answer}"
            );
            assert!(answer.to_lowercase().contains(&format!("\r\ncontent-type: {content_type}\r\n")), "{answer}");
        }
    }
}
