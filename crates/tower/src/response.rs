//! From the response of a service to ours.

use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
#[cfg(feature = "upgrade")]
use http::header::SEC_WEBSOCKET_ACCEPT;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Frame;
use tidegate_engine::task;
use tidegate_http::{Body, BodyWriter, ContentType, Fields, IntoResponse, InvalidField, Response};

use crate::request_body::BodyRegistration;
#[cfg(feature = "upgrade")]
use crate::upgrade::Offer;

/// A place that has room for a future or a body, whether there is one or not.
pub(crate) type Slot<T> = Pin<Box<Option<T>>>;

/// The parts of the request that a service's response needs.
pub(crate) struct Exchange {
    is_head: bool,
    #[cfg_attr(not(feature = "upgrade"), expect(dead_code, reason = "only a tunnel needs it"))]
    is_connect: bool,
    /// It is an HTTP/2 extended CONNECT.
    #[cfg_attr(not(feature = "upgrade"), expect(dead_code, reason = "only a tunnel needs it"))]
    is_extended: bool,
    /// The body of the request is there until that of the response is sent, which may be the same.
    pub(crate) registered: Option<BodyRegistration>,
    /// The connection, for a service that upgrades it.
    #[cfg(feature = "upgrade")]
    pub(crate) offer: Option<Box<Offer>>,
}

impl Exchange {
    pub(crate) fn new(method: &Method, is_extended: bool) -> Self {
        Self {
            is_head: method == Method::HEAD,
            is_connect: method == Method::CONNECT,
            is_extended,
            registered: None,
            #[cfg(feature = "upgrade")]
            offer: None,
        }
    }

    /// Reads the pieces of the request body that the service wants on another thread.
    pub(crate) fn serve_reads(&self, cx: &mut Context<'_>) {
        if let Some(registered) = &self.registered {
            registered.serve(cx);
        }
    }

    fn may_upgrade(&self) -> bool {
        #[cfg(feature = "upgrade")]
        return self.offer.is_some() && !self.is_connect;
        #[cfg(not(feature = "upgrade"))]
        false
    }

    /// Takes the offer if a response with this status accepts it.
    #[cfg(feature = "upgrade")]
    fn accepted(&mut self, status: StatusCode) -> Option<Box<Offer>> {
        let mut offer = self.offer.take()?;
        let is_accepted = match status {
            StatusCode::SWITCHING_PROTOCOLS => !self.is_connect,
            status => self.is_connect && status.is_success(),
        };
        let may_be_chance = self.is_extended && self.is_connect;
        (is_accepted && (!may_be_chance || offer.is_kept())).then_some(offer)
    }
}

/// Makes our responses, on one loop.
pub(crate) struct Responses<B> {
    /// The place of a body whose first frame is polled.
    body: Cell<Option<Slot<B>>>,
    /// The memory of the last response's fields, for those of the next request.
    fields: Cell<Option<HeaderMap>>,
}

impl<B> Default for Responses<B> {
    fn default() -> Self {
        Self { body: Cell::new(None), fields: Cell::default() }
    }
}

