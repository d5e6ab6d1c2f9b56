//! A SOCKS proxy: versions 4, 4a and 5, with or without a password.
//!
//! ```text
//! cargo run --example socks_server                                    # connects to itself through SOCKS, and exits
//! cargo run --example socks_server -- 127.0.0.1:1080                  # a proxy for every client that reaches the address
//! cargo run --example socks_server -- 127.0.0.1:1080 ebb flow         # one that requires this user and password
//! curl --socks5-hostname 127.0.0.1:1080 http://sea.example/
//! ```
//!
//! The handshake is a codec that ends by a switch: the bytes of the tunnel pass through no part of it. A proxy in a
//! real network decides which targets are allowed, before it connects: this one allows all.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::framing::{Lines, Raw};
use tidegate::socks::{self, Answer, Authentication, Config, Event, Refusal, Target};
use tidegate::{Channel, Client, ConnectError, EventLoop, ReadHalf, Server, ServerHandle, WriteHalf, task};

type Any = Box<dyn Error>;

/// A user name and a password.
type User = (String, String);

/// Carries out the handshake, then copies both directions.
async fn proxy(mut near: Channel<socks::Server>, user: Option<Arc<User>>) -> Result<(), Any> {
    while let Some(event) = near.recv().await? {
        match event {
            Event::Credentials(credentials) => {
                let is_right = user
                    .as_deref()
                    .is_some_and(|(name, password)| credentials.is(name.as_bytes(), password.as_bytes()));
                near.send(if is_right { Answer::Authenticated } else { Answer::Denied })?;
            }
            Event::Connect(request) => match connect(request.target()).await {
                Ok(far) => {
                    let bound = far.local()?.ip().ok_or("a target has an IP address")?;
                    near.send(Answer::Connected(bound))?;
                    return copy_both(near.switch(|_| Raw)?, far).await;
                }
                // The codec ends the connection behind the refusal.
                Err(refusal) => drop(near.send(Answer::Refused(refusal))?),
            },
            other => return Err(format!("an event that this proxy does not have: {other:?}").into()),
        }
    }
    Ok(())
}

async fn connect(target: &Target) -> Result<Channel<Raw>, Refusal> {
    let client = Client::to(&target.to_string()).map_err(|_| Refusal::HostUnreachable)?;
    client.connect_timeout(CONNECT_TIMEOUT).connect(Raw).await.map_err(|error| match error {
        ConnectError::Failed(_, error) => Refusal::from(&error),
        ConnectError::Timeout(_) => Refusal::Expired,
        _ => Refusal::HostUnreachable,
    })
}

async fn copy_both(mut near: Channel<Raw>, mut far: Channel<Raw>) -> Result<(), Any> {
    // Only the two peers know when they are done.
    near.ignore_drain();
    far.ignore_drain();
    let (near_reader, near_writer) = near.split();
    let (far_reader, far_writer) = far.split();
    task::try_join(copy(near_reader, far_writer), copy(far_reader, near_writer)).await?;
    Ok(())
}

/// Copies one direction. When its source ends, so does its sink; when either breaks, both are reset.
async fn copy(mut from: ReadHalf<Raw>, mut to: WriteHalf<Raw>) -> Result<(), Any> {
    let copied: Result<(), Any> = async {
        while let Some(bytes) = from.recv().await? {
            to.send(bytes.into())?;
            to.ready().await?;
        }
        Ok(())
    }
    .await;
    if copied.is_err() {
        from.abort();
        to.abort();
    }
    copied
}

