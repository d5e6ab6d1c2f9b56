//! An origin that answers by a script, behind a cache, on a loop whose time the test sets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tidegate::http::cache::{Cache, CacheBuilder};
use tidegate::http::{Config, Limits, Request, Response, Router, StatusCode};
use tidegate::task;
use tidegate_testkit::Embedded;

/// The response of a script.
#[derive(Clone)]
pub(crate) struct Scripted {
    status: u16,
    lines: String,
    body: String,
}

/// A function that answers by a script, and notes the requests.
#[derive(Default)]
pub(crate) struct Origin {
    script: RefCell<VecDeque<Scripted>>,
    pub(crate) requests: RefCell<Vec<String>>,
    /// How long a response takes.
    pub(crate) delay: Cell<Duration>,
}

impl Origin {
    /// Forgets the responses that are left.
    pub(crate) fn clear(&self) {
        self.script.borrow_mut().clear();
    }

    async fn answer(self: Rc<Self>, request: Request) -> Response {
        self.requests.borrow_mut().push(String::from_utf8_lossy(request.head_bytes()).into_owned());
        if !self.delay.get().is_zero() {
            task::sleep(self.delay.get()).await;
        }
        let Some(Scripted { status, lines, body }) = self.script.borrow_mut().pop_front() else {
            return Response::status(StatusCode::IM_A_TEAPOT).body("nothing is scripted");
        };
        let mut response = Response::status(StatusCode::from_u16(status).expect("a status")).body(body);
        for line in lines.lines() {
            let (name, value) = line.split_once(':').expect("a field");
            response.add_header(name, value.trim()).expect("a field");
        }
        response
    }
}

/// A client, a cache, and an origin.
pub(crate) struct Sea {
    pub(crate) cache: Cache,
    pub(crate) origin: Rc<Origin>,
    pub(crate) pipe: Embedded<()>,
    advanced: Duration,
}

/// A response, as the client sees it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(wire: &[u8]) -> Self {
        let text = String::from_utf8_lossy(wire).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
    }
}

pub(crate) fn router(cache: &Cache, origin: &Rc<Origin>) -> Router {
    let origin = origin.clone();
    Router::new().fallback(cache.wrap(async move |request: Request| origin.clone().answer(request).await))
}

pub(crate) fn pipe(cache: &Cache, origin: &Rc<Origin>) -> Embedded<()> {
    pipe_with(Limits::default(), cache, origin)
}

pub(crate) fn pipe_with(mut limits: Limits, cache: &Cache, origin: &Rc<Origin>) -> Embedded<()> {
    // Time passes on a connection that stays open.
    limits.idle_timeout = Duration::from_secs(864_000);
    let (codec, handler) = Config::new().limits(limits).connections(router(cache, origin))();
    Embedded::new(codec, handler)
}

impl Sea {
    pub(crate) fn new() -> Self {
        Self::with(Cache::builder())
    }

    pub(crate) fn with(builder: CacheBuilder) -> Self {
        let (cache, origin) = (builder.build().expect("a cache"), Rc::<Origin>::default());
        let pipe = pipe(&cache, &origin);
        Self { cache, origin, pipe, advanced: Duration::ZERO }
    }

    /// Another client of the same cache and origin.
    pub(crate) fn over(other: &Self) -> Self {
        let (cache, origin) = (other.cache.clone(), other.origin.clone());
        let pipe = pipe(&cache, &origin);
        Self { cache, origin, pipe, advanced: other.advanced }
    }

    /// The next response of the origin. `{-60}` in its fields is the date of a minute ago.
    pub(crate) fn script(&self, status: u16, lines: &str, body: &str) {
        let scripted = Scripted { status, lines: self.dated(lines), body: body.to_owned() };
        self.origin.script.borrow_mut().push_back(scripted);
    }

    /// A text with the dates that it names by seconds from now.
    pub(crate) fn dated(&self, text: &str) -> String {
        let (mut dated, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (seconds, after) = after.split_once('}').expect("a number");
            let seconds: i64 = seconds.parse().expect("a number");
            let now = SystemTime::now() + self.advanced;
            let offset = Duration::from_secs(seconds.unsigned_abs());
            let time = if seconds < 0 { now - offset } else { now + offset };
            dated += before;
            dated += &httpdate::fmt_http_date(time);
            rest = after;
        }
        dated + rest
    }

    pub(crate) fn request(&mut self, method: &str, target: &str, lines: &str) -> Answer {
        let lines: String = self.dated(lines).lines().map(|line| format!("{line}\r\n")).collect();
        self.pipe.receive(format!("{method} {target} HTTP/1.1\r\nHost: sea\r\n{lines}\r\n").as_bytes());
        Answer::parse(&self.pipe.take_written())
    }

    pub(crate) fn get(&mut self, lines: &str) -> Answer {
        self.request("GET", "/", lines)
    }

    pub(crate) fn advance(&mut self, seconds: u64) {
        self.advanced += Duration::from_secs(seconds);
        self.pipe.advance(Duration::from_secs(seconds));
    }

    /// How many requests the origin has got.
    pub(crate) fn requests(&self) -> usize {
        self.origin.requests.borrow().len()
    }

    /// The last one.
    pub(crate) fn last_request(&self) -> String {
        self.origin.requests.borrow().last().cloned().unwrap_or_default()
    }
}

/// Checks for each row whether a second request, some seconds later, is answered by the first response: request fields, status
/// and fields of the response, seconds, fields of the second request, and whether it is.
#[track_caller]
pub(crate) fn check(make: impl Fn() -> CacheBuilder, rows: &[(&str, u16, &str, u64, &str, bool)]) {
    for &(first, status, response, seconds, second, is_cached) in rows {
        let mut sea = Sea::with(make());
        sea.script(status, response, "first");
        sea.script(200, "Cache-Control: max-age=3600", "second");
        let answer = sea.get(first);
        assert_eq!((answer.status, &*answer.body), (status, "first"), "{response}");
        sea.advance(seconds);
        let answer = sea.get(second);
        let found = (sea.requests() == 1, &*answer.body == "first");
        assert_eq!(
            found,
            (is_cached, is_cached),
            "{first:?} {status} {response:?} after {seconds} s {second:?}: {answer:?}"
        );
    }
}
