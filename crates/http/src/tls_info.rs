//! `TlsInfo`: the parameters that a TLS handshake has agreed on, for logs and functions.

use std::sync::Arc;

/// The parameters of a request's TLS connection. Functions and middleware find it among the request's
/// [`extensions`](crate::Request::extensions), if middleware of the outermost router or of the router of the host
/// [reads](crate::Middleware::reads_tls) it, as [`TlsInfos`](crate::TlsInfos) does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo(Arc<TlsParameters>);

#[derive(Debug, PartialEq, Eq)]
struct TlsParameters {
    version: &'static str,
    cipher: &'static str,
    server_name: Option<Box<str>>,
    /// In DER, its own first.
    client_certificate: Option<Box<[u8]>>,
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

    /// The certificate of the client, in DER, if the server has [requested](crate::Config::tls) one. The handshake has
    /// verified it.
    #[must_use]
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.0.client_certificate.as_deref()
    }

    /// The subject of the client's certificate as RFC 4514 writes it: `CN=ebb,O=Harbour`. It is read for this call.
    #[must_use]
    pub fn client_subject(&self) -> Option<String> {
        self.client_names().map(|(subject, _)| subject)
    }

    /// The alternative names of the client's certificate that are hosts and URIs: `DNS:ebb.example,URI:spiffe://sea/ebb`. They
    /// are read for this call.
    #[must_use]
    pub fn client_alternative_names(&self) -> Option<String> {
        self.client_names().map(|(_, alternatives)| alternatives)
    }

    #[cfg(feature = "tls")]
    fn client_names(&self) -> Option<(String, String)> {
        let names = tidegate_tls::CertificateNames::of(&self.client_certificate()?.into())?;
        Some((names.subject().to_owned(), names.alternatives()))
    }

    #[cfg(not(feature = "tls"))]
    fn client_names(&self) -> Option<(String, String)> {
        None
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
        let client_certificate = tls.peer_certificates().and_then(|chain| chain.first()).map(|own| own.as_ref().into());
        let server_name = tls.server_name().map(Into::into);
        Self(Arc::new(TlsParameters { version, cipher, server_name, client_certificate }))
    }

    /// QUIC does not name the cipher suite.
    #[cfg(feature = "http3")]
    pub(crate) fn of_quic(handshake: &tidegate_codec::Handshake) -> Self {
        let server_name = handshake.server_name.as_deref().map(Into::into);
        let client_certificate = handshake.peer_certificate.as_deref().map(Into::into);
        Self(Arc::new(TlsParameters { version: "TLSv1.3", cipher: "unknown", server_name, client_certificate }))
    }
}
