//! `Request`: the head of a request, read in place, with its body, its route and its peer.

use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;
use std::sync::LazyLock;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Version};
use tidegate_buffer::Pool;
#[cfg(feature = "compress")]
use tidegate_http_message::BodyError;
use tidegate_http_message::HeaderFields;
use tidegate_http_message::body::{Body, BodyDecoder, NO_BODY};
#[cfg(feature = "compress")]
use tidegate_http_message::body::{BodyKind, Decode};
use tidegate_http1::{self as http1, Fields, InvalidField, RequestHead, Status};
use tidegate_sys::Address;

use crate::client_address::ClientAddress;
use crate::exchange_note::ExchangeNote;
use crate::field_names::{is_of_connection, is_same};
use crate::normal_path::{self, NormalPath};
use crate::request_id::RequestId;
use crate::response::Response;
use crate::route::Route;

/// A request: a head that is read where it lies, and a body.
///
/// Nothing is allocated for it. Fields are looked up on demand; [`header_map`](Self::header_map) makes a map of them.
///
/// A function that is not async receives the request with its whole body, [`bytes`](Self::bytes), of at most
/// [`collected_body_bytes_max`](crate::Limits::collected_body_bytes_max) bytes. An async function receives the request
/// as soon as its head has arrived, and reads the body piece by piece: [`body_mut`](Self::body_mut).
pub struct Request {
    head: RequestHead,
    route: Option<Route>,
    peer: Address,
    /// `None` while they are empty, which costs nothing to move and to drop.
    parts: Option<Box<Parts>>,
    is_secure: bool,
}

/// Parts that most requests do not have.
#[derive(Default)]
struct Parts {
    body: Body,
    /// Made when it is asked for: few functions read it.
    extensions: OnceCell<Extensions>,
    /// The id until there are extensions, which have it then.
    id: Option<RequestId>,
    /// The client, if it is not the peer.
    client: Option<ClientAddress>,
    /// The facts for the access log.
    note: Option<ExchangeNote>,
    connection_state: Option<AnyState>,
    /// Undoes the content coding of the body.
    decoding: Option<Box<BodyDecoder>>,
    /// The content coding of the body is undone, and the head still names it.
    names_coding: bool,
    /// The length that the client has announced of a body whose content coding is undone.
    coded_length: Option<u64>,
    /// The response of the router, which found no function.
    refusal: Option<Box<Response>>,
    /// How long a body may be that async middleware passes on to a function that wants it whole.
    collected_body_bytes_max: Option<usize>,
}

impl Parts {
    fn extensions(&self) -> &Extensions {
        self.extensions.get_or_init(|| {
            let mut extensions = Extensions::new();
            if let Some(id) = &self.id {
                extensions.insert(id.clone());
            }
            extensions
        })
    }

    fn has_values(&self) -> bool {
        self.id.is_some()
            || self.note.is_some()
            || self.client.is_some()
            || self.extensions.get().is_some_and(|values| !values.is_empty())
    }

    /// The values that middleware has added.
    fn values(&self) -> Self {
        let (extensions, id, note) = (self.extensions.clone(), self.id.clone(), self.note.clone());
        Self { extensions, id, note, client: self.client, ..Self::default() }
    }
}

impl Request {
    #[inline]
    pub(crate) fn new(head: RequestHead, peer: Address, is_secure: bool, route: Option<Route>) -> Self {
        Self { head, route, peer, parts: None, is_secure }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        match self.head.method() {
            http1::Method::Get => Method::GET,
            http1::Method::Head => Method::HEAD,
            http1::Method::Post => Method::POST,
            http1::Method::Put => Method::PUT,
            http1::Method::Delete => Method::DELETE,
            http1::Method::Connect => Method::CONNECT,
            http1::Method::Options => Method::OPTIONS,
            http1::Method::Trace => Method::TRACE,
            http1::Method::Patch => Method::PATCH,
            // A method is a token, of at most 32 bytes: the codec has checked it.
            http1::Method::Extension => Method::from_bytes(self.head.method_text().as_bytes()).unwrap_or_default(),
        }
    }

