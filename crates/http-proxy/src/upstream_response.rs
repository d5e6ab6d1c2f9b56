//! `UpstreamResponse`: the response of an upstream becomes that to the client, or a tunnel.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_buffer::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::ChannelError;
#[cfg(feature = "connect-udp")]
use tidegate_http::gateway::CapsuleRelayTunnel;
use tidegate_http::gateway::{self, PipelineSlot};
use tidegate_http::{Request, Response, StatusCode, TemplateValues, Version};
use tidegate_http_message::{Body, Data, Upgrade};
use tidegate_http1::client::Incoming;
use tidegate_http1::{BodyLength, Fields, Method, ResponseHead, Status};
#[cfg(feature = "connect-udp")]
use tidegate_http3::CapsuleRelay;

use super::cancellations::Admission;
use super::connection::Connection;
#[cfg(feature = "connect-udp")]
use super::counts::TunnelSide;
use super::download::Download;
use super::error::Failure;
use super::fields;
use super::lease::Lease;
use super::options::Options;
use super::pool::Pool;
use super::request_head::ForwardPlan;
use super::upload::Upload;
use super::upstreams::Upstream;
use super::websocket::Handshake;
use tidegate_l4::Tunnel;

/// A response head, and the exchange that has brought it.
pub(super) struct UpstreamResponse {
    pub(super) head: ResponseHead,
    pub(super) connection: Box<dyn Connection>,
    pub(super) lease: Lease,
    /// The answer to an HTTP/1.1 client's key, if the upstream has got an extended CONNECT.
    pub(super) handshake_answer: Option<String>,
}

/// The client's side of the exchange.
pub(super) struct ClientSide<'a> {
    pub(super) request: &'a Request,
    pub(super) plan: &'a ForwardPlan,
    pub(super) options: &'a Rc<Options>,
    /// The place of the request among others of its client.
    pub(super) place: Option<&'a PipelineSlot>,
    pub(super) upload: Upload,
    pub(super) admission: Admission,
    /// The pool that the connection returns to.
    pub(super) pool: &'a Rc<Pool>,
    pub(super) tunnel_idle_timeout: Duration,
}

impl UpstreamResponse {
    /// The response to the client.
    pub(super) fn into_response(self, mut client: ClientSide<'_>) -> Response {
        let (status, plan) = (self.head.status(), client.plan);
        if matches!(status.code(), 502..=504) {
            self.lease.fail();
        }
        let is_connect = plan.is_connect(client.request.head());
        let is_extended = plan.upgrade.is_some() && self.connection.is_stream();
        let is_success = (200..300).contains(&status.code());
        if status == Status::SWITCHING_PROTOCOLS || ((is_connect || is_extended) && is_success) {
            client.admission.complete();
            return self.tunnel(&client);
        }
        let of_client = (client.request, &**client.options, plan);
        let mut fields = response_fields(&self.head, &self.lease.upstream, of_client);
        let has_cookie = add_sticky(&mut fields, &client, &self.lease.upstream);
        let mut response = gateway::forwarded(Response::with(status)).fields(fields);
        if has_cookie {
            response = gateway::with_cookie(response);
        }
        if client.upload.awaits_continue() {
            // The client keeps its body, and the codec closes the connection.
            response = response.close();
            client.upload.give_up();
        }
        let Self { head, connection, lease, .. } = self;
        let ClientSide { request, place, upload, admission, .. } = client;
        let (pool, options) = (client.pool.clone(), client.options.clone());
        let download = Download { connection, upload, lease, pool, options, admission };
        if head.has_body() {
            pass_body_on(response, &head, download, place)
        } else {
            without_body(response, &head, download, request)
        }
    }

    /// Receives the response and drops it, so that the connection may serve another request.
    pub(super) async fn discard(self, upload: Upload, admission: Admission, pool: &Rc<Pool>, options: &Rc<Options>) {
        let Self { head, connection, lease, .. } = self;
        if matches!(head.status().code(), 502..=504) {
            lease.fail();
        }
        let (pool, options) = (pool.clone(), options.clone());
        let download = Download { connection, upload, lease, pool, options, admission };
        if head.has_body() {
            download.discard().await;
        } else if download.upload.is_done() {
            download.finish();
        }
    }

