//! `grpc.testing.TestService`, and the service that reports load: calls that answer as their requests say.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::codegen::{Body, BoxFuture, Context, Poll, Service, StdError, http};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::echo::MoreTrailers;
use crate::messages::{
    BoolValue, EchoStatus, Empty, Interval, OrcaLoadReport, OrcaLoadReportRequest, Payload, ResponseParameters,
    SimpleRequest, SimpleResponse, StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};

/// The longest payload that a client may ask for.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// The load that the service reports: clients make it up.
pub(crate) type Load = Arc<Mutex<OrcaLoadReport>>;

type Responses = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;
type Reports = Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

/// A function as a service.
struct Call<F>(F);

impl<F, M, R, N> Service<Request<M>> for Call<F>
where
    F: FnMut(Request<M>) -> R,
    R: Future<Output = Result<Response<N>, Status>>,
{
    type Response = Response<N>;
    type Error = Status;
    type Future = R;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<M>) -> R {
        (self.0)(request)
    }
}

/// Messages of one call, compressed where both sides can.
fn grpc<N: Message + 'static, M: Message + Default + 'static>() -> Grpc<ProstCodec<N, M>> {
    let mut gzip = EnabledCompressionEncodings::default();
    gzip.enable(CompressionEncoding::Gzip);
    Grpc::new(ProstCodec::default()).apply_compression_config(gzip, gzip)
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TestService(pub(crate) Load);

impl NamedService for TestService {
    const NAME: &'static str = "grpc.testing.TestService";
}

impl<B> Service<http::Request<B>> for TestService
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
        let load = self.0.clone();
        match request.uri().path().rsplit('/').next() {
            Some("EmptyCall") => Box::pin(async { Ok(grpc::<Empty, Empty>().unary(Call(empty_call), request).await) }),
            Some("UnaryCall" | "CacheableUnaryCall") => {
                Box::pin(async { Ok(grpc().unary(Call(unary_call), request).await) })
            }
            Some("StreamingInputCall") => {
                Box::pin(async { Ok(grpc().client_streaming(Call(streaming_input_call), request).await) })
            }
            Some("StreamingOutputCall") => {
                Box::pin(async { Ok(grpc().server_streaming(Call(streaming_output_call), request).await) })
            }
            Some("FullDuplexCall") => Box::pin(async {
                let call = Call(move |request| full_duplex_call(request, load.clone()));
                Ok(grpc().streaming(call, request).await)
            }),
            Some("HalfDuplexCall") => Box::pin(async { Ok(grpc().streaming(Call(half_duplex_call), request).await) }),
            _ => Box::pin(async { Ok(Status::unimplemented("there is no such call").into_http()) }),
        }
    }
}

async fn empty_call(_: Request<Empty>) -> Result<Response<Empty>, Status> {
    Ok(Response::new(Empty {}))
}

async fn unary_call(request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
    let is_compressed = is_compressed(request.metadata());
    let request = request.into_inner();
    check_status(request.response_status)?;
    check_compression(request.expect_compressed.as_ref(), is_compressed)?;
    let server_id = if request.fill_server_id { "tidegate".to_owned() } else { String::new() };
    let mut response = Response::new(SimpleResponse { payload: Some(payload(request.response_size)?), server_id });
    if !request.response_compressed.is_some_and(|wanted| wanted.value) {
        response.disable_compression();
    }
    if let Some(report) = request.orca_per_query_report {
        let mut trailers = MetadataMap::new();
        let report = OrcaLoadReport::from(report).encode_to_vec();
        trailers.insert_bin("endpoint-load-metrics-bin", MetadataValue::from_bytes(&report));
        response.extensions_mut().insert(MoreTrailers(trailers.into_headers()));
    }
    Ok(response)
}

async fn streaming_input_call(
    request: Request<Streaming<StreamingInputCallRequest>>,
) -> Result<Response<StreamingInputCallResponse>, Status> {
    let is_compressed = is_compressed(request.metadata());
    let mut requests = request.into_inner();
    let mut sum = 0_usize;
    while let Some(StreamingInputCallRequest { payload, expect_compressed }) = requests.message().await? {
        check_compression(expect_compressed.as_ref(), is_compressed)?;
        sum = sum.saturating_add(payload.map_or(0, |payload| payload.body.len()));
    }
    let aggregated_payload_size = i32::try_from(sum).unwrap_or(i32::MAX);
    Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
}

