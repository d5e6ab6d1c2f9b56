//! The gRPC workloads: `benchmark.proto`, by tonic on our HTTP/2.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tidegate::http::RequestFunction;
use tidegate::tower::{self, FromTower, grpc};
use tonic::{Request, Response, Status};

use benchmark::benchmark_service_server::{BenchmarkService, BenchmarkServiceServer};
use benchmark::{StreamRequest, SumReply, SumRequest};

/// The code that `tonic-prost-build` and `protox` have generated from `benchmark.proto`. It is a part of the repository,
/// so a build needs no compiler of protocol buffers.
#[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, reason = "the code is generated")]
#[allow(missing_docs, missing_debug_implementations, unused_qualifications, unused_results, reason = "the same")]
pub mod benchmark {
    include!("benchmark.rs");
}

/// The path of all calls, as a route has it.
pub const PATH: &str = "/benchmark.BenchmarkService/{call}";

/// The service as a function of a router, with the deadlines of clients.
pub fn service() -> impl RequestFunction<(), FromTower> {
    tower::function(grpc::Deadlines::new(BenchmarkServiceServer::new(Sums)))
}

#[derive(Debug, Clone, Copy)]
struct Sums;

#[tonic::async_trait]
impl BenchmarkService for Sums {
    type StreamSumStream = Pin<Box<dyn Stream<Item = Result<SumReply, Status>> + Send>>;

    async fn get_sum(&self, request: Request<SumRequest>) -> Result<Response<SumReply>, Status> {
        let SumRequest { a, b } = request.into_inner();
        let result = a.checked_add(b).ok_or_else(|| Status::out_of_range(OVERFLOW))?;
        Ok(Response::new(SumReply { result }))
    }

    async fn stream_sum(&self, request: Request<StreamRequest>) -> Result<Response<Self::StreamSumStream>, Status> {
        let StreamRequest { a, b, count } = request.into_inner();
        if !(0..=MESSAGES_MAX).contains(&count) {
            return Err(Status::invalid_argument("a stream has 0 to 1,000,000 messages"));
        }
        let last = i64::from(a) + i64::from(b) + i64::from(count.max(1) - 1);
        if i32::try_from(last).is_err() || a.checked_add(b).is_none() {
            return Err(Status::out_of_range(OVERFLOW));
        }
        let sums = stream::iter((0..count).map(move |index| Ok(SumReply { result: a + b + index })));
        Ok(Response::new(Box::pin(sums)))
    }
}

const OVERFLOW: &str = "the sum is no int32";

/// Messages of one stream.
const MESSAGES_MAX: i32 = 1_000_000;