fn start(listen: &str, user: Option<User>) -> Result<ServerHandle, Any> {
    let authentication = if user.is_some() { Authentication::Required } else { Authentication::None };
    let server = Server::bind(listen)?;
    let codec = move || socks::Server::new(Config { authentication, ..Config::default() });
    let user = user.map(Arc::new);
    Ok(server.serve(codec, move |channel| proxy(channel, user.clone()))?)
}

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    if let Some(listen) = arguments.next() {
        let running = start(&listen, arguments.next().zip(arguments.next()))?;
        println!("listening on {}", running.address());
        running.wait();
        return Ok(());
    }
    let echo = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::new, echo)?;
    let user = ("ebb".to_owned(), "flow".to_owned());
    let proxy = start("127.0.0.1:0", Some(user))?;
    let target: Target = echo.address().ip().ok_or("not an IP address")?.into();
    let through = Client::at(proxy.address().clone());
    let answer = EventLoop::on(tidegate::Backend::Auto)?.block_on(async move {
        let codec = socks::Client::v5(target).credentials("ebb", "flow")?;
        let mut channel = through.connect(codec).await?;
        channel.recv().await?.ok_or("the proxy has ended the connection")??;
        let mut lines = channel.switch(|_| Lines::new())?;
        lines.send("ahoy".into())?;
        let answer = lines.recv().await?.ok_or("the target has ended the connection")?;
        Ok::<_, Any>(String::from_utf8_lossy(&answer).into_owned())
    })??;
    println!("through the proxy came {answer}");
    assert_eq!(answer, "ahoy");
    proxy.drain(Duration::from_secs(5));
    echo.drain(Duration::from_secs(5));
    Ok(())
}

async fn echo(mut channel: Channel<Lines>) -> Result<(), Any> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.into())?;
    }
    Ok(())
}

