//! `Acme`: the certificate in use, and the loop that renews it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use tidegate_engine::{Backend, EventLoop, blocking, task};
use tidegate_tls::Certificates;

use crate::attempt::{Attempt, Issued};
use crate::chain::IssuedChain;
use crate::challenges::{Challenges, Http01};
use crate::error::IssueError;
use crate::http_client::AuthorityClient;
use crate::records::{Records, SavedFailures};
use crate::renewal::{RenewalPlan, random_fraction, retry_delay};
use crate::settings::Settings;
use crate::status::AcmeStatus;

/// One certificate for a set of names, which an authority issues and renews. A clone is another handle of it.
///
/// | time | |
/// |---|---|
/// | at once | if there is no certificate in the store, or its renewal is due |
/// | when a third of its lifetime is left | renewal, by chance up to a thirtieth of the lifetime earlier |
/// | in the window that the authority suggests (RFC 9773) | instead, if it suggests one |
/// | after a failure | when `Retry-After` says so, and not before [`retry_min`](crate::AcmeLimits::retry_min) |
///
/// An account accepts the authority's terms of service: read them before you create one.
///
/// ```no_run
/// use tidegate::acme::{Acme, FolderStore};
/// use tidegate::http::{Router, Server};
/// use tidegate::tls::{ClientConfig, Provider, ServerConfig};
///
/// let provider = Provider::aws_lc_rs();
/// let authority = ClientConfig::builder_with_platform_roots(&provider)?.build()?;
/// let store = FolderStore::open("/var/lib/example/acme")?;
/// let acme = Acme::builder(&provider, authority, "https://acme-staging-v02.api.letsencrypt.org/directory", store)
///     .names(["example.org", "www.example.org"])
///     .contact("mailto:admin@example.org")
///     .build()?;
/// let tls = ServerConfig::builder(&provider, acme.certificates()).alpn(["h2", "http/1.1"]).build()?;
/// let server = Server::bind("[::]:443")?.tls(tls).start(|| Router::new().get("/", || "welcome"))?;
/// // Once the server answers challenges.
/// let renewals = acme.start()?;
/// # drop((server, renewals));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Acme(Arc<AcmeCore>);

struct AcmeCore {
    settings: Settings,
    records: Records,
    challenges: Challenges,
    certificates: Certificates,
    is_running: AtomicBool,
    state: Mutex<State>,
}

/// The certificate in use, and the failures.
#[derive(Default)]
struct State {
    current: Option<Current>,
    failures: SavedFailures,
    issued: u64,
    failed: u64,
    last_error: Option<String>,
}

struct Current {
    /// The key and the chain as one PEM text.
    text: Vec<u8>,
    not_after: SystemTime,
    identifier: Option<CertificateIdentifier<'static>>,
    plan: RenewalPlan,
    /// The next question about the renewal.
    info_at: Option<SystemTime>,
}

impl Acme {
    /// Reads the store.
    pub(crate) fn open(settings: Settings) -> io::Result<Self> {
        let records = Records::new(&settings);
        let certificates = Certificates::issued_later(&settings.provider);
        let failures = records.read_failures()?.unwrap_or_default();
        let last_error = (failures.count > 0).then(|| failures.error.clone());
        let mut state = State { failures, last_error, ..State::default() };
        if let Some(text) = records.read_certificate()? {
            state.current = usable(&settings, &text).filter(|_| certificates.replace_pem(&text, &text).is_ok());
            if state.current.is_none() {
                tracing::warn!(
                    subsystem = "acme",
                    "the certificate in the store cannot be used: another one is ordered"
                );
            }
        }
        let challenges = Challenges::new(certificates.clone());
        let (is_running, state) = (AtomicBool::new(false), Mutex::new(state));
        Ok(Self(Arc::new(AcmeCore { settings, records, challenges, certificates, is_running, state })))
    }

    /// The certificates for a [`ServerConfig`](tidegate_tls::ServerConfig). They answer TLS-ALPN-01 if the configuration
    /// has ALPN. Handshakes fail until the first certificate is issued.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.0.certificates.clone()
    }

    /// Middleware that answers HTTP-01, for a router that is reached at port 80.
    #[must_use]
    pub fn http01(&self) -> Http01 {
        self.0.challenges.http01()
    }

    /// The names of the certificate, in lower case.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0.settings.names
    }

    /// The certificate in use, and the next attempt.
    #[must_use]
    pub fn status(&self) -> AcmeStatus {
        let state = self.0.lock();
        AcmeStatus {
            not_after: state.current.as_ref().map(|current| current.not_after),
            issued: state.issued,
            failures: state.failures.count,
            next_attempt: state.due(),
            failed: state.failed,
            last_error: state.last_error.as_deref().map(Into::into),
        }
    }

    /// Issues and renews on a thread with an event loop of its own, until the result is dropped.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop; [`io::ErrorKind::AlreadyExists`] if it runs already.
    pub fn start(&self) -> io::Result<RunningAcme> {
        if self.0.is_running.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the certificate is renewed already"));
        }
        let stop = Arc::new(Stop::default());
        let (acme, stopping) = (self.clone(), stop.clone());
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("acme".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            let ended = event_loop.block_on(async move { stopping.unless_stopped(acme.run()).await });
            if let Err(error) = ended {
                tracing::error!(subsystem = "acme", %error, "certificates are not renewed any more");
            }
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(RunningAcme { stop, thread: Some(thread) })
    }

    /// Issues and renews on this event loop: a future that ends only if the certificate is renewed elsewhere already.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn run(&self) {
        if self.0.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let _running = RunningFlag(&self.0.is_running);
        self.0.log_wait();
        loop {
            let now = SystemTime::now();
            let next = self.0.lock().next_event();
            match next {
                Some((at, _)) if at > now => {
                    let wait = at.duration_since(now).unwrap_or_default();
                    // The clock may be set meanwhile, and no loop sleeps for as long as a certificate lives.
                    task::sleep(wait.min(SLEEP_MAX)).await;
                }
                Some((_, NextEvent::RenewalInfo)) => self.0.ask_for_renewal_info().await,
                Some((_, NextEvent::Attempt)) | None => self.0.attempt().await,
            }
        }
    }
}