    /// The response that switches to another protocol, which goes through the proxy as bytes.
    fn tunnel(self, client: &ClientSide<'_>) -> Response {
        let Self { head, connection, lease, handshake_answer } = self;
        let (plan, idle_timeout) = (client.plan, client.tunnel_idle_timeout);
        let mut fields = response_fields(&head, &lease.upstream, (client.request, client.options, plan));
        add_sticky(&mut fields, client, &lease.upstream);
        if let Some(answer) = handshake_answer {
            fields.remove("sec-websocket-accept");
            Handshake::add_answer(&mut fields, &answer);
        }
        let mut status = head.status();
        if let Some(protocol) = plan.upgrade.as_ref().filter(|_| connection.is_stream()) {
            // A 2xx accepts there; towards the client's side the response is a switch (RFC 8441 §5).
            status = Status::SWITCHING_PROTOCOLS;
            fields::push(&mut fields, b"Upgrade", protocol.as_bytes());
        } else if status == Status::SWITCHING_PROTOCOLS {
            let protocol = head.header("upgrade").unwrap_or_default();
            let is_asked = plan.upgrade.as_ref().is_some_and(|asked| protocol.eq_ignore_ascii_case(asked.as_bytes()));
            let is_answered = plan.handshake.as_ref().is_none_or(|handshake| handshake.is_accepted_by(&head));
            if !is_asked || !is_answered {
                lease.fail();
                return Failure::WrongProtocol.response();
            }
            fields::push(&mut fields, b"Upgrade", protocol);
        }
        lease.succeed();
        let has_capsules = plan.upgrade.as_deref().is_some_and(Handshake::has_capsules);
        let may_have_datagrams = lease.upstream.is_http3 || client.request.version() == Version::HTTP_3;
        let upgrade = match has_capsules && may_have_datagrams {
            true => join_capsules(connection, lease, idle_timeout),
            false => join_bytes(connection, lease, idle_timeout),
        };
        match upgrade {
            Ok(upgrade) => Response::with(status).fields(fields).with_upgrade(upgrade),
            Err(error) => Failure::Closed(Some(error)).response(),
        }
    }
}

/// Both sides of a tunnel, as bytes.
fn join_bytes(connection: Box<dyn Connection>, lease: Lease, idle_timeout: Duration) -> Result<Upgrade, ChannelError> {
    let upstream = connection.into_tunnel()?;
    Ok(Upgrade::channel(Raw, move |channel| async move {
        let joined = Tunnel::new(channel).join(upstream, idle_timeout).await;
        drop(lease);
        joined
    }))
}

/// Both sides of a tunnel of capsules, of which one or both may have datagrams of QUIC.
#[cfg(feature = "connect-udp")]
fn join_capsules(
    connection: Box<dyn Connection>,
    lease: Lease,
    idle_timeout: Duration,
) -> Result<Upgrade, ChannelError> {
    let count = |to: TunnelSide| {
        let upstream = lease.upstream.clone();
        move |reason| upstream.counts.on_dropped_datagram(to, reason)
    };
    let upstream = connection.into_capsules()?.on_drop(count(TunnelSide::Upstream));
    let on_drop = count(TunnelSide::Client);
    Ok(Upgrade::channel(CapsuleRelay::default(), move |channel| async move {
        let joined = CapsuleRelayTunnel::new(channel).on_drop(on_drop).join(upstream, idle_timeout).await;
        drop(lease);
        joined
    }))
}

/// In a build without datagrams both sides have capsules alone.
#[cfg(not(feature = "connect-udp"))]
fn join_capsules(
    connection: Box<dyn Connection>,
    lease: Lease,
    idle_timeout: Duration,
) -> Result<Upgrade, ChannelError> {
    join_bytes(connection, lease, idle_timeout)
}

/// A response that has no body.
fn without_body(mut response: Response, head: &ResponseHead, mut download: Download, request: &Request) -> Response {
    if request.head().method() == Method::Head && !matches!(head.status().code(), 204 | 304) {
        // The head that a GET would get: a length only if the upstream has told one (RFC 9110 §8.6).
        let body = Body::produce(async |_| Ok(()));
        response = response.body(match length_of(head) {
            Some(length) => body.with_length(length),
            None => body,
        });
    }
    if download.upload.is_done() {
        download.finish();
    } else {
        // The codec of the client's side skips the rest of the request, or closes.
        download.admission.complete();
        download.lease.complete();
    }
    response
}