async fn streaming_output_call(request: Request<StreamingOutputCallRequest>) -> Result<Response<Responses>, Status> {
    Ok(Response::new(responses(request.into_inner())?))
}

/// Responds to each request when it comes.
async fn full_duplex_call(
    request: Request<Streaming<StreamingOutputCallRequest>>,
    load: Load,
) -> Result<Response<Responses>, Status> {
    let responses = request.into_inner().map(move |request| {
        let mut request = request?;
        if let Some(report) = request.orca_oob_report.take() {
            *load.lock().unwrap_or_else(PoisonError::into_inner) = report.into();
        }
        responses(request)
    });
    Ok(Response::new(responses.try_flatten().boxed()))
}

/// Responds when all requests have come.
async fn half_duplex_call(
    request: Request<Streaming<StreamingOutputCallRequest>>,
) -> Result<Response<Responses>, Status> {
    let requests: Vec<_> = request.into_inner().try_collect().await?;
    Ok(Response::new(stream::iter(requests).map(responses).try_flatten().boxed()))
}

/// The responses to one request.
fn responses(request: StreamingOutputCallRequest) -> Result<Responses, Status> {
    check_status(request.response_status)?;
    let responses = stream::iter(request.response_parameters).then(async |ResponseParameters { size, interval_us }| {
        let interval = u64::try_from(interval_us).unwrap_or_default();
        if interval > 0 {
            tokio::time::sleep(Duration::from_micros(interval)).await;
        }
        Ok(StreamingOutputCallResponse { payload: Some(payload(size)?) })
    });
    Ok(responses.boxed())
}

/// The status that the client asks for.
fn check_status(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) if code != 0 => Err(Status::new(Code::from_i32(code), message)),
        _ => Ok(()),
    }
}

/// Whether messages of the call may be compressed. Which of them are, tonic does not report.
fn is_compressed(metadata: &MetadataMap) -> bool {
    metadata.get("grpc-encoding").is_some_and(|encoding| encoding != "identity")
}

fn check_compression(expected: Option<&BoolValue>, is_compressed: bool) -> Result<(), Status> {
    if expected.is_some_and(|expected| expected.value) && !is_compressed {
        return Err(Status::invalid_argument("the message is not compressed"));
    }
    Ok(())
}

fn payload(size: i32) -> Result<Payload, Status> {
    let size = usize::try_from(size).ok().filter(|size| *size <= PAYLOAD_BYTES_MAX);
    let size = size.ok_or_else(|| Status::invalid_argument("a payload of this size is not available"))?;
    Ok(Payload { kind: 0, body: vec![0; size].into() })
}

/// The service that reports load beside the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadReports(pub(crate) Load);

impl NamedService for LoadReports {
    const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
}

impl<B> Service<http::Request<B>> for LoadReports
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
        if request.uri().path().rsplit('/').next() != Some("StreamCoreMetrics") {
            return Box::pin(async { Ok(Status::unimplemented("there is no such call").into_http()) });
        }
        let load = self.0.clone();
        Box::pin(async {
            let call = Call(move |request| reports(request, load.clone()));
            Ok(grpc::<OrcaLoadReport, _>().server_streaming(call, request).await)
        })
    }
}

/// A report at once, and one after each interval.
async fn reports(request: Request<OrcaLoadReportRequest>, load: Load) -> Result<Response<Reports>, Status> {
    let Interval { seconds, nanos } = request.into_inner().report_interval.unwrap_or_default();
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let interval = seconds + Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
    let interval = interval.clamp(REPORT_INTERVAL_MIN, REPORT_INTERVAL_MAX);
    let reports = stream::unfold((load, Duration::ZERO), move |(load, wait): (Load, Duration)| async move {
        tokio::time::sleep(wait).await;
        let report = load.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some((Ok(report), (load, interval)))
    });
    Ok(Response::new(reports.boxed()))
}

const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);
