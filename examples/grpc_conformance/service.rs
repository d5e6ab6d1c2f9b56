//! `ConformanceService`: calls that answer as their requests define, and return themselves as the server has seen them.
//!
//! Every call is a stream on the wire, also one with a single response: so this service sends trailers with success, for
//! which the unary calls of tonic have no way.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;
use std::vec;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::codegen::{Body, BoxFuture, Context, Poll, Service, StdError, http};
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::messages::{
    Any, BidiStreamRequest, Error, Header, Payload, PayloadResponse, RequestInfo, RpcStatus, ServerStreamRequest,
    StreamResponseDefinition, UnaryRequest, UnaryResponseDefinition,
};

#[derive(Debug, Clone)]
pub(crate) struct Conformance {
    /// The longest message that is received.
    pub(crate) message_bytes_max: Option<usize>,
}

type Responses = Pin<Box<dyn Stream<Item = Result<PayloadResponse, Status>> + Send>>;

impl<B> Service<http::Request<B>> for Conformance
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path().strip_prefix("/connectrpc.conformance.v1.ConformanceService/");
        match path {
            Some("Unary") => self.answer(Call(|request| single(request, "UnaryRequest", true)), request),
            Some("IdempotentUnary") => {
                self.answer(Call(|request| single(request, "IdempotentUnaryRequest", true)), request)
            }
            Some("ClientStream") => self.answer(Call(|request| single(request, "ClientStreamRequest", false)), request),
            Some("ServerStream") => self.answer(Call(server_stream), request),
            Some("BidiStream") => self.answer(Call(bidi_stream), request),
            _ => Box::pin(async { Ok(Status::unimplemented("there is no such call").into_http()) }),
        }
    }
}

impl Conformance {
    fn answer<B, M, F, R>(
        &self,
        call: Call<F>,
        request: http::Request<B>,
    ) -> BoxFuture<http::Response<tonic::body::Body>, Infallible>
    where
        B: Body + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
        M: Message + Default + 'static,
        F: FnMut(Request<Streaming<M>>) -> R + Send + 'static,
        R: Future<Output = Result<Response<Responses>, Status>> + Send + 'static,
    {
        let mut gzip = EnabledCompressionEncodings::default();
        gzip.enable(CompressionEncoding::Gzip);
        let grpc = Grpc::new(ProstCodec::<PayloadResponse, M>::default());
        let grpc = grpc.apply_compression_config(gzip, gzip);
        let mut grpc = grpc.apply_max_message_size_config(self.message_bytes_max, None);
        Box::pin(async move { Ok(grpc.streaming(call, request).await) })
    }
}

/// A function as a service.
struct Call<F>(F);

impl<M, F, R> Service<Request<Streaming<M>>> for Call<F>
where
    F: FnMut(Request<Streaming<M>>) -> R,
    R: Future<Output = Result<Response<Responses>, Status>>,
{
    type Response = Response<Responses>;
    type Error = Status;
    type Future = R;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<M>>) -> R {
        (self.0)(request)
    }
}

/// A call with one response.
async fn single(
    request: Request<Streaming<UnaryRequest>>,
    name: &'static str,
    is_unary: bool,
) -> Result<Response<Responses>, Status> {
    let mut info = info_of(request.metadata());
    let requests: Vec<_> = request.into_inner().try_collect().await?;
    if is_unary {
        check_single(requests.len())?;
    }
    info.requests = requests.iter().map(|request| Any::of(name, request)).collect();
    let definition = requests.into_iter().next().and_then(|request| request.response_definition);
    let UnaryResponseDefinition { response_headers, response_data, error, response_trailers, response_delay_ms } =
        definition.unwrap_or_default();
    // An error comes instead of a message.
    let response_data = if error.is_some() { Vec::new() } else { vec![response_data.unwrap_or_default()] };
    let definition =
        StreamResponseDefinition { response_headers, response_data, response_delay_ms, error, response_trailers };
    responses(Some(definition), info)
}

async fn server_stream(request: Request<Streaming<ServerStreamRequest>>) -> Result<Response<Responses>, Status> {
    let mut info = info_of(request.metadata());
    let requests: Vec<_> = request.into_inner().try_collect().await?;
    check_single(requests.len())?;
    info.requests = requests.iter().map(|request| Any::of("ServerStreamRequest", request)).collect();
    responses(requests.into_iter().next().and_then(|request| request.response_definition), info)
}

