//! `TlsInfo`: the parameters that a TLS handshake has agreed on, for logs and functions.

use std::sync::Arc;

/// The parameters of a request's TLS connection. Functions and middleware find it among the request's
/// [`extensions`](crate::Request::extensions), if middleware of the outermost router or of the router of the host
/// [reads](crate::Middleware::reads_tls) it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo(Arc<TlsParameters>);

#[derive(Debug, PartialEq, Eq)]
struct TlsParameters {
    version: &'static str,
    cipher: &'static str,
    server_name: Option<Box<str>>,
}

impl TlsInfo {
    /// The version: `TLSv1.2` or `TLSv1.3`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.0.version
    }

    /// The cipher suite, by its name in the registry of IANA, such as `TLS_AES_128_GCM_SHA256`.
    #[must_use]
    pub fn cipher(&self) -> &'static str {
        self.0.cipher
    }

    /// The name that the client has requested (SNI, RFC 6066 §3).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.0.server_name.as_deref()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn of(tls: &tidegate_tls::Tls) -> Self {
        let version = match tls.version().and_then(|version| version.as_str()) {
            Some("TLSv1_3") => "TLSv1.3",
            Some("TLSv1_2") => "TLSv1.2",
            _ => "unknown",
        };
        // rustls has a prefix of its own for the suites of TLS 1.3.
        let cipher = match tls.cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown") {
            "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
            "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
            "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
            other => other,
        };
        Self(Arc::new(TlsParameters { version, cipher, server_name: tls.server_name().map(Into::into) }))
    }
}