    /// The target as it was sent, usually a path and a query. Of a target that is not UTF-8 this is the part before the
    /// first byte that is not; [`target_bytes`](Self::target_bytes) is the whole. A [`Router`](crate::Router) answers a
    /// request whose path is not UTF-8 with 400, unless it passes the request on.
    #[must_use]
    pub fn target(&self) -> &str {
        self.head.target()
    }

    /// The path as it was sent, with its percent-encoding; `/` if the target has none. A rule that compares paths takes
    /// [`normal_path`](Self::normal_path).
    #[must_use]
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// The path as a [`Router`](crate::Router) matches it: escapes of visible characters are decoded, but for `%2F`, `%5C`,
    /// `%25`, `%3F` and `%23`, and all other bytes are escapes in upper case (RFC 3986 §6.2.2). So `/%6cogin` is `/login`.
    #[must_use]
    pub fn normal_path(&self) -> Cow<'_, str> {
        let path = self.head.path_bytes();
        match std::str::from_utf8(path) {
            Ok(text) if !normal_path::is_encoded(path) => text.into(),
            _ => NormalPath::new(path).text().to_owned().into(),
        }
    }

    /// The part of the target after the `?`, as it was sent.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// The host that the request is for, with its port if it was sent.
    #[must_use]
    pub fn host(&self) -> &str {
        self.head.host()
    }

    /// The HTTP version.
    #[must_use]
    pub fn version(&self) -> Version {
        match self.head.version() {
            http1::Version::Http10 => Version::HTTP_10,
            http1::Version::Http11 => Version::HTTP_11,
            http1::Version::Http2 => Version::HTTP_2,
            http1::Version::Http3 => Version::HTTP_3,
        }
    }

    /// The value of the first field of this name, without the white space around it. Case does not matter.
    #[must_use]
    pub fn header(&self, name: impl AsRef<str>) -> Option<&[u8]> {
        self.head.header(name.as_ref())
    }

    /// The same as text; `None` as well if the value is not UTF-8.
    #[must_use]
    pub fn header_str(&self, name: impl AsRef<str>) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }

    /// The target as bytes, which is cheaper.
    #[must_use]
    pub fn target_bytes(&self) -> &[u8] {
        self.head.target_bytes()
    }

    /// Whether the target may have `%`, or bytes that no URI has. The question costs no search.
    #[doc(hidden)]
    #[must_use]
    pub fn has_irregular_target(&self) -> bool {
        self.head.has_irregular_target()
    }

    /// All fields in their order, as pairs of name and value, both as bytes, which is cheaper than
    /// [`headers`](Self::headers).
    pub fn header_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.headers()
    }

    /// All fields in their order, as pairs of name and value; [`get`](HeaderFields::get) finds one by its name.
    pub fn headers(&self) -> HeaderFields<'_> {
        HeaderFields::new(self.head.headers())
    }

    /// The whole head as it was received, its last empty line included. The texts and bytes that the other methods
    /// return lie within it.
    #[must_use]
    pub fn head_bytes(&self) -> &[u8] {
        self.head.bytes()
    }

    /// All fields as a map of the `http` crate, which is made for this call.
    #[must_use]
    pub fn header_map(&self) -> HeaderMap {
        let fields = self.head.headers().filter_map(|(name, value)| {
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name, value);
        }
        map
    }

    /// The address of the peer: the other end of the connection, or the one that a trusted PROXY header reports.
    /// [`client`](Self::client) is the client behind proxies.
    #[must_use]
    pub fn peer(&self) -> &Address {
        &self.peer
    }

    /// The client: the one that [`TrustedProxies`](crate::TrustedProxies) among the middleware have established, otherwise
    /// the [peer](Self::peer).
    #[must_use]
    #[inline]
    pub fn client(&self) -> ClientAddress {
        self.named_client().unwrap_or_else(|| ClientAddress::of_peer(&self.peer))
    }

    /// The client, if it is established and not the peer.
    #[inline]
    pub(crate) fn named_client(&self) -> Option<ClientAddress> {
        self.parts.as_ref()?.client
    }

    pub(crate) fn set_client(&mut self, client: ClientAddress) {
        let named = Some(client).filter(|client| *client != ClientAddress::of_peer(&self.peer));
        self.parts.get_or_insert_default().client = named;
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The pattern of the route, as it was given to the [`Router`](crate::Router); `None` without one.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.route.as_ref().map(|route| route.pattern.text())
    }

    /// The value of a parameter of the route, percent-decoded; `None` if the route has no such parameter, or if the
    /// decoded value is not UTF-8.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, value) = self.parameters().find(|(found, _)| *found == name)?;
        tidegate_http_message::percent::decode(value)
    }

    /// The parameters of the route in their order: names, and values as they were sent.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let path = self.head.path();
        self.route.iter().flat_map(move |route| {
            // A path that is not UTF-8 is shorter as text.
            let value = move |&(start, end): &(u16, u16)| path.get(usize::from(start)..usize::from(end));
            let values = route.values.spans().iter().map(move |span| value(span).unwrap_or_default());
            route.pattern.names().zip(values)
        })
    }

    /// The whole body, if it was collected before the call; otherwise nothing.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.body().collected()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Body {
        self.parts.as_ref().map_or(NO_BODY, |parts| &parts.body)
    }

    /// The body, to be read.
    #[must_use]
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.parts.get_or_insert_default().body
    }

    /// The body alone, for one that is read after the request is gone.
    #[must_use]
    pub fn into_body(self) -> Body {
        self.parts.map(|parts| parts.body).unwrap_or_default()
    }

    /// The length of the body: `None` if it is not known before the end.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        match self.head.body() {
            http1::BodyLength::None => Some(0),
            http1::BodyLength::Known(length) => Some(length),
            http1::BodyLength::Chunked | http1::BodyLength::UntilClose => None,
        }
    }

    /// Values that middleware adds to the request, by type.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        self.parts.as_ref().map_or(&NO_EXTENSIONS, |parts| parts.extensions())
    }

    /// The extensions, unless nothing has asked for them before, so that they have nothing but the id.
    pub(crate) fn made_extensions(&self) -> Option<&Extensions> {
        self.parts.as_ref()?.extensions.get()
    }

    /// The same, to be changed.
    #[must_use]
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        let parts = self.parts.get_or_insert_default();
        parts.extensions();
        parts.extensions.get_mut().expect("they are made above")
    }

    /// The id that [`RequestIds`](crate::RequestIds) has given the request. It is among the extensions as well.
    ///
    /// ```
    /// use tidegate::http::{Request, RequestIds, Router};
    ///
    /// let log = |request: Request| {
    ///     println!("{}", request.id().map_or("-", |id| id.as_str()));
    /// };
    /// let router = Router::new().get("/", log).with(RequestIds::new());
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        let parts = self.parts.as_ref()?;
        match parts.extensions.get() {
            Some(extensions) => extensions.get(),
            None => parts.id.as_ref(),
        }
    }

    pub(crate) fn set_id(&mut self, id: RequestId) {
        let parts = self.parts.get_or_insert_default();
        match parts.extensions.get_mut() {
            Some(extensions) => drop(extensions.insert(id)),
            None => parts.id = Some(id),
        }
    }

    /// The facts that the access log wants to have of the exchange.
    #[inline]
    pub(crate) fn note(&self) -> Option<&ExchangeNote> {
        self.parts.as_ref()?.note.as_ref()
    }

    pub(crate) fn set_note(&mut self, note: ExchangeNote) {
        self.parts.get_or_insert_default().note = Some(note);
    }

    /// The state of the connection, if its router [makes](crate::Router::connection_state) one of this type.
    #[must_use]
    pub fn connection_state<T: 'static>(&self) -> Option<Rc<T>> {
        self.parts.as_ref()?.connection_state.clone()?.downcast().ok()
    }

    pub(crate) fn set_connection_state(&mut self, state: AnyState) {
        self.parts.get_or_insert_default().connection_state = Some(state);
    }

    pub(crate) fn set_refusal(&mut self, response: Response) {
        self.parts.get_or_insert_default().refusal = Some(response.into());
    }

    /// Sets the response in place of the function's, for the middleware of the route. Nothing reads the body.
    #[cold]
    pub(crate) fn refuse(&mut self, response: Response) {
        self.set_refusal(response);
        self.set_body(Body::empty());
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.refusal.is_some())
    }

    /// Takes the response in place of the function's, if there is one.
    #[inline]
    pub(crate) fn refusal(&mut self) -> Option<Response> {
        self.parts.as_mut()?.refusal.take().map(|refusal| *refusal)
    }

    pub(crate) fn take_refusal(&mut self) -> Response {
        self.refusal().unwrap_or_else(|| Response::of_error(Status::NOT_FOUND))
    }

    pub(crate) fn set_collected_body_bytes_max(&mut self, bytes_max: usize) {
        self.parts.get_or_insert_default().collected_body_bytes_max = Some(bytes_max);
    }

    pub(crate) fn collected_body_bytes_max(&self) -> usize {
        self.parts.as_ref().and_then(|parts| parts.collected_body_bytes_max).unwrap_or(COLLECTED_BYTES_MAX)
    }

    /// Changes the fields of the request, as the functions and middleware behind see them, and as a proxy passes them on:
    /// those whose names `keeps` leaves out go, and `further` ones come at the end. Fields that the codec reads, such as
    /// `Host` and `Content-Length`, are always kept.
    ///
    /// The head is copied. Logs and other middleware in front keep that of the client.
    ///
    /// # Errors
    /// [`InvalidField`] if a field cannot be sent, is one that the codec reads or that the client's `Connection` names, or is
    /// too long: a head stays below 64 KiB. The request is as it was then.
    ///
    /// ```
    /// use tidegate::http::{Next, Request, Response, Router};
    ///
    /// /// Names the user for the functions behind. The client cannot.
    /// async fn name_user(mut request: Request, next: Next) -> Response {
    ///     let changed = request.edit_headers(|name| !name.eq_ignore_ascii_case("x-user"), &[("X-User", b"ebb")]);
    ///     changed.expect("a valid field");
    ///     next.run(request).await
    /// }
    ///
    /// let router = Router::new().get("/", |request: Request| request.header("x-user").map(<[u8]>::to_vec)).wrap(name_user);
    /// # drop(router);
    /// ```
    pub fn edit_headers(
        &mut self,
        keeps: impl Fn(&str) -> bool,
        further: &[(&str, &[u8])],
    ) -> Result<(), InvalidField> {
        let mut checked = Fields::new();
        for (name, value) in further {
            if is_of_connection(name.as_bytes()) {
                return Err(InvalidField::Reserved);
            }
            // A proxy would not pass it on (RFC 9110 §7.6.1), and its upstream would not know of it.
            if self.has_token_like("connection", name.as_bytes()) {
                return Err(InvalidField::Reserved);
            }
            checked.push(name, value)?;
        }
        let bytes = self.head.bytes();
        let line_end = bytes.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut text = Vec::with_capacity(bytes.len() + 128);
        text.extend_from_slice(&bytes[..line_end]);
        let is_kept = |name: &[u8]| is_of_connection(name) || keeps(std::str::from_utf8(name).unwrap_or_default());
        let kept = self.head.headers().filter(|(name, _)| is_kept(name));
        for (name, value) in kept.chain(further.iter().map(|(name, value)| (name.as_bytes(), *value))) {
            for piece in [name, b": ", value, b"\r\n"] {
                text.extend_from_slice(piece);
            }
        }
        text.extend_from_slice(b"\r\n");
        self.head = self.head.with_other_fields(Pool::new().copy(&text)).map_err(|_| InvalidField::Value)?;
        Ok(())
    }

    #[doc(hidden)]
    #[must_use]
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// Undoes a content coding of the body: of the received part, or of later parts as they come.
    #[cfg(feature = "compress")]
    pub(crate) fn decode_body(&mut self, decode: Box<dyn Decode>) -> Result<(), BodyError> {
        let decoding = BodyDecoder::new(decode);
        let parts = self.parts.get_or_insert_default();
        parts.names_coding = true;
        match parts.body.kind_mut() {
            BodyKind::Received(received) if received.decoder.is_none() => {
                received.length = None;
                received.decoder = Some(Box::new(decoding));
            }
            BodyKind::Whole(body) if !body.is_empty() => {
                // It was collected, so its length has a limit, which is kept.
                let bytes_max = COLLECTED_BYTES_MAX.max(body.memory().len());
                parts.body = decoding.decode_all(body.memory(), bytes_max)?.into();
            }
            _ => parts.decoding = Some(Box::new(decoding)),
        }
        Ok(())
    }

    /// If the content coding of the body is undone, the head names it no longer: a function that passes the request on would
    /// announce another body than it sends.
    pub(crate) fn hide_coding(&mut self) {
        if let Some(parts) = &mut self.parts
            && std::mem::take(&mut parts.names_coding)
        {
            if let http1::BodyLength::Known(length) = self.head.body() {
                parts.coded_length = Some(length);
            }
            self.head = self.head.with_decoded_body();
        }
    }

    /// The length of the body as the client sends it, if the client has announced one.
    pub(crate) fn announced_length(&self) -> Option<u64> {
        self.parts.as_ref().and_then(|parts| parts.coded_length).or_else(|| self.content_length())
    }

    /// Whether a content coding is to be undone when the body comes.
    pub(crate) fn has_decoding(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.decoding.is_some())
    }

    /// Takes over the extensions and the state of the connection of another request.
    pub(crate) fn copy_parts_of(&mut self, other: &Self) {
        let Some(parts) = &other.parts else { return };
        let copied = Parts { connection_state: parts.connection_state.clone(), ..parts.values() };
        self.parts = Some(Box::new(copied));
    }

    /// Takes over the values that middleware has added to another request.
    pub(crate) fn copy_values_of(&mut self, other: &Self) {
        let parts = other.parts.as_ref().filter(|parts| parts.has_values());
        self.parts = parts.map(|parts| Box::new(parts.values()));
    }

    /// The same head as that of another request, whose memory it shares then.
    pub(crate) fn share_head_of(&mut self, other: &Self) {
        self.head = other.head.clone();
    }

    /// Whether the head lies in the same memory as that of another request.
    pub(crate) fn has_head_of(&self, other: &Self) -> bool {
        let (head, other) = (self.head.bytes(), other.head.bytes());
        std::ptr::eq(head, other)
    }

    pub(crate) fn take_decoder(&mut self) -> Option<Box<BodyDecoder>> {
        self.parts.as_mut()?.decoding.take()
    }

    pub(crate) fn route_parts(&self) -> Option<Route> {
        self.route.clone()
    }

    pub(crate) fn take_body(&mut self) -> Body {
        self.parts.as_mut().map_or_else(Body::empty, |parts| std::mem::take(&mut parts.body))
    }

    pub(crate) fn set_body(&mut self, body: Body) {
        *self.body_mut() = body;
    }

    /// The same request, whose head no longer keeps the memory of the loop that it was received into.
    pub(crate) fn detach(mut self) -> Self {
        self.detach_head();
        self
    }

    pub(crate) fn detach_head(&mut self) {
        self.head = self.head.clone().detach();
    }
}

