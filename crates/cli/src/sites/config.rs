//! The file of `--config`: which sites are served, and how.
//!
//! Every mistake is reported with its line and column, and a file with one changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate::http::{InvalidField, Response, StatusCode};
use toml::Spanned;

use super::{host_key, refuse_host, refuse_variable};
use crate::access_log::AccessLogFormat;

/// A mistake in the file: where it begins, if that is known, and a text.
type Mistake = (Option<usize>, String);

/// The file: sites, and their common settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    /// Log a line for each response.
    #[serde(default)]
    pub(crate) access_log: AccessLogFormat,
    #[serde(default)]
    pub(crate) site: Vec<Spanned<Site>>,
}

/// A directory and the hosts that it is served for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Site {
    /// The names of the hosts; none for requests that name no other site.
    #[serde(default)]
    pub(crate) hosts: Vec<Spanned<String>>,
    pub(crate) root: Spanned<PathBuf>,
    /// Serve a directory by its index.html.
    #[serde(default = "yes")]
    pub(crate) index: bool,
    /// List directories without one.
    #[serde(default)]
    pub(crate) listing: bool,
    /// Serve NAME.br, NAME.zst or NAME.gz in place of NAME to clients that accept it.
    #[serde(default)]
    pub(crate) precompressed: bool,
    /// Compress types that compress well.
    #[serde(default = "yes")]
    pub(crate) compression: bool,
    /// Follow symbolic links, within the root only.
    #[serde(default)]
    pub(crate) symlinks: bool,
    /// Serve files whose names begin with a dot.
    #[serde(default)]
    pub(crate) dot_files: bool,
    /// The value of `Cache-Control`.
    pub(crate) cache_control: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) redirects: Vec<Spanned<Redirect>>,
    /// Files with the bodies of errors, by status.
    #[serde(default)]
    pub(crate) error_pages: BTreeMap<Spanned<String>, Spanned<PathBuf>>,
    pub(crate) basic_auth: Option<Spanned<BasicAuth>>,
}

/// A path that is elsewhere now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redirect {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(default = "permanent")]
    pub(crate) status: u16,
}

/// Names and passwords.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicAuth {
    #[serde(default = "realm")]
    pub(crate) realm: String,
    pub(crate) users: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

fn permanent() -> u16 {
    308
}

fn realm() -> String {
    "restricted".into()
}

/// A mistake in the file, and where it is.
#[derive(Debug)]
pub(crate) struct ConfigError {
    path: PathBuf,
    /// Line and column, from one.
    place: Option<(usize, usize)>,
    text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.text)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// Reads a file, and parses it with `parse`, which gets its directory too. An error of that has the offset of the
    /// mistake.
    pub(crate) fn reading<T>(path: &Path, parse: impl FnOnce(&str, &Path) -> Result<T, Mistake>) -> Result<T, Self> {
        let failed = |place, text| Self { path: path.to_owned(), place, text };
        let source = std::fs::read_to_string(path).map_err(|error| failed(None, error.to_string()))?;
        let parsed = parse(&source, path.parent().unwrap_or(Path::new(".")));
        parsed.map_err(|(at, text)| failed(at.map(|at| place(&source, at)), text))
    }
}

/// Parses a file of TOML. An error has the offset of the mistake, and one line of text.
pub(crate) fn parse_toml<T: serde::de::DeserializeOwned>(source: &str) -> Result<T, Mistake> {
    toml::from_str(source).map_err(|error| {
        let text = error.message().lines().collect::<Vec<_>>().join("; ");
        (error.span().map(|span| span.start), text)
    })
}

impl Config {
    /// Reads and checks a file. Relative paths in it begin at its directory.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::reading(path, Self::parse)
    }

    /// Parses and checks. An error has the offset of the mistake.
    fn parse(source: &str, directory: &Path) -> Result<Self, Mistake> {
        let mut config: Self = parse_toml(source)?;
        if config.site.is_empty() {
            return Err((None, "there is no [[site]]".into()));
        }
        let mut hosts = HashSet::new();
        for site in &mut config.site {
            let at = site.span().start;
            let site = site.get_mut();
            if site.hosts.is_empty() && !hosts.insert(String::new()) {
                return Err((Some(at), "a second site without hosts".into()));
            }
            for host in &site.hosts {
                if let Some(text) = refuse_host(host.get_ref()) {
                    return Err((Some(host.span().start), text));
                }
                if !hosts.insert(host_key(host.get_ref())) {
                    return Err((Some(host.span().start), format!("a second site for `{}`", host.get_ref())));
                }
            }
            site.check(directory)?;
        }
        Ok(config)
    }
}

