//! `Client`: the codec of a connection to a proxy, until the proxy has connected it to the target.
//!
//! ```text
//!            Opened: the greeting, or the request of version 4
//!   Method ──▶ (Verdict ──▶) Reply ──▶ Done
//! ```
//!
//! Each message is sent when the proxy has answered the one before. No byte behind the reply is consumed: it belongs to
//! the codec that the application switches to.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};

use crate::error::{Error, Exceeded, Misuse, Violation};
use crate::message::{Credentials, Version};
use crate::refusal::Refusal;
use crate::target::{Host, NAME_BYTES_MAX, Target};
use crate::{v4, v5};

/// The codec of a client: it asks the proxy when the connection opens, and yields one message, either where the proxy
/// has connected from (many proxies report zeros) or a [`Refusal`]. After that the application switches to the codec of
/// the target, which gets the bytes that follow.
///
/// The handshake has a [time limit](Client::handshake_timeout), by default 30 seconds, which includes the time in which
/// the proxy connects.
///
/// ```no_run
/// use tidegate::framing::Lines;
/// use tidegate::{Client, socks};
///
/// async fn greet(proxy: &Client) -> Result<(), Box<dyn std::error::Error>> {
///     let codec = socks::Client::v5("sea.example:7000".parse()?).credentials("ebb", "flow")?;
///     let mut channel = proxy.connect(codec).await?;
///     channel.recv().await?.ok_or("the proxy has ended the connection")??;
///     // No byte of the connection passes through the SOCKS codec from here on.
///     let mut lines = channel.switch(|_| Lines::new())?;
///     lines.send("hello".into())?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Client {
    plan: Box<Plan>,
    state: ClientState,
}

#[derive(Debug)]
struct Plan {
    version: Version,
    target: Target,
    credentials: Option<Credentials>,
    user_id: Box<[u8]>,
    timeout: Duration,
    until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    /// The proxy selects a method.
    Method,
    /// The proxy accepts the credentials or not.
    Verdict,
    /// The proxy connects.
    Reply,
    /// The message was yielded.
    Done,
}

impl Client {
    /// A client of version 5. The proxy resolves the target if it is a name.
    #[must_use]
    pub fn v5(target: Target) -> Self {
        Self::new(Version::Five, target, Box::default())
    }

    /// A client of version 4, or of 4a if the target is a name, which the proxy resolves then. `user_id` may be empty;
    /// it proves nothing.
    ///
    /// # Errors
    /// [`Misuse::Ipv6InVersion4`], and [`Misuse::UserId`] if it is longer than 255 bytes or has a zero byte.
    pub fn v4(target: Target, user_id: &str) -> Result<Self, Misuse> {
        if matches!(target.host(), Host::Ip(ip) if ip.is_ipv6()) {
            return Err(Misuse::Ipv6InVersion4);
        }
        if user_id.len() > USER_ID_BYTES_MAX || user_id.contains('\0') {
            return Err(Misuse::UserId);
        }
        Ok(Self::new(Version::Four, target, user_id.as_bytes().into()))
    }

    fn new(version: Version, target: Target, user_id: Box<[u8]>) -> Self {
        let plan = Plan { version, target, credentials: None, user_id, timeout: HANDSHAKE_TIMEOUT, until: None };
        let state = if version == Version::Five { ClientState::Method } else { ClientState::Reply };
        Self { plan: Box::new(plan), state }
    }

