//! The messages of `connectrpc.conformance.v1`, as far as a gRPC server uses them, written by hand: the definitions are
//! those of <https://github.com/connectrpc/conformance>.

use prost::Message;

/// The message that the runner writes to the standard input.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerCompatRequest {
    #[prost(int32, tag = "1")]
    pub(crate) protocol: i32,
    #[prost(int32, tag = "2")]
    pub(crate) http_version: i32,
    #[prost(bool, tag = "4")]
    pub(crate) use_tls: bool,
    /// The certificate that clients have to present, as PEM text; empty if they need none.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) client_tls_cert: Vec<u8>,
    #[prost(uint32, tag = "6")]
    pub(crate) message_receive_limit: u32,
    #[prost(message, optional, tag = "7")]
    pub(crate) server_creds: Option<TlsCreds>,
}

/// A certificate and its private key, as PEM text.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TlsCreds {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) cert: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

/// The message that the runner reads from the standard output.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerCompatResponse {
    #[prost(string, tag = "1")]
    pub(crate) host: String,
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
    /// The certificate of the server, as PEM text; empty without TLS.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) pem_cert: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) value: Vec<String>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

impl Any {
    pub(crate) fn of(name: &str, message: &impl Message) -> Self {
        let type_url = format!("type.googleapis.com/connectrpc.conformance.v1.{name}");
        Self { type_url, value: message.encode_to_vec() }
    }
}

/// `google.rpc.Status`: the content of `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Error {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, optional, tag = "2")]
    pub(crate) message: Option<String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// The response of a call with one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnaryResponseDefinition {
    #[prost(message, repeated, tag = "1")]
    pub(crate) response_headers: Vec<Header>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) response_data: Option<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    pub(crate) error: Option<Error>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) response_trailers: Vec<Header>,
    #[prost(uint32, tag = "6")]
    pub(crate) response_delay_ms: u32,
}

/// The responses of a call with several.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamResponseDefinition {
    #[prost(message, repeated, tag = "1")]
    pub(crate) response_headers: Vec<Header>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) response_data: Vec<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    pub(crate) response_delay_ms: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) error: Option<Error>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) response_trailers: Vec<Header>,
}

/// `UnaryRequest`, `IdempotentUnaryRequest` and `ClientStreamRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnaryRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) response_definition: Option<UnaryResponseDefinition>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) request_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerStreamRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) response_definition: Option<StreamResponseDefinition>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) request_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BidiStreamRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) response_definition: Option<StreamResponseDefinition>,
    #[prost(bool, tag = "2")]
    pub(crate) full_duplex: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) request_data: Vec<u8>,
}

/// The response of every call.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PayloadResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
}

/// `ConformancePayload`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) data: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub(crate) request_info: Option<RequestInfo>,
}

/// The call as the server has seen it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestInfo {
    #[prost(message, repeated, tag = "1")]
    pub(crate) request_headers: Vec<Header>,
    #[prost(int64, optional, tag = "2")]
    pub(crate) timeout_ms: Option<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) requests: Vec<Any>,
}
