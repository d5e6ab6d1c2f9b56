//! `Server`: the codec of a connection from a client, until the application has connected it to its target.
//!
//! ```text
//!              ┌─────────────────────────────────────────┐ without authentication
//!   Greeting ──┴─▶ Password ──▶ Verdict ── Authenticated ─┴▶ Request ──▶ Reply ── Connected ──▶ Done
//!       │                          └───── Denied ──────┐                   └───── Refused ────▶ Finished
//!       └── version 4: its request ──▶ Reply            └─────────────────────────────────────────▲
//! ```
//!
//! In `Verdict` and `Reply` the application has an event to answer: nothing is decoded and no time runs. No byte behind
//! the request is consumed: it belongs to the codec that the application switches to.

use std::time::{Duration, Instant};

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};

use crate::error::{Error, Exceeded, Misuse, Violation};
use crate::message::{Answer, Event, Request, Version};
use crate::refusal::Refusal;
use crate::{v4, v5};

/// The clients that a [`Server`] accepts, and the limits of their handshakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether clients authenticate; [`Authentication::None`] unless set.
    pub authentication: Authentication,
    /// Whether version 4 is allowed beside 5. True unless set. A server that requires a password refuses it in any
    /// case.
    pub allow_version_4: bool,
    /// Bytes of the user id in a request of version 4; 255 unless set.
    pub user_id_bytes_max: u8,
    /// How long a client may take, from the opened connection to its request, without the time in which the application
    /// decides; 10 seconds unless set. An answer of the application restarts it.
    pub handshake_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            authentication: Authentication::None,
            allow_version_4: true,
            user_id_bytes_max: 255,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// Whether clients authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Authentication {
    /// No client does.
    #[default]
    None,
    /// A client that offers it does, by a user name and a password.
    Optional,
    /// Every client does. Version 4 is refused.
    Required,
}

/// The codec of a server. It yields an [`Event`] at a time, and waits for the application's [`Answer`]. After
/// [`Answer::Connected`] the application switches to the codec of the tunnelled bytes.
///
/// ```
/// use tidegate::framing::Raw;
/// use tidegate::socks::{self, Answer, Event, Refusal};
/// use tidegate::{Channel, Client};
///
/// async fn proxy(mut near: Channel<socks::Server>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(event) = near.recv().await? {
///         let request = match event {
///             Event::Credentials(credentials) => {
///                 let is_right = credentials.is(b"ebb", b"flow");
///                 near.send(if is_right { Answer::Authenticated } else { Answer::Denied })?;
///                 continue;
///             }
///             Event::Connect(request) => request,
///             _ => continue,
///         };
///         let Ok(far) = Client::to(&request.target().to_string())?.connect(Raw).await else {
///             near.send(Answer::Refused(Refusal::HostUnreachable))?;
///             continue;
///         };
///         let bound = far.local()?.ip().ok_or("the target is on a Unix socket")?;
///         near.send(Answer::Connected(bound))?;
///         let near = near.switch(|_| Raw)?;
///         // `examples/socks_server.rs` copies both directions from here on.
///         # drop((near, far));
///         break;
///     }
///     Ok(())
/// }
///
/// let server = tidegate::Server::bind("127.0.0.1:0")?.serve(socks::Server::default, proxy)?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Default)]
pub struct Server {
    config: Config,
    state: ServerState,
    until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ServerState {
    /// Nothing is complete yet.
    #[default]
    Greeting,
    /// The client sends a user name and a password.
    Password,
    /// The application decides about them.
    Verdict,
    /// The client sends its request.
    Request,
    /// The application connects.
    Reply(Version),
    /// The application has connected.
    Done,
    /// The client was refused; the connection closes.
    Finished,
}

impl Server {
    /// The codec of a new connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Whether the application has answered [`Connected`](Answer::Connected): it is time to switch.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == ServerState::Done
    }

