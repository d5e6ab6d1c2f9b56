//! The sites of `tidegate serve --root` and `--config`: directories of files, with their surroundings.
//!
//! `config.rs` reads the file, `flags.rs` the flags for one site; `literal.rs` has the texts that neither may contain.
//! Here both become routers, now and at each reload.

mod config;
mod flags;
mod literal;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::Bytes;
use tidegate::http::{
    AccessLog, BasicAuth, ErrorPages, Files, IntoResponse, LineLog, Reload, Request, Response, ResponseCompression,
    Router, StatusCode,
};

#[cfg(test)]
pub(crate) use self::config::place;
use self::config::{Config, Site};
pub(crate) use self::config::{ConfigError, parse_toml, resolve};
pub(crate) use self::flags::SitesOptions;
pub(crate) use self::literal::{host_key, refuse_host, refuse_variable};
use crate::access_log::AccessLogFormat;

/// Checks a file as a server would read it. Returns a summary.
pub(crate) fn check(file: &std::path::Path) -> Result<String, Box<dyn Error>> {
    let prepared = OpenSites::new(Config::read(file)?)?;
    Ok(format!("{} sites", prepared.sites.len()))
}

/// Reads the configuration to serve.
type ReadConfig = Box<dyn Fn() -> Result<Config, Box<dyn Error>> + Send + Sync>;

/// The served sites, and the source of their configuration.
pub(crate) struct Sites {
    read: ReadConfig,
    access_log: LineLog,
    current: Mutex<Arc<OpenSites>>,
    reload: Reload,
}

/// Sites whose files are open.
struct OpenSites {
    access_log: AccessLogFormat,
    sites: Vec<PreparedSite>,
}

struct PreparedSite {
    site: Site,
    files: Files,
    error_pages: Vec<(StatusCode, Bytes)>,
}

impl Sites {
    fn new(read: ReadConfig, access_log: &LineLog) -> Result<Arc<Self>, Box<dyn Error>> {
        let current = Mutex::new(Arc::new(OpenSites::new(read()?)?));
        Ok(Arc::new(Self { read, access_log: access_log.clone(), current, reload: Reload::new() }))
    }

    /// The handle that makes the loops build their routers anew.
    pub(crate) fn reload_handle(&self) -> &Reload {
        &self.reload
    }

    /// Reads the files again, those that flags name too, and logs the outcome in one line. If one has a mistake, nothing
    /// changes.
    pub(crate) fn reload(&self) {
        match (self.read)().and_then(OpenSites::new) {
            Ok(prepared) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(prepared);
                self.reload.reload();
                tracing::info!(subsystem = "sites", "configuration reloaded");
            }
            Err(error) => {
                tracing::error!(subsystem = "sites", %error, "configuration not reloaded; the old one stays in use");
            }
        }
    }

    /// The router of one loop.
    pub(crate) fn router(&self) -> Router {
        let prepared = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut rest = None;
        let mut named = Vec::new();
        for site in &prepared.sites {
            let access_log = prepared.access_log.access_log(&self.access_log);
            let router = || site.router(access_log.as_ref());
            match &site.site.hosts[..] {
                [] => rest = Some(router()),
                hosts => named.extend(hosts.iter().map(|host| (host.get_ref().clone(), router()))),
            }
        }
        let nowhere = || Router::new().fallback(|| StatusCode::MISDIRECTED_REQUEST);
        let all = rest.unwrap_or_else(nowhere);
        named.into_iter().fold(all, |all, (host, router)| all.host(&host, router))
    }
}

impl OpenSites {
    fn new(config: Config) -> Result<Self, Box<dyn Error>> {
        let access_log = config.access_log;
        let sites = config.site.into_iter().map(|site| PreparedSite::new(site.into_inner()));
        Ok(Self { access_log, sites: sites.collect::<Result<_, _>>()? })
    }
}

impl PreparedSite {
    fn new(site: Site) -> Result<Self, Box<dyn Error>> {
        let root = site.root.get_ref();
        let opened = || Files::new(root)?.follow_symlinks(site.symlinks);
        let mut files = opened().map_err(|error| format!("cannot open {}: {error}", root.display()))?;
        files = files.listing(site.listing).dot_files(site.dot_files).precompressed(site.precompressed);
        if !site.index {
            files = files.index(None);
        }
        if let Some(value) = &site.cache_control {
            files = files.cache_control(value.get_ref());
        }
        let mut error_pages = Vec::new();
        for (status, path) in &site.error_pages {
            let page = std::fs::read(path.get_ref());
            let page = page.map_err(|error| format!("cannot read {}: {error}", path.get_ref().display()))?;
            error_pages.extend(config::error_status(status.get_ref()).map(|status| (status, page.into())));
        }
        Ok(Self { site, files, error_pages })
    }

    fn router(&self, access_log: Option<&AccessLog>) -> Router {
        let mut router = Router::new();
        for redirect in &self.site.redirects {
            let redirect = redirect.get_ref();
            let (to, status) = (redirect.to.clone(), redirect.status);
            router = router.any(&redirect.from, move |request: Request| redirected(&to, status, request.query()));
        }
        router = router.fallback(self.files.clone());
        if let Some(access_log) = access_log {
            router = router.with(access_log.clone());
        }
        if self.site.compression {
            router = router.with(ResponseCompression::new());
        }
        if !self.error_pages.is_empty() {
            let pages = self.error_pages.iter().cloned();
            router = router.with(pages.fold(ErrorPages::new(), |all, (status, page)| all.page(status, page)));
        }
        if let Some(auth) = &self.site.basic_auth {
            let auth = auth.get_ref();
            let users = auth.users.iter();
            router =
                router.with(users.fold(BasicAuth::new(&auth.realm), |all, (name, password)| all.user(name, password)));
        }
        router
    }
}

/// A redirect, which keeps the query.
fn redirected(to: &str, status: u16, query: Option<&str>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
    let (place, fragment) = to.split_at(to.find('#').unwrap_or(to.len()));
    let target = match query {
        Some(query) if !place.contains('?') => format!("{place}?{query}{fragment}"),
        _ => to.to_owned(),
    };
    Response::status(status).header("Location", target).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_redirect_comes_before_its_fragment() {
        for (to, query, expected) in [
            ("/new", None, "/new"),
            ("/new", Some("a=b"), "/new?a=b"),
            ("/new#part", Some("a=b"), "/new?a=b#part"),
            ("/new#part?", Some("a=b"), "/new?a=b#part?"),
            ("/new?c=d#part", Some("a=b"), "/new?c=d#part"),
        ] {
            let response = redirected(to, 308, query);
            assert_eq!(response.field("location"), Some(expected.as_bytes()), "{to} {query:?}");
        }
    }
}
