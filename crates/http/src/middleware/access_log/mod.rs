//! `AccessLog`: one line for each request.
//!
//! A line is written when the exchange is over. Most responses are in memory when their head is ready, and are logged at
//! once. One that is produced while it is sent carries its line along (`late.rs`), and so does a request whose client
//! leaves before the response.

mod conventions;
mod facts;
mod json;
mod late;
mod nearest;
mod template;
mod text;

use std::cell::Cell;

use http::Method;
use tidegate_http_message::body::BodyKind;

use self::facts::{CLIENT_LEFT_STATUS, LateFacts, LoggedExchange};
use self::late::{Draft, PendingLine, follow, write};
pub use self::template::{LogTemplate, LogTemplateError};
use super::{Middleware, RefusedRequest, RequestInfo};
use crate::exchange_note::{EndCause, ExchangeNote};
use crate::line_log::LineLog;
use crate::request::Request;
use crate::response::Response;

/// Logs one line for each request, those that the codec refuses included: to a [`LineLog`], which writes it as it is, or
/// else as an event of `tracing` with the target `tidegate::access`, to which the subscriber may add a prefix.
///
/// The line is written when the response is complete, or the exchange ends otherwise: then `end` says why. A request
/// whose client leaves before the response has the status 499, which no client gets. The line of a connection that leaves
/// HTTP, such as a WebSocket, is written when it does.
///
/// Add it first, so that it sees the responses of all other middleware; behind [`TrustedProxies`](crate::TrustedProxies),
/// if there are some, so that it knows the clients of requests that the codec refuses.
///
/// ```
/// use tidegate::http::{AccessLog, LogFormat, Router};
///
/// let router = Router::new().get("/", || "hello").with(AccessLog::new(LogFormat::Json));
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct AccessLog {
    format: LineFormat,
    lines: Option<LineLog>,
    /// Functions trust other proxies than the router.
    has_own_proxies: bool,
}

/// The format of an [`AccessLog`]; [`LogTemplate`] is one of your own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LogFormat {
    /// The common log format of web servers: `HOST - - [TIME] "REQUEST" STATUS LENGTH`.
    Common,
    /// The same, and behind it the fields `Referer` and `User-Agent`.
    #[default]
    Combined,
    /// A JSON object in one line, with the microseconds until the response, and ids of the request if
    /// [`RequestIds`](crate::RequestIds) and [`TraceContexts`](crate::TraceContexts) have found some. A member that does not
    /// apply is absent: `upstream` and those beside it are of a request that a gateway has passed on, `end` is
    /// absent if the response is complete.
    Json,
    /// A JSON object in one line, whose members are attributes of OpenTelemetry's conventions for HTTP.
    OpenTelemetry,
}

/// How lines are made.
#[derive(Debug, Clone)]
enum LineFormat {
    Template(LogTemplate),
    Json(JsonMembers),
}

/// The names of the members of an object.
#[derive(Debug, Clone, Copy)]
enum JsonMembers {
    Own,
    Conventions,
}

impl JsonMembers {
    /// Adds the line without its end.
    fn begin(self, line: &mut Vec<u8>, exchange: &LoggedExchange<'_>) {
        match self {
            Self::Own => json::begin(line, exchange),
            Self::Conventions => conventions::begin(line, exchange),
        }
    }

    fn end(self, line: &mut Vec<u8>, late: &LateFacts) {
        match self {
            Self::Own => json::end(line, late),
            Self::Conventions => conventions::end(line, late),
        }
    }

    fn refused(self, request: &RefusedRequest) -> Vec<u8> {
        match self {
            Self::Own => json::refused(request),
            Self::Conventions => conventions::refused(request),
        }
    }
}

impl AccessLog {
    /// A log in a format.
    #[must_use]
    pub fn new(format: LogFormat) -> Self {
        let format = match format {
            LogFormat::Common => LineFormat::Template(LogTemplate::common()),
            LogFormat::Combined => LineFormat::Template(LogTemplate::combined()),
            LogFormat::Json => LineFormat::Json(JsonMembers::Own),
            LogFormat::OpenTelemetry => LineFormat::Json(JsonMembers::Conventions),
        };
        Self { format, lines: None, has_own_proxies: false }
    }

