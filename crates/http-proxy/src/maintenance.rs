//! `Maintenance`: the upkeep of a set of upstreams, which are checked, and whose names are resolved again.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tidegate_codec::later;
use tidegate_engine::{Backend, EventLoop, task};
use tidegate_http_upstream::Connected;
use tidegate_http1::Request;
use tidegate_http1::client::Incoming;

use super::check::HealthCheck;
use super::connection::connect;
use super::error::SendFailure;
use super::names::Names;
use super::upstreams::{Shared, Upstream, Upstreams};

/// A thread that checks upstreams and resolves their names. Dropping it has the thread end within a second.
#[derive(Debug)]
#[must_use = "the thread ends when this is dropped"]
pub struct Maintenance {
    has_ended: Arc<AtomicBool>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Results of checks in a row.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    successes: u32,
    failures: u32,
}

impl Upstreams {
    /// Checks the upstreams, if there is a [`HealthCheck`], and resolves their names again, until no other clone of the set
    /// is left. It is for a task of one loop; [`maintain_on_thread`](Self::maintain_on_thread) has a loop of its own.
    pub fn maintain(&self) -> impl Future<Output = ()> + 'static {
        maintain(Arc::downgrade(&self.0), Arc::default())
    }

    /// The same on a thread of its own. A set that has neither checks nor names nor a [handle](Self::handle) needs no upkeep,
    /// and gets no thread.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn maintain_on_thread(&self) -> io::Result<Maintenance> {
        let maintenance = Maintenance { has_ended: Arc::default() };
        if self.0.check.is_some() || self.has_names() || self.0.has_handle.load(Ordering::Relaxed) {
            let (shared, has_ended) = (Arc::downgrade(&self.0), maintenance.has_ended.clone());
            std::thread::Builder::new().name("tidegate-upkeep".into()).spawn(move || {
                let mut event_loop = match EventLoop::on(Backend::Epoll) {
                    Ok(event_loop) => event_loop,
                    Err(error) => {
                        tracing::error!(subsystem = "proxy", %error, "upstreams are not checked");
                        return;
                    }
                };
                let _ = event_loop.block_on(maintain(shared, has_ended));
            })?;
        }
        Ok(maintenance)
    }
}

/// Checks and names do not wait for each other.
async fn maintain(shared: Weak<Shared>, has_ended: Arc<AtomicBool>) {
    let is_over = || has_ended.load(Ordering::Relaxed);
    let mut checks = pin!(check_again(&shared, is_over));
    let mut names = pin!(resolve_again(&shared, is_over));
    let (mut has_checked, mut has_resolved) = (false, false);
    poll_fn(|cx| {
        has_checked = has_checked || checks.as_mut().poll(cx).is_ready();
        has_resolved = has_resolved || names.as_mut().poll(cx).is_ready();
        if has_checked && has_resolved { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Checks all upstreams at intervals.
async fn check_again(shared: &Weak<Shared>, is_over: impl Fn() -> bool) {
    let mut rows: HashMap<u64, Row> = HashMap::new();
    let mut check_at = task::now();
    while let Some(shared) = shared.upgrade().filter(|_| !is_over()) {
        let Some(check) = &shared.check else { return };
        let now = task::now();
        if check_at <= now {
            check_at = later(now, check.interval);
            check_all(&shared, check, &mut rows).await;
        }
        drop(shared);
        task::sleep(TICK).await;
    }
}

/// Resolves all names at intervals.
async fn resolve_again(shared: &Weak<Shared>, is_over: impl Fn() -> bool) {
    let mut names = None;
    while let Some(upstreams) = shared.upgrade().filter(|_| !is_over()).map(Upstreams) {
        if !upstreams.has_names() && !upstreams.0.has_handle.load(Ordering::Relaxed) {
            return;
        }
        let interval = upstreams.0.resolve_interval;
        let names = names.get_or_insert_with(|| {
            // The system's resolver has been asked when the set was made.
            let first = if upstreams.0.resolver.is_of_system() { interval } else { Duration::ZERO };
            Names::new(&upstreams.0, later(task::now(), first))
        });
        drop(upstreams);
        let mut tick = pin!(task::sleep(TICK));
        poll_fn(|cx| {
            if let Some(shared) = shared.upgrade() {
                names.poll(&shared, Some(interval), cx);
            }
            tick.as_mut().poll(cx)
        })
        .await;
    }
}

/// Checks all upstreams at the same time.
async fn check_all(shared: &Arc<Shared>, check: &HealthCheck, rows: &mut HashMap<u64, Row>) {
    let members = shared.members();
    rows.retain(|id, _| members.iter().any(|member| member.id == *id));
    let checks: Vec<_> = members
        .iter()
        .map(|member| {
            let (shared, member, check) = (shared.clone(), member.clone(), check.clone());
            task::spawn(async move {
                let result = task::timeout(check.timeout, check_once(&shared, &member, &check)).await;
                result.unwrap_or_else(|_| Err("no response within the timeout of the check".into()))
            })
        })
        .collect();
    for (member, checking) in members.iter().zip(checks) {
        let result = checking.await.unwrap_or_else(|error| Err(error.to_string()));
        let row = rows.entry(member.id).or_default();
        *row = match result.is_ok() {
            true => Row { successes: row.successes.saturating_add(1), failures: 0 },
            false => Row { successes: 0, failures: row.failures.saturating_add(1) },
        };
        let is_down = match *row {
            Row { failures, .. } if failures >= check.failures => true,
            Row { successes, .. } if successes >= check.successes => false,
            _ => continue,
        };
        if member.health.set_down(is_down, shared.millis(task::now())) {
            let (upstream, path) = (&*member.name, &*check.path);
            let (state, reason) = (if is_down { "down" } else { "up" }, result.err());
            tracing::warn!(subsystem = "proxy", %upstream, state, path, reason, "upstream checked");
            shared.waiting.on_servers();
        }
    }
}

/// # Errors
/// The check fails: the reason, for the log.
async fn check_once(shared: &Shared, member: &Upstream, check: &HealthCheck) -> Result<(), String> {
    let made = connect(shared, member, None, false).await.map_err(|error| error.to_string())?;
    let mut connection = match made {
        Connected::Http1(connection) => connection,
        Connected::Session(session) => session.open(1).map_err(|_| String::from("the connection takes no request"))?,
    };
    let host = check.host.as_deref().unwrap_or(&member.authority);
    let request =
        Request::get(&check.path).and_then(|request| request.host(host)).map_err(|error| error.to_string())?;
    connection.send(request.close().into()).map_err(|failure| match failure {
        SendFailure::Misuse(misuse) => tidegate_http1::Error::Caller(misuse).to_string(),
        SendFailure::Closed => String::from("the connection ended before the request"),
    })?;
    // Interim responses are bounded by the codec.
    loop {
        match poll_fn(|cx| connection.poll_recv(cx)).await.map_err(|error| error.to_string())? {
            Some(Incoming::Head(head)) if (200..400).contains(&head.status().code()) => return Ok(()),
            Some(Incoming::Head(head)) => return Err(format!("the response has the status {}", head.status().code())),
            Some(Incoming::Interim(_)) => {}
            _ => return Err("the connection ended before a response".into()),
        }
    }
}

/// How often the upkeep looks for due checks.
const TICK: Duration = Duration::from_millis(500);
