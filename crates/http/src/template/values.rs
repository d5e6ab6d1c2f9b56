//! `TemplateValues`: where the values of placeholders come from.

use std::io::Write;

use http::StatusCode;
use tidegate_http_message::TraceContext;
use tidegate_http1 as http1;
use tidegate_proxy_protocol::Networks;

use super::Template;
use super::placeholder::{FixedPlaceholder, Placeholder};
use crate::client_address::{ClientAddress, TrustedProxies};
use crate::client_of::client_of;
use crate::cookie_value;
use crate::request::Request;
use crate::tls_info::TlsInfo;

/// A request, and parts of its response if it has one: the values of a [`Template`].
#[derive(Debug, Clone, Copy)]
pub struct TemplateValues<'a> {
    request: &'a Request,
    trusted: Option<&'a Networks>,
    upstream: &'a str,
    status: Option<StatusCode>,
}

impl<'a> TemplateValues<'a> {
    /// The values of a request without a response.
    #[must_use]
    #[inline]
    pub fn new(request: &'a Request) -> Self {
        Self { request, trusted: None, upstream: "", status: None }
    }

    /// The client is the one that these proxies name.
    #[must_use]
    pub fn trusting(mut self, trusted: &'a TrustedProxies) -> Self {
        self.trusted = Some(trusted.networks());
        self
    }

    /// The same for proxies in these networks.
    #[doc(hidden)]
    #[must_use]
    pub fn trusting_networks(mut self, trusted: &'a Networks) -> Self {
        self.trusted = Some(trusted);
        self
    }

    /// The upstream that has answered.
    #[must_use]
    pub fn with_upstream(mut self, upstream: &'a str) -> Self {
        self.upstream = upstream;
        self
    }

    /// The status of the response.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the value of a placeholder to a text.
    pub(crate) fn write(&self, placeholder: &Placeholder, text: &mut Vec<u8>) {
        let start = text.len();
        let request = self.request;
        match placeholder {
            Placeholder::Fixed(fixed) => self.write_fixed(*fixed, text),
            Placeholder::Header(name) => text.extend_from_slice(request.header(&**name).unwrap_or_default()),
            Placeholder::Cookie(name) => text.extend_from_slice(cookie_value::of(request, name).unwrap_or_default()),
            Placeholder::Parameter(name) => {
                let value = request.parameters().find(|(found, _)| *found == &**name).map(|(_, value)| value);
                text.extend_from_slice(value.unwrap_or_default().as_bytes());
            }
        }
        text.truncate(start + Template::VALUE_BYTES_MAX);
        for byte in &mut text[start..] {
            if byte.is_ascii_control() && *byte != b'\t' {
                *byte = b'_';
            }
        }
    }

    fn write_fixed(&self, placeholder: FixedPlaceholder, text: &mut Vec<u8>) {
        let request = self.request;
        let head = request.head();
        match placeholder {
            FixedPlaceholder::ClientIp => self.write_ip(text),
            FixedPlaceholder::ClientPort => {
                let peer = request.peer().ip().filter(|_| !self.is_behind_proxy());
                if let Some(address) = peer {
                    let _ = write!(text, "{}", address.port());
                }
            }
            FixedPlaceholder::PeerIp => {
                if let Some(address) = request.peer().ip() {
                    let _ = write!(text, "{}", address.ip().to_canonical());
                }
            }
            FixedPlaceholder::PeerPort => {
                if let Some(address) = request.peer().ip() {
                    let _ = write!(text, "{}", address.port());
                }
            }
            FixedPlaceholder::Method => text.extend_from_slice(head.method_text().as_bytes()),
            FixedPlaceholder::Scheme => text.extend_from_slice(scheme(request).as_bytes()),
            FixedPlaceholder::Host => text.extend_from_slice(head.host().as_bytes()),
            FixedPlaceholder::Hostname => text.extend_from_slice(hostname(head.host()).as_bytes()),
            FixedPlaceholder::Path => text.extend_from_slice(head.path_bytes()),
            FixedPlaceholder::Query => text.extend_from_slice(head.query_bytes().unwrap_or_default()),
            FixedPlaceholder::Target => write_target(head, text),
            FixedPlaceholder::Id => {
                if let Some(id) = request.id() {
                    text.extend_from_slice(id.as_str().as_bytes());
                }
            }
            FixedPlaceholder::TraceId | FixedPlaceholder::SpanId => {
                let is_trace = placeholder == FixedPlaceholder::TraceId;
                if let Some(context) = request.extensions().get::<TraceContext>() {
                    let id = if is_trace { context.trace_id() } else { context.span_id() };
                    text.extend_from_slice(id.as_bytes());
                }
            }
            FixedPlaceholder::Upstream => text.extend_from_slice(self.upstream.as_bytes()),
            FixedPlaceholder::TlsVersion
            | FixedPlaceholder::TlsCipher
            | FixedPlaceholder::TlsServerName
            | FixedPlaceholder::TlsClientSubject
            | FixedPlaceholder::TlsClientNames => self.write_tls(placeholder, text),
            FixedPlaceholder::Status => {
                if let Some(status) = self.status {
                    text.extend_from_slice(status.as_str().as_bytes());
                }
            }
        }
    }

    fn write_tls(&self, placeholder: FixedPlaceholder, text: &mut Vec<u8>) {
        let Some(tls) = self.request.extensions().get::<TlsInfo>() else { return };
        match placeholder {
            FixedPlaceholder::TlsVersion => text.extend_from_slice(tls.version().as_bytes()),
            FixedPlaceholder::TlsCipher => text.extend_from_slice(tls.cipher().as_bytes()),
            FixedPlaceholder::TlsServerName => {
                text.extend_from_slice(tls.server_name().unwrap_or_default().as_bytes());
            }
            FixedPlaceholder::TlsClientSubject => {
                text.extend_from_slice(tls.client_subject().unwrap_or_default().as_bytes());
            }
            _ => text.extend_from_slice(tls.client_alternative_names().unwrap_or_default().as_bytes()),
        }
    }

    fn client(&self) -> ClientAddress {
        self.trusted.map_or_else(|| self.request.client(), |trusted| client_of(trusted, self.request))
    }

    fn write_ip(&self, text: &mut Vec<u8>) {
        if let Some(ip) = self.client().ip() {
            let _ = write!(text, "{ip}");
        }
    }

    /// Whether the client is not the peer.
    fn is_behind_proxy(&self) -> bool {
        self.client() != ClientAddress::of_peer(self.request.peer())
    }
}

fn scheme(request: &Request) -> &'static str {
    if request.is_secure() { "https" } else { "http" }
}

/// A host without its port.
fn hostname(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The path and the query: the target in the form that an origin server gets (RFC 9112 §3.2.1).
fn write_target(head: &http1::RequestHead, text: &mut Vec<u8>) {
    text.extend_from_slice(head.path_bytes());
    if let Some(query) = head.query_bytes() {
        text.push(b'?');
        text.extend_from_slice(query);
    }
}
