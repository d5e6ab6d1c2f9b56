//! The settings of telemetry: the flags `--otlp…`, which the file has as `telemetry`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tidegate::IpNet;
use tidegate::http::proxy::UpstreamUrl;

/// The flags of telemetry.
#[derive(Debug, Clone, Args)]
pub(crate) struct TelemetryOptions {
    /// Export a span for each request and for each attempt at an upstream to the OpenTelemetry collector at URL, such as
    /// http://127.0.0.1:4318, by OTLP over HTTP. The context of the request (W3C Trace Context) goes on to the upstream. In
    /// place of the file's `telemetry`
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// With --otlp: the share of the requests without a context that get spans, 0 to 100. A request with a context gets
    /// some if its sender records, up to 100 requests a second; a context beyond that counts as none
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = percent, requires = "otlp")]
    otlp_percent: f64,
    /// With --otlp: the name of this service for the collector
    #[arg(long, value_name = "NAME", default_value = SERVICE, requires = "otlp")]
    otlp_service: String,
    /// With --otlp: send the fields of FILE with each export, such as `Authorization: Bearer …`; one a line
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_headers: Option<PathBuf>,
    /// With --otlp: certificates (PEM) that vouch for an https collector [default: those that the system trusts]
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_ca: Option<PathBuf>,
}

/// Where spans go, and which requests have some.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TelemetrySettings {
    /// The URL that spans are sent to.
    pub(crate) endpoint: String,
    /// Of requests without a context.
    pub(crate) percent: f64,
    pub(crate) service: String,
    pub(crate) headers: ExportHeaders,
    pub(crate) ca: Option<PathBuf>,
    /// Peers whose decision to record counts without a limit; `None` for the proxies in front.
    pub(crate) trusted: Option<Vec<IpNet>>,
    /// Requests that other peers have recorded, in a second.
    pub(crate) requested_per_second: u32,
}

/// Fields of the exports, which may have a secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct ExportHeaders(Vec<(String, String)>);

impl TelemetryOptions {
    /// The settings of the flags; `None` without --otlp.
    pub(crate) fn settings(&self) -> Result<Option<TelemetrySettings>, String> {
        let Some(url) = &self.otlp else { return Ok(None) };
        let headers = match &self.otlp_headers {
            Some(path) => ExportHeaders::read(path).map_err(|error| format!("--otlp-headers: {error}"))?,
            None => ExportHeaders::default(),
        };
        Ok(Some(TelemetrySettings {
            endpoint: endpoint(url).map_err(|error| format!("--otlp: {error}"))?,
            percent: self.otlp_percent,
            service: self.otlp_service.clone(),
            headers,
            ca: self.otlp_ca.clone(),
            ..TelemetrySettings::default()
        }))
    }
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            percent: 100.0,
            service: SERVICE.to_owned(),
            headers: ExportHeaders::default(),
            ca: None,
            trusted: None,
            requested_per_second: REQUESTED_PER_SECOND,
        }
    }
}

impl ExportHeaders {
    /// The fields of a file: `Name: value`, one a line.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut fields = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let field = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
            let is_valid = |(name, value): &(&str, &str)| {
                tidegate::http::HeaderName::from_bytes(name.as_bytes()).is_ok()
                    && tidegate::http::HeaderValue::from_str(value).is_ok()
            };
            // The line may have a secret, so that no message shows it.
            let (name, value) = field
                .filter(is_valid)
                .ok_or_else(|| format!("{}: line {} is no field `Name: value`", path.display(), number + 1))?;
            fields.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self(fields))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The URL for spans at a collector: one without a path gets that of the specification.
pub(crate) fn endpoint(url: &str) -> Result<String, String> {
    let wrong = || format!("`{}` is no URL such as http://127.0.0.1:4318", url.escape_debug());
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !matches!(scheme, "http" | "https") || format!("{scheme}://{authority}").parse::<UpstreamUrl>().is_err() {
        return Err(wrong());
    }
    let is_of_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    match path {
        "" | "/" => Ok(format!("{scheme}://{authority}{TRACES_PATH}")),
        _ if path.bytes().all(is_of_path) => Ok(url.to_owned()),
        _ => Err(wrong()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "it is a number from 0 to 100".to_owned())
}

/// The path of spans (OTLP, "OTLP/HTTP Request").
const TRACES_PATH: &str = "/v1/traces";
pub(super) const SERVICE: &str = "tidegate";

/// Clients decide by one bit whether their requests are recorded: none of them fills the collector.
const REQUESTED_PER_SECOND: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_without_a_path_gets_that_of_spans() {
        for (url, expected) in [
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            ("https://otel.example/", Some("https://otel.example/v1/traces")),
            ("https://otel.example/otlp/v1/traces", Some("https://otel.example/otlp/v1/traces")),
            ("127.0.0.1:4318", None),
            ("ftp://sea.example", None),
            ("http://", None),
            ("http://sea.example/?key=1", None),
        ] {
            assert_eq!(endpoint(url).ok().as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_share_is_a_number_of_percent() {
        assert_eq!((percent("0.5"), percent("100")), (Ok(0.5), Ok(100.0)));
        for wrong in ["", "-1", "101", "NaN", "all"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
