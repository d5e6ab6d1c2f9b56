//! The paths of the administrative server.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use tidegate_engine::{blocking, task};
use tidegate_http::{ContentType, Event, IntoResponse, Json, Query, Request, Response, Router, Sse, State, StatusCode};
use tidegate_metrics::{Format, Kind, MetricsText, write_process, write_server, write_upstreams};

use crate::connections::{self, Listing};
use crate::figures::{Figures, ReadCaches};
use crate::guard::Guard;
use crate::page;
use crate::purge::with_purge;
use crate::reload::{ReloadError, ReloadFunction};
use crate::snapshot::Snapshot;

/// Shared state of the functions.
pub(crate) struct AdminState {
    figures: Figures,
    began: Instant,
    /// Lists of connections that are made at the moment.
    lists: Rc<Cell<usize>>,
    /// Pages that receive events.
    pages: Rc<Cell<usize>>,
    /// The last metrics in each format, and the last snapshot, each with its time: many readers at once get the same.
    texts: RefCell<[Option<(Instant, Bytes)>; 3]>,
}

pub(crate) fn router(
    figures: &Figures,
    caches: Option<&ReadCaches>,
    reload: Option<&ReloadFunction>,
    guard: Guard,
) -> Router<AdminState> {
    let shared = AdminState {
        figures: figures.clone(),
        began: Instant::now(),
        lists: Rc::default(),
        pages: Rc::default(),
        texts: RefCell::default(),
    };
    let router = match reload.cloned() {
        Some(reload) => Router::with_state(shared).post("/reload", async move || reloaded(reload.clone()).await),
        None => Router::with_state(shared),
    };
    let router = router
        .get("/metrics", |State(shared): State<AdminState>, request: Request| {
            metrics(&shared, request.header("accept").unwrap_or_default())
        })
        .get("/health", health)
        .get("/ready", ready)
        .get("/dashboard", page::page)
        .get("/dashboard/snapshot", |State(shared): State<AdminState>| json(shared.snapshot()))
        .get("/dashboard/events", events)
        .get("/dashboard/connections", async |State(shared): State<AdminState>, Query(listing): Query<Listing>| {
            match connections::list(&shared.figures.server(), &shared.lists, listing).await {
                Some(listed) => Json(listed).into_response(),
                None => busy(),
            }
        })
        .post("/dashboard/close", close);
    with_purge(router, caches).with(guard)
}

impl AdminState {
    fn metrics(&self, format: Format) -> Bytes {
        self.recent(format as usize, || {
            let Figures { requests, upstreams, more, .. } = &self.figures;
            let server = self.figures.server();
            let mut text = MetricsText::new(format);
            text.family("tidegate_build_info", Kind::Gauge, "The version of the server.");
            text.sample(&[("version", env!("CARGO_PKG_VERSION")), ("backend", server.backend())], 1);
            text.family("tidegate_draining", Kind::Gauge, "Whether the server drains.");
            text.sample(&[], u8::from(server.is_draining()));
            write_server(&server, &mut text);
            requests.write(&mut text);
            if upstreams.is_some() {
                write_upstreams(&self.figures.groups(), &mut text);
            }
            write_process(&mut text);
            for write in more {
                write(&mut text);
            }
            text.finish()
        })
    }

    fn snapshot(&self) -> Bytes {
        let at = task::now().saturating_duration_since(self.began);
        self.recent(SNAPSHOT, || Snapshot::of(&self.figures, at).to_json())
    }

    /// A text that was made a moment ago, or a new one.
    fn recent(&self, which: usize, make: impl FnOnce() -> String) -> Bytes {
        let now = task::now();
        let known = self.texts.borrow()[which].clone();
        if let Some((_, text)) = known.filter(|(at, _)| now.saturating_duration_since(*at) < RECENT) {
            return text;
        }
        let text = Bytes::from(make());
        self.texts.borrow_mut()[which] = Some((now, text.clone()));
        text
    }
}