/// The next event.
enum NextEvent {
    Attempt,
    RenewalInfo,
}

impl State {
    /// The time of the next attempt; `None` if it is due now.
    fn due(&self) -> Option<SystemTime> {
        let renewal = self.current.as_ref().map(|current| current.plan.time());
        match self.failures.count {
            0 => renewal,
            _ => Some(self.failures.retry_at().max(renewal.unwrap_or(SystemTime::UNIX_EPOCH))),
        }
    }

    fn next_event(&self) -> Option<(SystemTime, NextEvent)> {
        let attempt = self.due()?;
        let info = self.current.as_ref().and_then(|current| current.info_at).filter(|info| *info < attempt);
        Some(info.map_or((attempt, NextEvent::Attempt), |info| (info, NextEvent::RenewalInfo)))
    }
}

impl AcmeCore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_wait(&self) {
        let state = self.lock();
        let wait = state.failures.retry_at().duration_since(SystemTime::now()).unwrap_or_default();
        if state.failures.count > 0 && !wait.is_zero() {
            let record = self.records.failures_name();
            let (seconds, error) = (wait.as_secs(), &state.failures.error);
            tracing::warn!(subsystem = "acme", seconds, record, %error, "an earlier attempt failed: the next one waits");
        }
    }

    fn parts(&self) -> Attempt<'_> {
        let Settings { tls, directory, limits, challenges, .. } = &self.settings;
        let state = self.lock();
        let kind = challenges[state.failures.count as usize % challenges.len()];
        Attempt {
            settings: &self.settings,
            records: &self.records,
            challenges: &self.challenges,
            client: AuthorityClient::new(tls, directory, limits),
            kind,
            replaces: state.current.as_ref().and_then(|current| current.identifier.clone()),
            current: state.current.as_ref().map(|current| current.text.clone()),
        }
    }

    /// One attempt, and its consequences.
    async fn attempt(&self) {
        let attempt = self.parts();
        let limit = self.settings.limits.attempt_timeout;
        let result = match task::timeout(limit, self.attempt_with_account(&attempt)).await {
            Ok(result) => result,
            Err(_) => Err(IssueError::Timeout),
        };
        let result = match result {
            Ok(issued) => self.use_issued(issued).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.wait_after(&error, attempt.client.retry_after()).await;
        }
    }

    /// An account that the authority has lost is replaced, and a nonce that it refuses is no reason to wait: `instant-acme`
    /// has sent three by then.
    async fn attempt_with_account(&self, attempt: &Attempt<'_>) -> Result<Issued, IssueError> {
        let mut result = attempt.run().await;
        for _ in 1..RUNS_MAX {
            match &result {
                Err(IssueError::UnknownAccount(text)) => {
                    tracing::warn!(subsystem = "acme", %text, "the authority does not know the account; a new one follows");
                    self.records.remove_order().await?;
                    self.records.remove_account().await?;
                }
                Err(IssueError::StaleNonce(_)) => {}
                _ => break,
            }
            result = attempt.run().await;
        }
        result
    }

    async fn use_issued(&self, issued: Issued) -> Result<(), IssueError> {
        let certificates = self.certificates.clone();
        let Issued { text, chain } = issued;
        let pem = text.clone();
        let replaced = blocking(move || certificates.replace_pem(&pem, &pem)).await?;
        replaced.map_err(|_| IssueError::Crypto)?;
        let seconds = chain.lifetime.not_after.duration_since(SystemTime::now()).unwrap_or_default().as_secs();
        {
            let mut state = self.lock();
            state.current = Some(Current::new(&chain, text));
            state.failures = SavedFailures::default();
            state.issued += 1;
        }
        tracing::info!(subsystem = "acme", names = ?self.settings.names, seconds, "certificate issued");
        self.records.remove_failures().await
    }

    /// Counts a failure, and keeps the time of the next attempt.
    async fn wait_after(&self, error: &IssueError, retry_after: Option<Duration>) {
        let limits = &self.settings.limits;
        let failures = {
            let mut state = self.lock();
            let count = state.failures.count.saturating_add(1);
            let whole = retry_delay(count, [limits.retry_min, limits.retry_max], random_fraction());
            // An authority that was not reached has counted nothing.
            let own = if matches!(error, IssueError::Unreachable(_)) { whole / 10 } else { whole };
            let wait = retry_after.map_or(own, |wait| wait.max(own));
            let retry_at = SystemTime::now().checked_add(wait).unwrap_or_else(SystemTime::now);
            state.failures = SavedFailures::new(count, retry_at, error);
            state.failed += 1;
            state.last_error = Some(error.to_string());
            tracing::warn!(
                subsystem = "acme", names = ?self.settings.names, failures = count, seconds = wait.as_secs(), %error,
                "no certificate was issued; the next attempt follows"
            );
            state.failures.clone()
        };
        // An order that fails each time in the same way gives place to another one; one that is slow does not.
        let gives_up = failures.count % ORDER_FAILURES_MAX == 0 && !matches!(error, IssueError::Timeout);
        let kept = async {
            if gives_up {
                self.records.remove_order().await?;
            }
            self.records.set_failures(&failures).await
        };
        if let Err(error) = kept.await {
            tracing::error!(subsystem = "acme", %error, "the time of the next attempt is not kept over a restart");
        }
    }

    /// Asks the authority when to renew (RFC 9773). Without an answer our own time counts.
    async fn ask_for_renewal_info(&self) {
        let attempt = self.parts();
        let Some(identifier) = &attempt.replaces else { return self.set_info(None, None) };
        let limits = &self.settings.limits;
        let asked = async {
            let account = attempt.account().await?;
            account.renewal_info(identifier).await.map_err(IssueError::from).map(Some)
        };
        let answer = match task::timeout(limits.request_timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(subsystem = "acme", %error, "no renewal information");
                None
            }
            Err(_) => None,
        };
        let wait = answer.as_ref().map_or(RENEWAL_INFO_INTERVAL, |(_, wait)| *wait);
        let wait = wait.clamp(limits.renewal_info_min, RENEWAL_INFO_MAX.max(limits.renewal_info_min));
        let window = answer.map(|(info, _)| info.suggested_window);
        let window =
            window.map(|window| (time_of(window.start.unix_timestamp()), time_of(window.end.unix_timestamp())));
        self.set_info(SystemTime::now().checked_add(wait), window);
    }

    fn set_info(&self, next: Option<SystemTime>, window: Option<(SystemTime, SystemTime)>) {
        if let Some(current) = &mut self.lock().current {
            current.info_at = next;
            if let Some((start, end)) = window {
                current.plan.set_window(start, end);
            }
        }
    }
}