async fn bidi_stream(request: Request<Streaming<BidiStreamRequest>>) -> Result<Response<Responses>, Status> {
    let mut info = info_of(request.metadata());
    let mut requests = request.into_inner();
    let Some(first) = requests.message().await? else { return responses(None, info) };
    info.requests = vec![any(&first)];
    if !first.full_duplex {
        while let Some(request) = requests.message().await? {
            info.requests.push(any(&request));
        }
        return responses(first.response_definition, info);
    }
    let definition = first.response_definition.unwrap_or_default();
    let response_headers = definition.response_headers.clone();
    // One response to each request; those that are left follow the last request.
    let state = (requests, Remaining::new(definition, info), true);
    let responses = stream::unfold(Some(state), async |state| {
        let (mut requests, mut remaining, is_first) = state?;
        let request = if is_first { Ok(None) } else { requests.message().await };
        let next = match request {
            Ok(request) => {
                if let Some(request) = request {
                    remaining.info = Some(RequestInfo { requests: vec![any(&request)], ..RequestInfo::default() });
                }
                remaining.next().await
            }
            Err(status) => Err(status),
        };
        let state = next.is_ok().then_some((requests, remaining, false));
        Some((next, state))
    });
    with_headers(responses.boxed(), &response_headers)
}

fn any(request: &BidiStreamRequest) -> Any {
    Any::of("BidiStreamRequest", request)
}

/// A call with one request has one; everything else is a violation of its cardinality.
fn check_single(count: usize) -> Result<(), Status> {
    if count == 1 { Ok(()) } else { Err(Status::unimplemented(format!("{count} messages, and the call has one"))) }
}

fn responses(definition: Option<StreamResponseDefinition>, info: RequestInfo) -> Result<Response<Responses>, Status> {
    let definition = definition.unwrap_or_default();
    let response_headers = definition.response_headers.clone();
    let remaining = Remaining::new(definition, info);
    let responses = stream::unfold(Some(remaining), async |remaining| {
        let mut remaining = remaining?;
        let next = remaining.next().await;
        let remaining = next.is_ok().then_some(remaining);
        Some((next, remaining))
    });
    with_headers(responses.boxed(), &response_headers)
}

fn with_headers(responses: Responses, headers: &[Header]) -> Result<Response<Responses>, Status> {
    let mut response = Response::new(responses);
    *response.metadata_mut() = metadata(headers)?;
    Ok(response)
}

/// The responses that are left of a call.
struct Remaining {
    data: vec::IntoIter<Vec<u8>>,
    delay: Duration,
    info: Option<RequestInfo>,
    error: Option<Error>,
    trailers: Vec<Header>,
    has_sent: bool,
}

impl Remaining {
    fn new(definition: StreamResponseDefinition, info: RequestInfo) -> Self {
        Self {
            data: definition.response_data.into_iter(),
            delay: Duration::from_millis(definition.response_delay_ms.into()),
            info: Some(info),
            error: definition.error,
            trailers: definition.response_trailers,
            has_sent: false,
        }
    }

    /// The next response, or the end with its trailers.
    async fn next(&mut self) -> Result<PayloadResponse, Status> {
        let Some(data) = self.data.next() else { return Err(self.end()) };
        tokio::time::sleep(self.delay).await;
        self.has_sent = true;
        Ok(PayloadResponse { payload: Some(Payload { data, request_info: self.info.take() }) })
    }

    fn end(&mut self) -> Status {
        let trailers = match metadata(&self.trailers) {
            Ok(trailers) => trailers,
            Err(status) => return status,
        };
        let Some(Error { code, message, mut details }) = self.error.take() else {
            return Status::with_metadata(Code::Ok, "", trailers);
        };
        if let Some(info) = self.info.take().filter(|_| !self.has_sent) {
            details.push(Any::of("ConformancePayload.RequestInfo", &info));
        }
        let message = message.unwrap_or_default();
        let status = RpcStatus { code, message: message.clone(), details };
        let details = status.encode_to_vec().into();
        Status::with_details_and_metadata(Code::from_i32(code), message, details, trailers)
    }
}

/// The information in a request's head.
fn info_of(metadata: &MetadataMap) -> RequestInfo {
    let fields = metadata.clone().into_headers();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let header = |name: &http::HeaderName| Header {
        name: name.to_string(),
        value: fields.get_all(name).iter().map(text).collect(),
    };
    let request_headers = fields.keys().map(header).collect();
    let timeout_ms = fields.get("grpc-timeout").and_then(|value| milliseconds(value.to_str().ok()?));
    RequestInfo { request_headers, timeout_ms, requests: Vec::new() }
}

fn milliseconds(timeout: &str) -> Option<i64> {
    let (number, unit) = timeout.split_at_checked(timeout.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok()?;
    Some(match unit {
        "H" => number.checked_mul(3_600_000)?,
        "M" => number.checked_mul(60_000)?,
        "S" => number.checked_mul(1_000)?,
        "m" => number,
        "u" => number / 1_000,
        "n" => number / 1_000_000,
        _ => return None,
    })
}

fn metadata(headers: &[Header]) -> Result<MetadataMap, Status> {
    let mut fields = http::HeaderMap::new();
    for Header { name, value } in headers {
        let invalid = |_| Status::internal("the call asks for a field that is none");
        let name = http::HeaderName::try_from(name.as_str()).map_err(|_| Status::internal("not a name of a field"))?;
        for value in value {
            fields.append(&name, http::HeaderValue::try_from(value.as_str()).map_err(invalid)?);
        }
    }
    Ok(MetadataMap::from_headers(fields))
}