/// Reads the configuration again, on a thread that may block.
async fn reloaded(reload: ReloadFunction) -> (StatusCode, String) {
    match blocking(move || reload()).await {
        Ok(Ok(line)) => (StatusCode::OK, line + "\n"),
        Ok(Err(ReloadError::Mistakes(lines))) => (StatusCode::UNPROCESSABLE_ENTITY, lines + "\n"),
        Ok(Err(ReloadError::Busy)) => (StatusCode::CONFLICT, "another reload is under way\n".into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

fn metrics(shared: &AdminState, accept: &[u8]) -> Response {
    let format = Format::negotiate(&String::from_utf8_lossy(accept));
    let content_type = match format {
        Format::Prometheus => ContentType::from_static(Format::Prometheus.content_type()),
        Format::OpenMetrics => ContentType::from_static(Format::OpenMetrics.content_type()),
    };
    let response = StatusCode::OK.into_response().content_type(content_type).body(shared.metrics(format));
    response.header("Vary", "Accept").expect("the field is valid")
}

fn health(State(shared): State<AdminState>) -> (StatusCode, &'static str) {
    let server = shared.figures.server();
    match () {
        () if server.counts().iter().any(|counts| counts.is_stalled) => {
            (StatusCode::SERVICE_UNAVAILABLE, "an event loop hangs\n")
        }
        () if server.all_loops_run() || server.is_draining() => (StatusCode::OK, "healthy\n"),
        () => (StatusCode::SERVICE_UNAVAILABLE, "an event loop has ended\n"),
    }
}

fn ready(State(shared): State<AdminState>) -> (StatusCode, String) {
    let server = shared.figures.server();
    let unmet = || shared.figures.ready.iter().find_map(|fault| fault());
    let otherwise: Cow<'_, str> = match () {
        () if server.is_draining() => "draining".into(),
        () if server.is_superseded() => "another server has taken over".into(),
        () if !server.all_loops_run() => "an event loop has ended".into(),
        () => match unmet() {
            Some(fault) => fault.into(),
            None => return (StatusCode::OK, "ready\n".into()),
        },
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{otherwise}\n"))
}

fn events(State(shared): State<AdminState>) -> Response {
    if shared.pages.get() >= PAGES_MAX {
        return busy();
    }
    let place = PagePlace::new(&shared.pages);
    let events = Sse::new(async move |mut events| {
        let _place = place;
        loop {
            let snapshot = shared.snapshot();
            events.send(Event::new().data(String::from_utf8_lossy(&snapshot))).await?;
            task::sleep(EVENT_INTERVAL).await;
        }
    });
    events.into_response()
}

/// A connection, as the list names it.
#[derive(Debug, Deserialize)]
struct NamedConnection {
    #[serde(rename = "loop")]
    event_loop: usize,
    id: u64,
}

async fn close(State(shared): State<AdminState>, Query(named): Query<NamedConnection>) -> StatusCode {
    if shared.figures.server().close_connection(named.event_loop, named.id).await {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::NOT_FOUND
    }
}

fn json(text: Bytes) -> Response {
    StatusCode::OK.into_response().content_type(ContentType::JSON).body(text)
}

fn busy() -> Response {
    let response = StatusCode::SERVICE_UNAVAILABLE.into_response().content_type(ContentType::TEXT);
    response.body("Too many pages are open.\n").header("Retry-After", "2").expect("the field is valid")
}

/// Counts a page while it receives events.
struct PagePlace(Rc<Cell<usize>>);

impl PagePlace {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for PagePlace {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Pages that receive events at once.
const PAGES_MAX: usize = 32;

/// How often a page receives figures.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// How old the figures may be.
const RECENT: Duration = Duration::from_millis(200);

/// Where the last snapshot is, behind the formats of metrics.
const SNAPSHOT: usize = 2;

#[cfg(test)]
mod tests {
    use tidegate_http::{Config, Server};
    use tidegate_metrics::HttpMetrics;
    use tidegate_testkit::Embedded;

    use super::*;

    const ASKING: &[u8] = b"GET /dashboard/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const HOUR: u64 = 3600;

    #[test]
    fn a_page_that_stays_open_takes_no_more_memory_than_in_its_first_minutes() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(|| Router::new().get("/", || "")).unwrap();
        let requests = HttpMetrics::new();
        let served = server.clone();
        let figures = Figures {
            server: std::sync::Arc::new(move || served.clone()),
            requests,
            upstreams: None,
            rooms: None,
            backplane: None,
            more: Vec::new(),
            ready: Vec::new(),
        };
        let router = router(&figures, None, None, Guard::new(Vec::new()));
        let (codec, handler) = Config::new().connections(router)();
        let mut page = Embedded::new(codec, handler);
        page.receive(ASKING);
        let (mut events, mut used) = (0, 0);
        for second in 1..=HOUR {
            page.advance(EVENT_INTERVAL);
            events += usize::from(page.take_written().ends_with(b"}\n\n\r\n"));
            if second == 300 {
                used = page.pool().ledger().used();
            }
        }
        assert!((3_570..=3_602).contains(&events), "{events} events");
        assert_eq!(page.pool().ledger().used(), used);
        assert!(!page.is_write_closed());
        // A page that reads no more ends.
        page.limit_peer_reads(0);
        page.advance(Duration::from_secs(HOUR));
        assert!(page.is_closed());
        server.drain(Duration::ZERO);
    }
}