impl Site {
    pub(super) fn check(&mut self, directory: &Path) -> Result<(), Mistake> {
        resolve(&mut self.root, directory);
        let root = self.root.get_ref();
        if !root.is_dir() {
            return Err((Some(self.root.span().start), format!("`{}` is not a directory", root.display())));
        }
        self.check_cache_control()?;
        self.check_redirects()?;
        self.check_error_pages(directory)?;
        self.check_users()
    }

    fn check_cache_control(&self) -> Result<(), Mistake> {
        if let Some(value) = &self.cache_control {
            let checked = Response::new().header("Cache-Control", value.get_ref());
            checked.map_err(|error| (Some(value.span().start), field_error(value.get_ref(), error)))?;
            if let Some(text) = refuse_variable(value.get_ref()) {
                return Err((Some(value.span().start), format!("cache-control: {text}")));
            }
        }
        Ok(())
    }

    fn check_redirects(&self) -> Result<(), Mistake> {
        let mut from = HashSet::new();
        for redirect in &self.redirects {
            let at = Some(redirect.span().start);
            let redirect = redirect.get_ref();
            let is_path = redirect.from.starts_with('/') && !redirect.from.contains(['{', '}', '?', '#', ' ', '*']);
            if !is_path {
                return Err((at, format!("`{}` is not a path; it has to begin with a slash", redirect.from)));
            }
            if !from.insert(redirect.from.as_str()) {
                return Err((at, format!("a second redirect from `{}`", redirect.from)));
            }
            if !matches!(redirect.status, 301 | 302 | 303 | 307 | 308) {
                return Err((
                    at,
                    format!("{} is not the status of a redirect: 301, 302, 303, 307, 308", redirect.status),
                ));
            }
            let checked = Response::new().header("Location", &redirect.to);
            checked.map_err(|error| (at, field_error(&redirect.to, error)))?;
            if let Some(text) = refuse_variable(&redirect.to) {
                return Err((at, format!("`{}`: {text}", redirect.to)));
            }
        }
        Ok(())
    }

    fn check_error_pages(&mut self, directory: &Path) -> Result<(), Mistake> {
        for (status, page) in &mut self.error_pages {
            if error_status(status.get_ref()).is_none() {
                let text = format!("`{}` is not the status of an error, 400 to 599", status.get_ref());
                return Err((Some(status.span().start), text));
            }
            resolve(page, directory);
            let length = std::fs::metadata(page.get_ref()).map(|metadata| metadata.len());
            let at = Some(page.span().start);
            match length {
                Ok(length) if length > ERROR_PAGE_BYTES_MAX => {
                    return Err((at, format!("`{}` is larger than 1 MiB", page.get_ref().display())));
                }
                Ok(_) => {}
                Err(error) => return Err((at, format!("`{}`: {error}", page.get_ref().display()))),
            }
        }
        Ok(())
    }

    fn check_users(&self) -> Result<(), Mistake> {
        if let Some(auth) = &self.basic_auth {
            let at = Some(auth.span().start);
            if auth.get_ref().users.is_empty() {
                return Err((at, "there are no users".into()));
            }
            if let Some(name) = auth.get_ref().users.keys().find(|name| name.contains(':')) {
                return Err((at, format!("the user name `{name}` has a colon")));
            }
            let is_plain =
                |realm: &str| realm.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte));
            if !is_plain(&auth.get_ref().realm) {
                return Err((at, "a realm is ASCII without quotes and backslashes".into()));
            }
        }
        Ok(())
    }
}

/// The status of an error page.
pub(crate) fn error_status(text: &str) -> Option<StatusCode> {
    let status = text.parse::<u16>().ok().filter(|code| (400..600).contains(code))?;
    StatusCode::from_u16(status).ok()
}

/// A redirect of any path of the file system to its place in a configuration.
pub(crate) fn resolve(path: &mut Spanned<PathBuf>, directory: &Path) {
    let resolved = directory.join(path.get_ref());
    *path.get_mut() = resolved;
}