    /// Offers to authenticate with a user name and a password, and to connect without. They cross the network in the
    /// clear. Version 4 has no password.
    ///
    /// # Errors
    /// [`Misuse::Credentials`] if one of them is empty or longer than 255 bytes, or the version is 4.
    pub fn credentials(mut self, user: &str, password: &str) -> Result<Self, Misuse> {
        let fits = |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len());
        if self.plan.version == Version::Four || !fits(user) || !fits(password) {
            return Err(Misuse::Credentials);
        }
        self.plan.credentials =
            Some(Credentials { user: user.as_bytes().into(), password: password.as_bytes().into() });
        Ok(self)
    }

    /// How long the handshake may take, from the opened connection to the reply; 30 seconds unless set.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.plan.timeout = timeout;
        self
    }

    /// Whether the proxy has connected to the target or refused to.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == ClientState::Done
    }

    fn done(&mut self, result: Result<Target, Refusal>) -> Step<Result<Target, Refusal>> {
        self.state = ClientState::Done;
        Step::Message(result)
    }

    /// Decodes one message of the proxy; `Ok(None)` means that it is not complete.
    fn advance(
        &mut self,
        input: &mut Input,
        out: &mut Output<'_>,
    ) -> Result<Option<Result<Target, Refusal>>, Violation> {
        loop {
            match self.state {
                ClientState::Method => {
                    let Some((method, length)) = v5::method(input.bytes())? else { return Ok(None) };
                    input.consume(length);
                    self.state = match (method, &self.plan.credentials) {
                        (v5::METHOD_NONE, _) => {
                            out.write(&v5::write_request(&self.plan.target));
                            ClientState::Reply
                        }
                        (v5::METHOD_PASSWORD, Some(credentials)) => {
                            out.write(&v5::write_credentials(credentials));
                            ClientState::Verdict
                        }
                        (v5::NO_METHOD, _) => return Ok(Some(Err(Refusal::NoMethod))),
                        (method, _) => return Err(Violation::Method(method)),
                    };
                }
                ClientState::Verdict => {
                    let Some((is_right, length)) = v5::verdict(input.bytes())? else { return Ok(None) };
                    input.consume(length);
                    if !is_right {
                        return Ok(Some(Err(Refusal::Credentials)));
                    }
                    out.write(&v5::write_request(&self.plan.target));
                    self.state = ClientState::Reply;
                }
                ClientState::Reply | ClientState::Done => {
                    let parsed = match self.plan.version {
                        Version::Four => v4::reply(input.bytes())?,
                        Version::Five => v5::reply(input.bytes())?,
                    };
                    let Some((result, length)) = parsed else { return Ok(None) };
                    input.consume(length);
                    return Ok(Some(result));
                }
            }
        }
    }
}

impl Codec for Client {
    type In = Result<Target, Refusal>;
    type Out = Infallible;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "SOCKS"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Error> {
        if self.state == ClientState::Done {
            // The application did not switch: no second message, and the bytes stay.
            return Ok(Step::End);
        }
        Ok(self.advance(input, reply)?.map_or(Step::NeedMore, |result| self.done(result)))
    }

    fn encode(&mut self, message: Infallible, _: &mut Output<'_>) -> Result<(), Error> {
        match message {}
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Error> {
        match self.decode(input, reply)? {
            Step::NeedMore => Err(Violation::Truncated.into()),
            step => Ok(step),
        }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Opened => {
                let plan = &mut *self.plan;
                plan.until = out.now().checked_add(plan.timeout);
                match (plan.version, &plan.credentials) {
                    (Version::Four, _) => out.write(&v4::write_request(&plan.target, &plan.user_id)),
                    (Version::Five, None) => out.write(&[v5::VERSION, 1, v5::METHOD_NONE]),
                    (Version::Five, Some(_)) => {
                        out.write(&[v5::VERSION, 2, v5::METHOD_NONE, v5::METHOD_PASSWORD]);
                    }
                }
            }
            Lifecycle::Resumed => self.plan.until = out.now().checked_add(self.plan.timeout),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        // The bytes of the target wait in the kernel until the application switches.
        CodecStatus { is_blocked: self.state == ClientState::Done, ..CodecStatus::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.plan.until.filter(|_| self.state != ClientState::Done)
    }

    fn handle_timeout(&mut self, _: &Input, _: &mut Output<'_>) -> Result<(), Error> {
        Err(Error::Limit(Exceeded::Time))
    }
}

/// How long a handshake may take by default: a proxy that connects waits itself.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// No implementation accepts longer ones.
const USER_ID_BYTES_MAX: usize = 255;