impl<B> Responses<B>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    /// An empty map.
    pub(crate) fn take_fields(&self) -> HeaderMap {
        self.fields.take().unwrap_or_default()
    }

    /// Our response. If the body is complete with its first frame, or ends with trailers behind it, it is sent with the
    /// head; otherwise frame by frame.
    pub(crate) fn convert(&self, response: http::Response<B>, exchange: Exchange, cx: &mut Context<'_>) -> Response {
        #[cfg_attr(not(feature = "upgrade"), expect(unused_mut, reason = "only an upgrade removes a field"))]
        let (mut parts, body) = response.into_parts();
        #[cfg(feature = "upgrade")]
        if exchange.is_extended {
            // The answer to a key that the client has not sent (RFC 8441 §5).
            parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
        }
        let mut response = Response::status(parts.status);
        let (content_type, closes) = match copy_fields(&parts.headers, &mut response) {
            Ok(facts) => facts,
            Err(error) => return failed(error),
        };
        if let Some(content_type) = content_type {
            response = response.content_type(content_type);
        }
        if closes {
            response = response.close();
        }
        // Most bodies know their length.
        let known = body.size_hint().exact();
        let stated = if exchange.is_head || known.is_none() { stated_length(&parts.headers) } else { None };
        self.keep_fields(parts.headers);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS && !exchange.may_upgrade() {
            return failed("it upgrades a connection whose client does not ask for it");
        }
        #[cfg(feature = "upgrade")]
        if exchange.offer.is_some() {
            let mut exchange = exchange;
            return match exchange.accepted(parts.status) {
                // Our codec sends this status as 200.
                Some(offer) if exchange.is_extended => {
                    offer.accept(response.with_status(StatusCode::SWITCHING_PROTOCOLS))
                }
                Some(offer) => offer.accept(response),
                None => self.with_body(response, body, (known, stated), exchange, cx),
            };
        }
        self.with_body(response, body, (known, stated), exchange, cx)
    }

    fn with_body(
        &self,
        response: Response,
        body: B,
        (known, stated): (Option<u64>, Option<u64>),
        exchange: Exchange,
        cx: &mut Context<'_>,
    ) -> Response {
        // The length of the response to HEAD is known from its field alone.
        if body.is_end_stream() {
            return match stated.filter(|_| exchange.is_head) {
                Some(length) => response.body(Body::produce(async |_| Ok(())).with_length(length)),
                None => response,
            };
        }
        let mut slot = self.body.take().unwrap_or_else(|| Box::pin(None));
        slot.as_mut().set(Some(body));
        let mut ready = [None, None];
        match poll_frame(&mut slot, cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if has_ended(&slot) => {
                    self.keep_slot(slot);
                    return response.body(bytes(data));
                }
                Ok(data) => {
                    if let Some(body) = whole_body(data, (&mut slot, &mut ready), known.or(stated), cx) {
                        self.keep_slot(slot);
                        return body.map_or_else(failed, |body| response.body(body));
                    }
                }
                Err(trailers) => ready[0] = Some(Ok(trailers)),
            },
            Poll::Ready(Some(Err(error))) => return failed(error),
            Poll::Ready(None) => {
                self.keep_slot(slot);
                return response;
            }
            // The head does not wait for the body.
            Poll::Pending => {}
        }
        let produced = Body::produce(async move |writer| {
            let mut sending = pin!(send(ready, slot, writer));
            poll_fn(|cx| {
                exchange.serve_reads(cx);
                sending.as_mut().poll(cx)
            })
            .await
        });
        response.body(with_length(produced, known.or(stated)))
    }

    fn keep_slot(&self, mut slot: Slot<B>) {
        slot.as_mut().set(None);
        self.body.set(Some(slot));
    }

    fn keep_fields(&self, mut fields: HeaderMap) {
        if fields.capacity() <= KEPT_FIELDS_MAX {
            fields.clear();
            self.fields.set(Some(fields));
        }
    }
}

/// Copies the fields that the server does not write by itself. Returns a media type that needs no field, and whether the
/// connection closes after the response.
fn copy_fields(fields: &HeaderMap, response: &mut Response) -> Result<(Option<ContentType>, bool), InvalidField> {
    let (mut content_type, mut closes) = (None, false);
    for (name, value) in fields {
        if name == CONTENT_TYPE && content_type.is_none() {
            content_type = well_known(value);
            if content_type.is_some() {
                continue;
            }
        }
        if name == CONNECTION {
            closes |= value.as_bytes().eq_ignore_ascii_case(b"close");
        } else if name != CONTENT_LENGTH && name != TRANSFER_ENCODING {
            response.append(name, value)?;
        }
    }
    Ok((content_type, closes))
}

/// The length of the body, by its field.
fn stated_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The most common media types need no field of their own.
fn well_known(value: &HeaderValue) -> Option<ContentType> {
    WELL_KNOWN.into_iter().find(|known| known.as_str().as_bytes() == value.as_bytes())
}