fn field_error(value: &str, error: InvalidField) -> String {
    format!("`{}`: {error}", value.escape_debug())
}

/// The line and the column of an offset, from one.
pub(crate) fn place(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

const ERROR_PAGE_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use tidegate::http::LogFormat;

    use super::*;

    fn mistake(source: &str) -> (Option<(usize, usize)>, String) {
        let (at, text) = Config::parse(source, Path::new("/")).expect_err("it has a mistake");
        (at.map(|at| place(source, at)), text)
    }

    #[test]
    fn a_full_file_is_read() {
        let source = r#"
            access-log = "json"

            [[site]]
            root = "."
            hosts = ["sea.example", "www.sea.example"]
            listing = true
            cache-control = "max-age=60"
            redirects = [{ from = "/old", to = "/new", status = 301 }, { from = "/older", to = "https://sea.example/" }]
            basic-auth = { users = { ebb = "flow" } }

            [[site]]
            root = "/"
        "#;
        let config = Config::parse(source, Path::new("/")).expect("there is no mistake");
        assert_eq!(config.access_log, AccessLogFormat::Named(LogFormat::Json));
        let site = config.site[0].get_ref();
        assert_eq!((site.redirects[0].get_ref().status, site.redirects[1].get_ref().status), (301, 308));
        assert!(site.index && site.listing && site.compression && !site.dot_files && !site.symlinks);
        assert_eq!(config.site[1].get_ref().root.get_ref(), Path::new("/"));
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let cases = [
            ("[[site]]\nrooot = \"/\"\n", (2, 1), "rooot"),
            ("[[site]]\nroot = \"/\"\nlisting = \"yes\"\n", (3, 11), "boolean"),
            ("[[site]]\nroot = \"/nowhere\"\n", (2, 8), "not a directory"),
            ("[[site]]\nroot = \"/\"\nhosts = [\"a\", \"A\"]\n", (3, 15), "second site"),
            ("[[site]]\nroot = \"/\"\nhosts = [\"a b\"]\n", (3, 10), "not the name"),
            ("[[site]]\nroot = \"/\"\nhosts = [\"*.a.example\"]\n", (3, 10), "no wildcards"),
            ("[[site]]\nroot = \"/\"\nhosts = [\"a\", \"A.\"]\n", (3, 15), "second site"),
            ("[[site]]\nroot = \"/\"\ncache-control = \"$age\"\n", (3, 17), "`$age` would be sent as it is"),
            ("[[site]]\nroot = \"/\"\nredirects = [{ from = \"/\", to = \"//$host\" }]\n", (3, 14), "`$host` would"),
            ("[[site]]\nroot = \"/\"\nredirects = [{ from = \"/a/*\", to = \"/b\" }]\n", (3, 14), "not a path"),
            ("[[site]]\nroot = \"/\"\n[[site]]\nroot = \"/\"\n", (3, 1), "without hosts"),
            ("[[site]]\nroot = \"/\"\ncache-control = \"a\\nb\"\n", (3, 17), "control characters"),
            ("[[site]]\nroot = \"/\"\nredirects = [{ from = \"a\", to = \"b\" }]\n", (3, 14), "not a path"),
            ("[[site]]\nroot = \"/\"\nredirects = [{ from = \"/\", to = \"b\", status = 200 }]\n", (3, 14), "status"),
            ("[[site]]\nroot = \"/\"\nerror-pages = { 200 = \"/etc/hosts\" }\n", (3, 17), "status of an error"),
            ("[[site]]\nroot = \"/\"\nerror-pages = { 404 = \"/nowhere\" }\n", (3, 23), "nowhere"),
            ("[[site]]\nroot = \"/\"\nbasic-auth = { users = {} }\n", (3, 14), "no users"),
            ("access-log = \"loud\"\n", (1, 14), "loud"),
            ("[[site]\nroot = \"/\"\n", (1, 8), ""),
        ];
        for (source, place, text) in cases {
            let (found, message) = mistake(source);
            assert_eq!(found, Some(place), "{source}{message}");
            assert!(message.contains(text) && !message.contains('\n'), "{source}{message}");
        }
        assert_eq!(mistake("").0, None);
    }
}
