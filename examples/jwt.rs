//! JSON Web Tokens: a service that knows its users by the claims of their tokens.
//!
//! ```text
//! cargo run --example jwt                      # checks itself, and ends
//! cargo run --example jwt -- 127.0.0.1:8080 https://login.example.org/keys
//! curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:8080/me
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Deserialize;
use tidegate::ServerHandle;
use tidegate::http::auth::{Claims, Jwt, JwtKeys, RequiredClaim};
use tidegate::http::{Router, Server, with_middleware};
use tidegate::tls::{ClientConfig, Provider};

/// The claims that this service reads.
#[derive(Deserialize)]
struct User {
    sub: String,
    #[serde(default)]
    roles: Vec<String>,
}

/// `GET /me`
fn me(Claims(user): Claims<User>) -> String {
    format!("{}: {}\n", user.sub, user.roles.join(", "))
}

/// Serves `/me` to users, and `/pilots` to those with the role.
fn serve(address: &str, jwt: Jwt, pilots: Jwt) -> Result<ServerHandle, Box<dyn Error>> {
    let router = move || {
        let for_pilots = with_middleware(|| "the chart\n").wrap(pilots.require());
        Router::new().get("/me", with_middleware(me).wrap(jwt.require())).get("/pilots", for_pilots)
    };
    Ok(Server::bind(address)?.start(router)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check(),
        [address, url] => {
            let tls = ClientConfig::builder_with_platform_roots(&Provider::aws_lc_rs())?.build()?;
            let keys = JwtKeys::url(url)?.tls(tls);
            let rules = || Jwt::builder(keys.clone()).issuer("https://login.example.org").audience("tides");
            let pilots = rules().required(RequiredClaim::Value("roles".into(), "pilot".into()));
            let server = serve(address, rules().build()?, pilots.build()?)?;
            println!("listening on http://{}", server.address());
            server.wait();
            Ok(())
        }
        _ => Err("an address and the URL of a key set".into()),
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let keys = JwtKeys::secret("a secret of at least thirty-two bytes")?;
    let rules = || Jwt::builder(keys.clone()).algorithms(["HS256"]);
    let pilots = rules().required(RequiredClaim::Value("roles".into(), "pilot".into()));
    let server = serve("127.0.0.1:0", rules().build()?, pilots.build()?)?;
    let get = |path: &str, token: &str| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(server.address().to_string())?;
        let field = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{field}\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    assert!(get("/me", "")?.contains("\r\nWWW-Authenticate: Bearer realm=\"restricted\"\r\n"));
    assert!(get("/me", TOKEN)?.ends_with("\r\n\r\nebb: \n"));
    let forged = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    assert!(get("/me", &forged)?.contains("error=\"invalid_token\""));
    assert!(get("/pilots", TOKEN)?.starts_with("HTTP/1.1 401 "), "a required claim is not there");
    server.drain(Duration::ZERO);
    println!("all is as expected");
    Ok(())
}

/// A token of the user `ebb`, until the year 2286.
const TOKEN: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJlYmIiLCJleHAiOjk5OTk5OTk5OTl9.nKJ2jooqPEWpJXRl77Qx8EVMJLNue3QuLGIVG03fMZ4";

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
