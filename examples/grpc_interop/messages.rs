//! The messages of `grpc.testing`, of which a server of the interoperability cases has to know these, written by hand: the
//! definitions are those of <https://github.com/grpc/grpc-proto>. `OrcaLoadReport` is that of
//! <https://github.com/cncf/xds>.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

/// Its type is always that of bytes which are compressible, 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) body: prost::bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EchoStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleRequest {
    #[prost(int32, tag = "2")]
    pub(crate) response_size: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) payload: Option<Payload>,
    #[prost(message, optional, tag = "6")]
    pub(crate) response_compressed: Option<BoolValue>,
    #[prost(message, optional, tag = "7")]
    pub(crate) response_status: Option<EchoStatus>,
    #[prost(message, optional, tag = "8")]
    pub(crate) expect_compressed: Option<BoolValue>,
    #[prost(bool, tag = "9")]
    pub(crate) fill_server_id: bool,
    #[prost(message, optional, tag = "11")]
    pub(crate) orca_per_query_report: Option<TestOrcaReport>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
    #[prost(string, tag = "4")]
    pub(crate) server_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamingInputCallRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
    #[prost(message, optional, tag = "2")]
    pub(crate) expect_compressed: Option<BoolValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamingInputCallResponse {
    #[prost(int32, tag = "1")]
    pub(crate) aggregated_payload_size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseParameters {
    #[prost(int32, tag = "1")]
    pub(crate) size: i32,
    #[prost(int32, tag = "2")]
    pub(crate) interval_us: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamingOutputCallRequest {
    #[prost(message, repeated, tag = "2")]
    pub(crate) response_parameters: Vec<ResponseParameters>,
    #[prost(message, optional, tag = "3")]
    pub(crate) payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    pub(crate) response_status: Option<EchoStatus>,
    #[prost(message, optional, tag = "8")]
    pub(crate) orca_oob_report: Option<TestOrcaReport>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamingOutputCallResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
}

/// A report of load that the client makes up.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TestOrcaReport {
    #[prost(double, tag = "1")]
    pub(crate) cpu_utilization: f64,
    #[prost(double, tag = "2")]
    pub(crate) memory_utilization: f64,
    #[prost(map = "string, double", tag = "3")]
    pub(crate) request_cost: HashMap<String, f64>,
    #[prost(map = "string, double", tag = "4")]
    pub(crate) utilization: HashMap<String, f64>,
}

/// A report of load.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OrcaLoadReport {
    #[prost(double, tag = "1")]
    pub(crate) cpu_utilization: f64,
    #[prost(double, tag = "2")]
    pub(crate) mem_utilization: f64,
    #[prost(map = "string, double", tag = "4")]
    pub(crate) request_cost: HashMap<String, f64>,
    #[prost(map = "string, double", tag = "5")]
    pub(crate) utilization: HashMap<String, f64>,
}

impl From<TestOrcaReport> for OrcaLoadReport {
    fn from(report: TestOrcaReport) -> Self {
        let TestOrcaReport { cpu_utilization, memory_utilization: mem_utilization, request_cost, utilization } = report;
        Self { cpu_utilization, mem_utilization, request_cost, utilization }
    }
}

/// Asks for a report at each interval.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OrcaLoadReportRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) report_interval: Option<Interval>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Interval {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}