/// A response whose body goes on to the client: at once if all of it is there.
fn pass_body_on(
    response: Response,
    head: &ResponseHead,
    mut download: Download,
    place: Option<&PipelineSlot>,
) -> Response {
    let BodyLength::Known(length) = head.body() else {
        return response.body(Body::produce(move |writer| download.pass_on(writer, 0)));
    };
    let Some(data) = first_data(&mut download, length, place) else {
        let body = Body::produce(move |writer| download.pass_on(writer, 0));
        return response.body(body.with_length(length));
    };
    if data.len() as u64 == length {
        let cx = &mut Context::from_waker(Waker::noop());
        match download.connection.poll_recv(cx) {
            Poll::Ready(Ok(Some(Incoming::End))) => {
                download.finish();
                return response.body(Data::from(data));
            }
            // An HTTP/2 or HTTP/3 upstream may send trailers, or the end, later.
            Poll::Ready(Ok(Some(Incoming::Trailers(trailers)))) => {
                let body = Body::produce(move |writer| async move {
                    writer.push(Data::from(data).fit())?;
                    download.end_with(trailers, writer).await
                });
                return response.body(body.with_length(length));
            }
            Poll::Pending => {}
            Poll::Ready(_) => {
                download.admission.complete();
                download.lease.complete();
                return response.body(Data::from(data));
            }
        }
    }
    let body = Body::produce(move |writer| async move {
        let ahead = data.len();
        writer.push(Data::from(data).fit())?;
        download.pass_on(writer, ahead).await
    });
    response.body(body.with_length(length))
}

/// The first piece of a short body, which has usually come with its head.
fn first_data(download: &mut Download, length: u64, place: Option<&PipelineSlot>) -> Option<Slice> {
    let is_short = || place.is_none_or(|place| place.keep(usize::try_from(length).unwrap_or(usize::MAX)));
    if !download.upload.is_done() || !is_short() {
        return None;
    }
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(Some(Incoming::Data(data)))) = download.connection.poll_recv(cx) else { return None };
    // One that waits must not keep the loop's memory.
    Some(if place.is_none_or(PipelineSlot::is_in_turn) { data } else { data.detach() })
}

/// The fields of the response to the client.
fn response_fields(
    head: &ResponseHead,
    upstream: &Upstream,
    (request, options, plan): (&Request, &Options, &ForwardPlan),
) -> Fields {
    let is_dropped = |name: &[u8]| plan.handshake.is_some() && Handshake::has(name);
    let mut fields = fields::passed_on_of_response(head, &options.response_edits, is_dropped);
    if head.status() == Status::UPGRADE_REQUIRED {
        // The response names the protocol that the client has to switch to (RFC 9110 §15.5.22).
        for (name, value) in head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"upgrade")) {
            fields::push(&mut fields, name, value);
        }
    }
    fields::add_edits(&mut fields, &options.response_edits, || {
        let values = TemplateValues::new(request).trusting_networks(&options.forwarding.trusted);
        values.with_upstream(address_of(upstream)).with_status(status_code(head.status()))
    });
    fields
}

/// Adds the cookie for the upstream, if there is one that the client does not have. Returns whether it was added.
fn add_sticky(fields: &mut Fields, client: &ClientSide<'_>, upstream: &Upstream) -> bool {
    let sticky = client.options.sticky.as_ref();
    sticky.is_some_and(|sticky| sticky.add_to(fields, client.request, upstream.hash))
}

fn status_code(status: Status) -> StatusCode {
    StatusCode::from_u16(status.code()).unwrap_or_default()
}

/// The `Content-Length` of the response to a HEAD.
fn length_of(head: &ResponseHead) -> Option<u64> {
    std::str::from_utf8(head.header("content-length")?).ok()?.parse().ok()
}

/// The address of an upstream, without the scheme.
fn address_of(upstream: &Upstream) -> &str {
    upstream.name.split_once("://").map_or(&upstream.name, |(_, address)| address)
}