const WELL_KNOWN: [ContentType; 6] = [
    ContentType::from_static("application/grpc"),
    ContentType::JSON,
    ContentType::TEXT,
    ContentType::from_static("text/plain; charset=utf-8"),
    ContentType::HTML,
    ContentType::BYTES,
];

/// The response of a service that has failed; the error is logged.
#[cold]
pub(crate) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Response {
    tracing::error!("a service failed: {}", error.into());
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn with_length(body: Body, length: Option<u64>) -> Body {
    match length {
        Some(length) => body.with_length(length),
        None => body,
    }
}

/// The body after its first data, if all of it is there, as that of a gRPC call with one message is; otherwise `ready` has
/// the frames that are there.
#[inline]
fn whole_body<B>(
    data: B::Data,
    (slot, ready): (&mut Slot<B>, &mut [Option<FrameOf<B>>; 2]),
    length: Option<u64>,
    cx: &mut Context<'_>,
) -> Option<Result<Body, InvalidField>>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    match poll_frame(slot, cx) {
        Poll::Ready(Some(Ok(next))) if next.is_trailers() => {
            let fields = next.into_trailers().map_or_else(|_| Ok(Fields::new()), |map| trailer_fields(&map));
            return Some(fields.map(|fields| with_length(Body::with_trailers(bytes(data), fields), length)));
        }
        Poll::Ready(None) if length.is_none_or(|length| length == data.remaining() as u64) => {
            return Some(Ok(bytes(data).into()));
        }
        // It is shorter than it says, which the peer has to see. It is not polled behind its end.
        Poll::Ready(None) => slot.as_mut().set(None),
        Poll::Ready(next) => ready[1] = next,
        Poll::Pending => {}
    }
    ready[0] = Some(Ok(Frame::data(data)));
    None
}

/// Sends a body frame by frame.
async fn send<B>(
    mut ready: [Option<FrameOf<B>>; 2],
    mut slot: Slot<B>,
    writer: BodyWriter,
) -> Result<(), Box<dyn Error>>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    loop {
        // A body that compresses may always have a frame, and leave so few bytes that they always have room.
        task::yield_if_long().await;
        let next = match ready.iter_mut().find_map(Option::take) {
            Some(frame) => Some(frame),
            None => poll_fn(|cx| poll_frame(&mut slot, cx)).await,
        };
        let Some(frame) = next else { return Ok(()) };
        match frame.map_err(|error| -> Box<dyn Error> { error.into() })?.into_data() {
            Ok(data) => writer.write(bytes(data)).await?,
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                writer.trailers(trailer_fields(&trailers)?)?;
                return Ok(());
            }
        }
    }
}

type FrameOf<B> = Result<Frame<<B as http_body::Body>::Data>, <B as http_body::Body>::Error>;

fn poll_frame<B: http_body::Body>(slot: &mut Slot<B>, cx: &mut Context<'_>) -> Poll<Option<FrameOf<B>>> {
    match slot.as_mut().as_pin_mut() {
        Some(body) => body.poll_frame(cx),
        None => Poll::Ready(None),
    }
}

fn has_ended<B: http_body::Body>(slot: &Slot<B>) -> bool {
    slot.as_ref().as_pin_ref().is_none_or(|body| body.is_end_stream())
}

/// Without a copy if the data is `Bytes` already.
fn bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

fn trailer_fields(map: &HeaderMap) -> Result<Fields, InvalidField> {
    // Those of most gRPC calls need no memory.
    if map.len() == 1
        && let Some(status) = map.get("grpc-status")
        && status == "0"
    {
        return Ok(const { Fields::from_static("grpc-status: 0\r\n") });
    }
    let mut fields = Fields::new();
    for (name, value) in map {
        fields.push(name.as_str(), value)?;
    }
    Ok(fields)
}

/// A map with more fields than this is not kept.
const KEPT_FIELDS_MAX: usize = 64;