impl Current {
    fn new(chain: &IssuedChain, text: Vec<u8>) -> Self {
        let identifier = chain.identifier();
        // At once, and then as often as the authority says.
        let info_at = identifier.is_some().then(SystemTime::now);
        let plan = RenewalPlan::new(chain.lifetime, random_fraction());
        Self { text, not_after: chain.lifetime.not_after, identifier, plan, info_at }
    }
}

/// The certificate of the store, if it is for its key and for all names. One that has expired is used: a client that knows
/// why it refuses it knows more than after a handshake without a certificate.
fn usable(settings: &Settings, text: &[u8]) -> Option<Current> {
    let chain = IssuedChain::parse(text).ok()?;
    chain.check_identity(&settings.provider, text, &settings.names).ok()?;
    Some(Current::new(&chain, text.to_vec()))
}

fn time_of(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Renewals on a thread of their own; dropping it ends them. The certificate stays in use.
#[must_use = "dropping it ends the renewals"]
pub struct RunningAcme {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningAcme {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for RunningAcme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningAcme")
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme").field("names", &self.0.settings.names).finish_non_exhaustive()
    }
}

/// Whether the renewals end, and the waker of their task.
#[derive(Default)]
struct Stop(Mutex<(bool, Option<Waker>)>);

impl Stop {
    fn stop(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn unless_stopped(&self, work: impl Future<Output = ()>) {
        let mut work = pin!(work);
        poll_fn(|cx| {
            {
                let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if state.0 {
                    return Poll::Ready(());
                }
                state.1 = Some(cx.waker().clone());
            }
            work.as_mut().poll(cx)
        })
        .await;
    }
}

/// Clears the flag at the end of the future, also when it is dropped.
struct RunningFlag<'a>(&'a AtomicBool);

impl Drop for RunningFlag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// How often an attempt begins, at most.
const RUNS_MAX: u32 = 3;

/// Failed attempts that continue one order.
const ORDER_FAILURES_MAX: u32 = 4;

/// The longest sleep between two looks at the clock.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// Between two questions about the renewal, unless the authority says otherwise.
const RENEWAL_INFO_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);

/// An authority that asks for a longer wait is asked once a day (RFC 9773 §4.3.2).
const RENEWAL_INFO_MAX: Duration = Duration::from_secs(24 * 60 * 60);