    /// A log in a format of your own.
    ///
    /// ```
    /// use tidegate::http::{AccessLog, LogTemplate, Router};
    ///
    /// let template: LogTemplate = "{client.ip} \"{request.line}\" {response.status} {total.time}".parse()?;
    /// let router = Router::new().get("/", || "hello").with(AccessLog::template(&template));
    /// # drop(router);
    /// # Ok::<(), tidegate::http::LogTemplateError>(())
    /// ```
    #[must_use]
    pub fn template(template: &LogTemplate) -> Self {
        Self { format: LineFormat::Template(template.clone()), lines: None, has_own_proxies: false }
    }

    /// Logs to these lines, and nothing to `tracing`: each line is of its format as a whole.
    #[must_use]
    pub fn to(mut self, lines: &LineLog) -> Self {
        self.lines = Some(lines.clone());
        self
    }

    /// Functions have [`TrustedProxies`](crate::TrustedProxies) of their own, which replace those of the router: a line has
    /// the client that they name. A format with fields of the client costs an allocation for each request then.
    #[must_use]
    pub fn proxies_of_functions(mut self) -> Self {
        self.has_own_proxies = true;
        self
    }

    fn is_on(&self) -> bool {
        self.lines.is_some() || tracing::enabled!(target: late::TARGET, tracing::Level::INFO)
    }

    /// Logs an exchange that is over.
    fn log(&self, exchange: &LoggedExchange<'_>, late: &LateFacts) {
        match &self.format {
            LineFormat::Json(members) => {
                let mut line = LINE.take();
                members.begin(&mut line, exchange);
                members.end(&mut line, late);
                write(self.lines.as_ref(), &line);
                if line.capacity() <= LINE_BYTES_MAX {
                    line.clear();
                    LINE.set(line);
                }
            }
            LineFormat::Template(template) => write(self.lines.as_ref(), template.line(exchange, late).as_bytes()),
        }
    }

    fn notes_facts(&self) -> bool {
        match &self.format {
            LineFormat::Json(_) => true,
            LineFormat::Template(template) => {
                template.reads_facts() || (self.has_own_proxies && template.reads_client())
            }
        }
    }
}

impl Middleware for AccessLog {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if self.notes_facts() && self.is_on() {
            request.set_note(ExchangeNote::default());
        }
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if !self.is_on() {
            return;
        }
        let request = info.request();
        let note = request.note();
        let status = response.status_code().as_u16();
        let is_head = request.method() == Method::HEAD;
        let has_body = !is_head && !matches!(status, 100..=199 | 204 | 304);
        let facts = note.map(ExchangeNote::facts);
        let exchange = LoggedExchange { request, response: Some(response), status, elapsed: info.elapsed(), facts };
        if has_body && matches!(response.body.kind(), BodyKind::Produced(_)) {
            let draft = match &self.format {
                LineFormat::Json(members) => {
                    let mut line = Vec::new();
                    members.begin(&mut line, &exchange);
                    Draft::Json(*members, line)
                }
                LineFormat::Template(template) => {
                    let (text, missing) = template.draft(&exchange);
                    Draft::Template(text, missing)
                }
            };
            let pending =
                PendingLine::new(self.lines.clone(), draft, note.cloned(), (info.began(), request.content_length()));
            follow(response, pending);
            return;
        }
        let sent = if is_head { Some(0) } else { response.content_length() };
        let late = LateFacts::of(exchange.facts.as_ref(), request, sent, exchange.elapsed);
        self.log(&exchange, &late);
    }

    fn abandoned(&self, info: &RequestInfo) {
        if !self.is_on() {
            return;
        }
        let (request, elapsed) = (info.request(), info.elapsed());
        let facts = request.note().map(ExchangeNote::facts);
        let exchange = LoggedExchange { request, response: None, status: CLIENT_LEFT_STATUS, elapsed, facts };
        let late = LateFacts::of(exchange.facts.as_ref(), request, Some(0), elapsed);
        self.log(&exchange, &LateFacts { end: EndCause::ClientLeft, ..late });
    }

    fn refused(&self, request: &RefusedRequest) {
        if self.is_on() {
            let line = match &self.format {
                LineFormat::Json(members) => members.refused(request),
                LineFormat::Template(template) => template.refused(request).into_bytes(),
            };
            write(self.lines.as_ref(), &line);
        }
    }

    fn measures_time(&self) -> bool {
        match &self.format {
            LineFormat::Json(_) => true,
            LineFormat::Template(template) => template.reads_time(),
        }
    }

    fn reads_tls(&self) -> bool {
        match &self.format {
            LineFormat::Json(_) => true,
            LineFormat::Template(template) => template.reads_tls(),
        }
    }
}

thread_local! {
    /// Memory for a line that is written at once.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How much memory for lines stays.
const LINE_BYTES_MAX: usize = 16 * 1024;