impl Request {
    /// Whether the client wants to continue with this protocol on the same connection (RFC 9110 §7.8), or on an HTTP/2
    /// stream (RFC 8441). Case does not matter.
    #[must_use]
    pub fn asks_for_upgrade(&self, protocol: &str) -> bool {
        self.asks_for_any_upgrade() && self.has_token("upgrade", protocol)
    }

    /// The protocol of an HTTP/2 extended CONNECT (RFC 8441), such as `websocket`. A [`Router`](crate::Router) handles
    /// such a request like a GET, and a response that [upgrades](crate::Response::upgrade) is sent as 200. Other
    /// responses of the class 2xx would accept the protocol, so they are sent as 501 (Not Implemented).
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.head.protocol()
    }

    /// Whether the client wants to continue with another protocol on the same connection or stream.
    #[must_use]
    pub fn asks_for_any_upgrade(&self) -> bool {
        self.protocol().is_some() || self.asks_by_field()
    }

    /// The protocols in the fields `Upgrade`.
    #[cfg(feature = "connect-udp")]
    pub(crate) fn upgrade_tokens(&self) -> impl Iterator<Item = &str> {
        let fields = self.head().headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"upgrade"));
        let tokens = fields.flat_map(|(_, list)| list.split(|&byte| byte == b','));
        tokens.filter_map(|token| str::from_utf8(token.trim_ascii()).ok()).filter(|token| !token.is_empty())
    }

    fn asks_by_field(&self) -> bool {
        self.head().version() == http1::Version::Http11
            && self.header("upgrade").is_some()
            && self.has_token("connection", "upgrade")
    }

    /// Whether the fields of this name, as one list, have an element that servers may read as this name of a field.
    fn has_token_like(&self, name: &str, field: &[u8]) -> bool {
        let lists = self.head().headers().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        lists.flat_map(|(_, list)| list.split(|&byte| byte == b',')).any(|found| is_same(field, found.trim_ascii()))
    }

    /// Whether the fields of this name, as one list, have this element.
    fn has_token(&self, name: &str, token: &str) -> bool {
        let fields = self.head().headers().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        fields
            .flat_map(|(_, value)| value.split(|&byte| byte == b','))
            .any(|found| found.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("head", &self.head).field("route", &self.route()).finish_non_exhaustive()
    }
}

