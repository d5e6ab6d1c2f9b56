//! `ClientCore`: the settings, the connector and the pool that the clones of a client share.

use std::rc::Rc;

use http::Uri;
#[cfg(feature = "compress")]
use tidegate_compress::DecompressionLimits;
use tidegate_engine::{Resolve, task};
#[cfg(feature = "compress")]
use tidegate_http_message::coding::supported_names;
use tidegate_http_upstream::{Connector, Origin, Pool};
use tidegate_http1::{Fields, ResponseHead, Status};

use super::alt_svc::Alternatives;
#[cfg(feature = "cookies")]
use super::cookies::CookieStore;
use super::error::ClientError;
use super::https_records::HttpsRecords;
use super::limits::ClientLimits;
use super::proxy::Proxies;

/// The settings, the connector and the pool of a client.
pub(super) struct ClientCore {
    pub(super) limits: ClientLimits,
    pub(super) connector: Connector,
    pub(super) resolver: Rc<dyn Resolve>,
    pub(super) proxies: Proxies,
    /// Servers of `http` are known to speak HTTP/2.
    pub(super) has_prior_knowledge: bool,
    /// Requests of `https` go by HTTP/3 alone.
    pub(super) is_http3: bool,
    /// HTTP/3 is used where servers have it.
    pub(super) alternatives: Option<Alternatives>,
    /// The HTTPS records of origins are asked for.
    pub(super) https_records: Option<HttpsRecords>,
    pub(super) pool: Rc<Pool>,
    pub(super) redirects: Redirects,
    #[cfg(feature = "cookies")]
    pub(super) cookies: Option<CookieStore>,
    #[cfg(feature = "compress")]
    pub(super) decompression: Option<DecompressionLimits>,
}

/// How redirects are followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Redirects {
    pub(super) follows: bool,
    pub(super) allows_downgrade: bool,
}

impl ClientCore {
    /// An origin with the proxy through which it is reached, and the versions that its connections may speak. A request that
    /// `needs_http1` has connections of its own.
    pub(super) fn route(&self, mut origin: Origin, needs_http1: bool) -> Rc<Origin> {
        origin.via = if origin.at.is_none() { self.proxies.of(&origin).cloned() } else { None };
        let is_offered = if origin.is_secure { self.connector.offers_http2() } else { self.has_prior_knowledge };
        origin.may_be_http2 = is_offered && !needs_http1 && origin.forwarder().is_none();
        origin.is_http3 = self.is_http3 && origin.is_secure && !needs_http1 && origin.via.is_none();
        if let Some(alternatives) = self.alternatives_of(&origin).filter(|_| !needs_http1) {
            origin.alternative = alternatives.endpoint(&origin, task::now());
        }
        Rc::new(origin)
    }

    /// The origin without its alternative, if that rests, or is forgotten, since the origin was routed.
    pub(super) fn rerouted(&self, origin: &Rc<Origin>) -> Rc<Origin> {
        let known = self.alternatives.as_ref().and_then(|alternatives| alternatives.endpoint(origin, task::now()));
        if origin.alternative.is_none() || known.is_some() {
            return origin.clone();
        }
        Rc::new(Origin { alternative: None, ..Origin::clone(origin) })
    }

    /// The alternatives of which an origin may have one.
    fn alternatives_of(&self, origin: &Origin) -> Option<&Alternatives> {
        let may_have = origin.is_secure && origin.via.is_none() && origin.at.is_none();
        self.alternatives.as_ref().filter(|_| may_have)
    }

    /// A response may say that its origin has HTTP/3; not one of a server that is not the origin's (RFC 7838 §6).
    pub(super) fn learn_alternatives(&self, origin: &Origin, head: &ResponseHead) {
        let is_misdirected = head.status() == Status::MISDIRECTED_REQUEST;
        if let Some(alternatives) = self.alternatives_of(origin).filter(|_| !is_misdirected) {
            let fields = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"alt-svc"));
            alternatives.learn(origin, fields.map(|(_, value)| value), task::now());
        }
    }

    /// The endpoints of an origin's records cannot be reached.
    pub(super) fn on_endpoint_lost(&self, origin: &Origin) {
        if let Some(records) = &self.https_records {
            records.on_failure(origin, task::now());
        }
        self.on_alternative_lost(origin);
    }

    /// TCP has won against the alternative of an origin, or the connection to that was of no use.
    pub(super) fn on_alternative_lost(&self, origin: &Origin) {
        if let Some(alternatives) = self.alternatives.as_ref().filter(|_| origin.alternative.is_some()) {
            alternatives.on_loss(origin, task::now());
        }
    }

    /// The alternative of an origin has answered a request: whether it serves that origin.
    pub(super) fn on_alternative_answered(&self, origin: &Origin, is_misdirected: bool) {
        match &self.alternatives {
            Some(alternatives) if is_misdirected => alternatives.on_loss(origin, task::now()),
            Some(alternatives) => alternatives.on_answer(origin),
            None => {}
        }
    }

    /// Adds the fields that the settings of the client demand.
    #[cfg_attr(not(feature = "cookies"), expect(unused_variables, reason = "only cookies depend on the origin"))]
    pub(super) fn add_fields(&self, fields: &mut Fields, origin: &Origin, uri: &Uri) -> Result<(), ClientError> {
        #[cfg(any(feature = "cookies", feature = "compress"))]
        let has = |fields: &Fields, name: &[u8]| fields.iter().any(|(found, _)| found.eq_ignore_ascii_case(name));
        #[cfg(feature = "cookies")]
        if let Some(cookies) = &self.cookies
            && !has(fields, b"cookie")
            && let Some(value) = cookies.of(origin, uri)
        {
            fields.push("Cookie", value)?;
        }
        #[cfg(feature = "compress")]
        if self.decompression.is_some() && !has(fields, b"accept-encoding") {
            fields.push("Accept-Encoding", supported_names())?;
        }
        Ok(())
    }

    #[cfg(feature = "cookies")]
    pub(super) fn keep_cookies(&self, origin: &Origin, uri: &Uri, head: &ResponseHead) {
        let Some(cookies) = &self.cookies else { return };
        for (name, value) in head.headers() {
            if name.eq_ignore_ascii_case(b"set-cookie") {
                cookies.keep(origin, uri, value);
            }
        }
    }
}