    /// Decodes one message of the client, and replies to those that need no application.
    fn advance(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Event>, Error> {
        loop {
            match self.state {
                ServerState::Greeting => match input.bytes().first() {
                    Some(&v4::VERSION) => return self.version_4(input, reply),
                    _ => {
                        let Some((methods, length)) = v5::greeting(input.bytes())? else { return Ok(Step::NeedMore) };
                        let method = self.select(methods);
                        reply.write(&[v5::VERSION, method]);
                        input.consume(length);
                        self.state = match method {
                            v5::METHOD_NONE => ServerState::Request,
                            v5::METHOD_PASSWORD => ServerState::Password,
                            _ => return Err(Violation::NoMethod.into()),
                        };
                    }
                },
                ServerState::Password => {
                    let parsed = v5::credentials(input.bytes());
                    let parsed = parsed.inspect_err(|_| reply.write(&[v5::PASSWORD_VERSION, DENIED]))?;
                    let Some((credentials, length)) = parsed else { return Ok(Step::NeedMore) };
                    input.consume(length);
                    self.state = ServerState::Verdict;
                    return Ok(Step::Message(Event::Credentials(credentials)));
                }
                ServerState::Request => {
                    let parsed = v5::request(input.bytes());
                    let parsed = parsed.inspect_err(|&violation| {
                        reply.write(&v5::write_reply(Err(refusal_of(violation))));
                    })?;
                    return Ok(self.requested(parsed, input));
                }
                ServerState::Verdict | ServerState::Reply(_) => return Ok(Step::NeedMore),
                ServerState::Done | ServerState::Finished => return Ok(Step::End),
            }
        }
    }

    fn version_4(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Event>, Error> {
        let is_allowed = self.config.allow_version_4 && self.config.authentication != Authentication::Required;
        let parsed = if is_allowed {
            v4::request(input.bytes(), self.config.user_id_bytes_max.into())
        } else {
            Err(Violation::Version4.into())
        };
        let parsed = parsed.inspect_err(|_| reply.write(&v4::write_reply(Err(Refusal::General))))?;
        Ok(self.requested(parsed, input))
    }

    fn requested(&mut self, parsed: Option<v5::Parsed<Request>>, input: &mut Input) -> Step<Event> {
        let Some((request, length)) = parsed else { return Step::NeedMore };
        input.consume(length);
        self.state = ServerState::Reply(request.version);
        Step::Message(Event::Connect(request))
    }

    /// The method for a client that offers these.
    fn select(&self, offered: &[u8]) -> u8 {
        let has = |method| offered.contains(&method);
        match self.config.authentication {
            Authentication::Optional | Authentication::Required if has(v5::METHOD_PASSWORD) => v5::METHOD_PASSWORD,
            Authentication::None | Authentication::Optional if has(v5::METHOD_NONE) => v5::METHOD_NONE,
            _ => v5::NO_METHOD,
        }
    }

    fn start_time(&mut self, now: Instant) {
        self.until = now.checked_add(self.config.handshake_timeout);
    }

    fn waits_for_client(&self) -> bool {
        matches!(self.state, ServerState::Greeting | ServerState::Password | ServerState::Request)
    }
}

impl Codec for Server {
    type In = Event;
    type Out = Answer;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "SOCKS"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Event>, Error> {
        self.advance(input, reply)
    }

    fn encode(&mut self, answer: Answer, out: &mut Output<'_>) -> Result<(), Error> {
        self.state = match (answer, self.state) {
            (Answer::Authenticated, ServerState::Verdict) => {
                out.write(&[v5::PASSWORD_VERSION, 0]);
                self.start_time(out.now());
                ServerState::Request
            }
            (Answer::Denied, ServerState::Verdict) => {
                out.write(&[v5::PASSWORD_VERSION, DENIED]);
                ServerState::Finished
            }
            (Answer::Connected(bound), ServerState::Reply(version)) => {
                write_reply(version, Ok(bound), out);
                ServerState::Done
            }
            (Answer::Refused(refusal), ServerState::Reply(version)) => {
                write_reply(version, Err(refusal), out);
                ServerState::Finished
            }
            (Answer::Authenticated | Answer::Denied, _) => return Err(Error::Caller(Misuse::NoCredentials)),
            (Answer::Connected(_) | Answer::Refused(_), _) => return Err(Error::Caller(Misuse::NoRequest)),
        };
        Ok(())
    }

    /// A client that ends the stream before its first byte has only checked whether the server listens.
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Event>, Error> {
        match self.advance(input, reply)? {
            Step::NeedMore if self.state == ServerState::Greeting && input.is_empty() => Ok(Step::End),
            Step::NeedMore if self.waits_for_client() => Err(Violation::Truncated.into()),
            step => Ok(step),
        }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        if matches!(event, Lifecycle::Opened | Lifecycle::Resumed) && self.waits_for_client() {
            self.start_time(out.now());
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.state == ServerState::Finished,
            is_blocked: !self.waits_for_client(),
            ..CodecStatus::default()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until.filter(|_| self.waits_for_client())
    }

    fn handle_timeout(&mut self, _: &Input, _: &mut Output<'_>) -> Result<(), Error> {
        Err(Error::Limit(Exceeded::Time))
    }
}

fn write_reply(version: Version, result: Result<std::net::SocketAddr, Refusal>, out: &mut Output<'_>) {
    match version {
        Version::Four => out.write(&v4::write_reply(result)),
        Version::Five => out.write(&v5::write_reply(result)),
    }
}

/// The refusal in the reply to a request that breaks the protocol.
fn refusal_of(violation: Violation) -> Refusal {
    match violation {
        Violation::Command(_) => Refusal::CommandNotSupported,
        Violation::AddressType(_) => Refusal::AddressNotSupported,
        _ => Refusal::General,
    }
}

/// Any status but zero refuses credentials.
const DENIED: u8 = 1;

const _: () = assert!(size_of::<Server>() <= 48);
