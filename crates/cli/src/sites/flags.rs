//! The flags for sites.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tidegate::http::LineLog;
use toml::Spanned;

use super::Sites;
use super::config::{BasicAuth, Config, Redirect, Site};
use crate::access_log::AccessLogFormat;

/// A directory, or a file with sites.
#[derive(Debug, Clone, Args)]
pub(crate) struct SitesOptions {
    /// Serve the files of DIR, with index.html for directories
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "pcap", "log_bytes"])]
    root: Option<PathBuf>,
    /// Serve the sites of FILE (TOML): a [[site]] has root, hosts, listing, precompressed, compression, symlinks,
    /// dot-files, cache-control, redirects, error-pages and basic-auth. SIGHUP reads it again; a file with a mistake
    /// changes nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "log_bytes"])]
    config: Option<PathBuf>,
    /// With --root: list directories without index.html
    #[arg(long, requires = "root")]
    listing: bool,
    /// With --root: serve NAME.br, NAME.zst or NAME.gz in place of NAME to clients that accept it
    #[arg(long, requires = "root")]
    precompressed: bool,
    /// With --root: compress no response
    #[arg(long, requires = "root")]
    no_compression: bool,
    /// With --root: follow symbolic links, within DIR only
    #[arg(long, requires = "root")]
    symlinks: bool,
    /// With --root: value of the field Cache-Control
    #[arg(long, value_name = "VALUE", requires = "root")]
    cache_control: Option<String>,
    /// With --root: answer requests for the path FROM with a redirect (308) to TO; may be repeated
    #[arg(long, value_name = "FROM=TO", requires = "root")]
    redirect: Vec<String>,
    /// With --root: page for responses with STATUS, 400 to 599; may be repeated
    #[arg(long, value_name = "STATUS=FILE", requires = "root")]
    error_page: Vec<String>,
    /// With --root: ask for a name and a password; may be repeated
    #[arg(long, value_name = "NAME:PASSWORD", requires = "root")]
    auth: Vec<String>,
    /// With --root: log a line for each request: off, common, combined, json, or a text with fields such as
    /// '{client.ip} {response.status}'
    #[arg(long, value_name = "FORMAT", default_value = "off", requires = "root")]
    access_log: AccessLogFormat,
}

impl SitesOptions {
    /// `None` without `--root` and `--config`.
    pub(crate) fn load(&self, access_log: &LineLog) -> Result<Option<Arc<Sites>>, Box<dyn Error>> {
        if let Some(path) = self.config.clone() {
            return Sites::new(Box::new(move || Ok(Config::read(&path)?)), access_log).map(Some);
        }
        if self.root.is_none() {
            return Ok(None);
        }
        let options = self.clone();
        Sites::new(Box::new(move || Ok(options.flags_as_config()?)), access_log).map(Some)
    }

    fn flags_as_config(&self) -> Result<Config, String> {
        let mut site = self.site(self.root.as_deref().unwrap_or(Path::new(".")))?;
        site.check(Path::new("")).map_err(|(_, text)| text)?;
        Ok(Config { access_log: self.access_log.clone(), site: vec![unspanned(site)] })
    }

    fn site(&self, root: &Path) -> Result<Site, String> {
        let split = |text: &str, at: char, form: &str| {
            let parts = text.split_once(at).map(|(left, right)| (left.to_owned(), right.to_owned()));
            parts.ok_or_else(|| format!("`{text}` does not have the form {form}"))
        };
        let mut redirects = Vec::new();
        for redirect in &self.redirect {
            let (from, to) = split(redirect, '=', "FROM=TO")?;
            redirects.push(unspanned(Redirect { from, to, status: 308 }));
        }
        let mut error_pages = BTreeMap::new();
        for page in &self.error_page {
            let (status, path) = split(page, '=', "STATUS=FILE")?;
            error_pages.insert(unspanned(status), unspanned(path.into()));
        }
        let mut users = BTreeMap::new();
        for user in &self.auth {
            let (name, password) = split(user, ':', "NAME:PASSWORD")?;
            users.insert(name, password);
        }
        let basic_auth = (!users.is_empty()).then(|| unspanned(BasicAuth { realm: "restricted".into(), users }));
        Ok(Site {
            hosts: Vec::new(),
            root: unspanned(root.to_owned()),
            index: true,
            listing: self.listing,
            precompressed: self.precompressed,
            compression: !self.no_compression,
            symlinks: self.symlinks,
            dot_files: false,
            cache_control: self.cache_control.clone().map(unspanned),
            redirects,
            error_pages,
            basic_auth,
        })
    }
}

/// A value that comes from no file.
fn unspanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