static NO_EXTENSIONS: LazyLock<Extensions> = LazyLock::new(Extensions::new);

/// The address of a peer that is gone.
pub(crate) fn unknown_peer() -> Address {
    Address::from(std::net::SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// The bytes that a collected body may have when middleware of a nested router decodes it.
const COLLECTED_BYTES_MAX: usize = 1024 * 1024;

/// The state of a connection, without its type.
pub(crate) type AnyState = Rc<dyn Any>;

/// The state of a connection whose requests have a handler each: the streams of a session share it.
pub(crate) type SharedState = Rc<OnceCell<AnyState>>;

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Instant, SystemTime};

    use tidegate_buffer::{Outbound, Pool};
    use tidegate_codec::{Codec, Input, Output, Step, Time};

    use super::*;

    /// A request as the codec yields it, of the client 192.0.2.1 for the host `sea`.
    pub(crate) fn request(method: &str, target: &str, lines: &str) -> Request {
        request_to("sea", method, target, lines)
    }

    pub(crate) fn request_to(host: &str, method: &str, target: &str, lines: &str) -> Request {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut input, mut queue) = (Input::new(), Outbound::new(&pool));
        let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
        input.append(pool.copy(text.as_bytes()), &pool);
        let mut server = http1::Server::default();
        match server.decode(&mut input, &mut Output::new(&mut queue, &pool, &time)) {
            Ok(Step::Message(http1::Incoming::Head(head))) => {
                let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 50_000));
                Request::new(head.detach(), peer.into(), false, None)
            }
            other => panic!("{other:?}"),
        }
    }
}