/// How long the proxy tries to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Instant;

    use tidegate_testkit::ClosedPort;

    use super::*;

    /// The command of a program; `None`, with a message, if it is not installed.
    fn installed(program: &str) -> Option<Command> {
        match Command::new(program).arg("--help").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
                assert!(!required, "{program} is required");
                println!("skipped: {program} is not installed");
                None
            }
            _ => Some(Command::new(program)),
        }
    }

    /// An HTTP server on a thread that answers `count` requests with `ahoy`.
    fn http_server(count: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(count) {
                let mut stream = stream.unwrap();
                let mut seen = Vec::new();
                while !seen.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    seen.push(byte[0]);
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nahoy").unwrap();
            }
        });
        address
    }

    /// The body and the exit code of curl.
    fn curl(arguments: &[&str]) -> Option<(String, i32)> {
        let output =
            installed("curl")?.args(["--silent", "--max-time", "20", "--noproxy", ""]).args(arguments).output();
        let output = output.unwrap();
        Some((String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap()))
    }

    #[test]
    fn curl_connects_through_it_in_every_version() {
        let proxy = start("127.0.0.1:0", None).unwrap();
        let at = proxy.address().to_string();
        let origin = http_server(4);
        let by_name = format!("http://localhost:{}/", origin.port());
        let by_address = format!("http://{origin}/");
        for (flag, url) in [
            ("--socks5-hostname", &by_name),
            ("--socks5", &by_address),
            ("--socks4a", &by_name),
            ("--socks4", &by_address),
        ] {
            let Some(seen) = curl(&[flag, &at, url]) else { return };
            assert_eq!(seen, ("ahoy".into(), 0), "{flag}");
        }
        proxy.drain(Duration::from_secs(5));
    }

    #[test]
    fn curl_authenticates_and_is_refused_without_the_password() {
        let proxy = start("127.0.0.1:0", Some(("ebb".into(), "flow".into()))).unwrap();
        let origin = format!("http://{}/", http_server(1));
        let through = |user: &str| format!("socks5h://{user}{}", proxy.address());
        let Some(seen) = curl(&["--proxy", &through("ebb:flow@"), &origin]) else { return };
        assert_eq!(seen, ("ahoy".into(), 0));
        for user in ["ebb:ebb@", ""] {
            let (body, code) = curl(&["--proxy", &through(user), &origin]).unwrap();
            // 97 is its error for the handshake of a proxy.
            assert_eq!((&*body, code), ("", 97), "{user}");
        }
        proxy.drain(Duration::from_secs(5));
    }

    #[test]
    fn curl_learns_why_a_target_is_not_connected() {
        let proxy = start("127.0.0.1:0", None).unwrap();
        let closed = ClosedPort::tcp();
        let at = proxy.address().to_string();
        let Some(mut command) = installed("curl") else { return };
        let url = format!("http://{}/", closed.address());
        let output = command.args(["--verbose", "--max-time", "20", "--noproxy", "", "--socks5", &at, &url]).output();
        let text = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(text.contains("(5)"), "the code of a refused connection: {text}");
        proxy.drain(Duration::from_secs(5));
    }

    /// microsocks at a free port, ended when it is dropped.
    struct Microsocks(Child, SocketAddr);

    impl Drop for Microsocks {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn microsocks(arguments: &[&str]) -> Option<Microsocks> {
        let mut command = installed("microsocks")?;
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = command
            .args(["-i", "127.0.0.1", "-p", &at.port().to_string()])
            .args(arguments)
            .stderr(Stdio::null())
            .spawn();
        let microsocks = Microsocks(child.unwrap(), at);
        let until = Instant::now() + Duration::from_secs(120);
        while TcpStream::connect(at).is_err() {
            assert!(Instant::now() < until, "microsocks does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(microsocks)
    }

    /// The answer to a line through the proxy.
    fn echoed(proxy: SocketAddr, codec: socks::Client) -> Result<String, String> {
        let mut event_loop = EventLoop::on(tidegate::Backend::Auto).unwrap();
        let talk = async move {
            let mut channel = Client::at(proxy).connect(codec).await.map_err(|error| error.to_string())?;
            let result = channel.recv().await.map_err(|error| error.to_string())?.ok_or("the end")?;
            result.map_err(|refusal| format!("{refusal:?}"))?;
            let mut lines = channel.switch(|_| Lines::new()).map_err(|error| error.to_string())?;
            lines.send("ahoy".into()).map_err(|error| error.to_string())?;
            let line = lines.recv().await.map_err(|error| error.to_string())?.ok_or("the end")?;
            Ok(String::from_utf8_lossy(&line).into_owned())
        };
        event_loop.block_on(talk).unwrap()
    }

    #[test]
    fn the_client_connects_through_microsocks() {
        let target = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(Lines::new, echo).unwrap();
        let at = target.address().ip().unwrap();
        let by_name = || Target::new("localhost", at.port()).unwrap();
        let Some(open) = microsocks(&[]) else { return };
        for to in [by_name(), at.into()] {
            assert_eq!(echoed(open.1, socks::Client::v5(to)), Ok("ahoy".into()));
        }
        let closed = ClosedPort::tcp();
        assert_eq!(echoed(open.1, socks::Client::v5(closed.address().into())), Err("ConnectionRefused".into()));
        let guarded = microsocks(&["-u", "ebb", "-P", "flow"]).unwrap();
        let named = |password| socks::Client::v5(by_name()).credentials("ebb", password).unwrap();
        assert_eq!(echoed(guarded.1, named("flow")), Ok("ahoy".into()));
        assert_eq!(echoed(guarded.1, named("ebb")), Err("Credentials".into()));
        assert_eq!(echoed(guarded.1, socks::Client::v5(by_name())), Err("NoMethod".into()));
        target.drain(Duration::from_secs(5));
    }

    #[test]
    fn the_client_connects_through_our_proxy_in_both_versions() {
        let target = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(Lines::new, echo).unwrap();
        let proxy = start("127.0.0.1:0", None).unwrap();
        let (at, to) = (proxy.address().ip().unwrap(), target.address().ip().unwrap());
        assert_eq!(echoed(at, socks::Client::v5(to.into())), Ok("ahoy".into()));
        assert_eq!(echoed(at, socks::Client::v4(to.into(), "fred").unwrap()), Ok("ahoy".into()));
        let closed = ClosedPort::tcp();
        assert_eq!(echoed(at, socks::Client::v4(closed.address().into(), "").unwrap()), Err("General".into()));
        for server in [proxy, target] {
            server.drain(Duration::from_secs(5));
        }
    }
}
