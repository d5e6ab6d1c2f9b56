//! WebSockets of `tidegate serve`: their handshakes, and `/ws`, which sends every message back.

use std::sync::{Arc, LazyLock};

use tidegate::codec::DynOver;
use tidegate::http1::{InvalidField, Outgoing, RequestHead, Response, Status, Version};
use tidegate::websocket::handshake::{HandshakeError, Offer, OfferResponse, VERSION};
use tidegate::websocket::{Config, Deflate, Message, WebSocket};
use tidegate::{Context, Handler, Outcome};

use crate::metrics::{record, refuse};
use crate::site_codec::SiteCodec;

/// Sends every message back.
struct Echo;

impl Handler<DynOver<WebSocket>> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        match cx.send(message) {
            Ok(_) => Outcome::Continue,
            Err(error) => Outcome::fail(error),
        }
    }
}

/// Accepts a handshake with an echo, or refuses the request. Scripts of all sites may connect, since nothing here
/// belongs to a user.
#[inline(never)]
pub(crate) fn echo<C: SiteCodec>(head: &RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
    accept(head, cx, &CONFIG, |_| Ok(Echo))
}

/// Accepts a handshake with the handler that `make` returns, or refuses the request, with the status that it returns or
/// with that of the handshake.
pub(crate) fn accept<C: SiteCodec, H: Handler<DynOver<WebSocket>>>(
    head: &RequestHead,
    cx: &mut Context<'_, C>,
    config: &Arc<Config>,
    make: impl FnOnce(&Offer) -> Result<H, Status>,
) -> Outcome<C> {
    let offer = match offer(head) {
        Ok(offer) => offer,
        Err(response) => return refuse(head, response, cx),
    };
    let handler = match make(&offer) {
        Ok(handler) => handler,
        Err(status) => return refuse(head, Response::new(status), cx),
    };
    // Over HTTP/2 the response has another status (RFC 8441 §5).
    record(head, if head.protocol().is_some() { Status::OK } else { Status::SWITCHING_PROTOCOLS }, cx);
    let accepted = offer.accept(config, None);
    match switching_protocols(&accepted).map(|response| cx.send(Outgoing::Response(response))) {
        Ok(Ok(_)) => Outcome::switch(move |codec: C| (codec.filters().stack(accepted.codec()), handler)),
        Ok(Err(error)) => Outcome::fail(error),
        Err(error) => Outcome::fail(error),
    }
}

/// The offer of a handshake, or the response that refuses it. This and the next function are compiled once, and not for
/// each pipeline.
#[inline(never)]
fn offer(head: &RequestHead) -> Result<Offer, Response> {
    let fields = head.headers().filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, value)));
    let offer = match head.protocol() {
        None => Offer::of_upgrade(head.method_text(), fields),
        Some("websocket") => Offer::of_extended_connect(fields),
        Some(_) => return Err(Response::new(Status::NOT_IMPLEMENTED)),
    };
    match offer {
        Ok(_) if head.version() == Version::Http10 => Err(refusal(HandshakeError::Upgrade)),
        // RFC 6455 §4.1.
        Ok(_) if head.has_body() => Err(Response::new(Status::BAD_REQUEST)),
        Ok(offer) => Ok(offer),
        Err(error) => Err(refusal(error)),
    }
}

#[inline(never)]
fn switching_protocols(accepted: &OfferResponse) -> Result<Response, InvalidField> {
    let response = Response::new(Status::SWITCHING_PROTOCOLS).field("Upgrade", "websocket")?;
    accepted.fields().try_fold(response, |response, (name, value)| response.field(name, value))
}

fn refusal(error: HandshakeError) -> Response {
    let status = match error {
        HandshakeError::Method => Status::METHOD_NOT_ALLOWED,
        HandshakeError::Version | HandshakeError::Upgrade => Status::UPGRADE_REQUIRED,
        _ => Status::BAD_REQUEST,
    };
    let response = Response::new(status).field("Upgrade", "websocket");
    let response = response.and_then(|response| response.field("Sec-WebSocket-Version", VERSION));
    response.unwrap_or_else(|_| Response::new(status))
}

/// Messages up to 64 MiB, and compression where the client offers it.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let mut config = Config::default();
    config.message_bytes_max = 64 * 1024 * 1024;
    config.deflate = Some(Deflate::default());
    Arc::new(config)
});
