//! HTTP for applications: a server of functions from requests to responses.
//!
//! An application is written against an exchange: a [`Request`] with a [`Body`], and a [`Response`]. It does not depend
//! on the version of the protocol.
//!
//! | to | use |
//! |---|---|
//! | serve one function | [`serve`] |
//! | choose functions by method and path | [`Router`] |
//! | set addresses, limits, TLS | [`Server`], [`Limits`] |
//! | receive parts of a request as arguments | [`FromRequest`] and its types |
//! | return a response | [`IntoResponse`] |
//! | read or write a body piece by piece | [`Body`], [`BodyWriter`] |
//! | send the files of a folder | [`Files`] |
//! | choose a content coding | [`preferred_encoding`] |
//! | send events to a browser | [`Sse`] |
//! | leave HTTP on a connection, for another protocol or a tunnel | [`Upgrade`] |
//! | open a WebSocket, by the feature `websocket` | `WebSocketUpgrade` |
//! | see all requests and responses | [`Middleware`] |
//!
//! A function that is not async runs within the dispatch of its connection, like a handler of the protocol itself. An
//! async function begins there as well, and where it waits it goes on as a task on the loop of its connection. While a
//! connection is idle, it has the memory of neither.
//!
//! Read next: `serving/mod.rs` for the way of a connection's requests, `router.rs` for the choice of their functions.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `server.rs` | `serve`, `Server`, `Config`: from an address and functions to a running server |
//! | `limits.rs` | `Limits`, from the socket to the function |
//! | `line_log.rs` | `LineLog`: lines that a thread of its own writes |
//! | `app.rs` | the state that the connections of a loop share; `Reload` |
//! | `counting.rs` | counts the requests of a loop |
//! | `upstream_note.rs` | the upstream of a proxied request, for its access log |
//! | `request.rs` | `Request` |
//! | `response.rs` | `Response`, `IntoResponse` |
//! | `route.rs` | the pattern that a path matches, and where the values of its parameters are |
//! | `router.rs` | `Router`: hosts, paths, methods; `Slashes` |
//! | `normal_path.rs` | a path as routes match it, in each of its spellings; the rest of a path behind a prefix |
//! | `choice.rs` | `Choice`: functions of one path, by conditions |
//! | `endpoint.rs` | `RequestFunction`: functions, async or not, without their types |
//! | `extract/` | parts of a request as arguments: `Path`, `Query`, `Json`, `Form`, `Cookies`, `Multipart`, `State` and others, one file each; the bodies of refusals (`refusal.rs`) |
//! | `sse/` | `Sse`, a response that is a stream of events |
//! | `gateway.rs` | the interface between the layer and a reverse proxy, which is a crate of its own |
//! | `event_stream.rs` | the end of any event stream when the server drains |
//! | `files/` | `Files`: opening safely (`open.rs`, `path.rs`), conditional requests, ranges, listings, precompressed variants |
//! | `compression/` | content codings of responses and requests |
//! | `middleware/` | `Middleware`; access log, request ids, trace contexts, basic authentication, error pages |
//! | `serving/` | from the events of a connection to functions, and from their responses back |
//! | `codec.rs` | `HttpCodec`: the interface of the pipeline below the layer |
//! | `websocket.rs` | `WebSocketUpgrade`, a request that opens a WebSocket |

#![forbid(unsafe_code)]

mod app;
mod choice;
mod codec;
#[cfg(feature = "compress")]
mod compression;
mod counting;
mod endpoint;
mod event_stream;
mod extract;
#[cfg(feature = "files")]
mod files;
#[doc(hidden)]
pub mod gateway;
mod limits;
mod line_log;
mod middleware;
mod normal_path;
mod request;
mod response;
mod route;
mod router;
mod server;
mod serving;
mod sse;
mod upstream_note;
#[cfg(feature = "websocket")]
mod websocket;

pub use app::Reload;
pub use choice::{Choice, WithChoice};
#[cfg(feature = "cookies")]
#[doc(inline)]
pub use cookie::{self, Cookie, SameSite};
#[cfg(feature = "cookies")]
pub use extract::Cookies;
#[cfg(feature = "json")]
pub use extract::Json;
pub use extract::{BodyUse, ConnectionState, Extension, FromRequest, Host, Path, Peer, State};
#[cfg(feature = "form")]
pub use extract::{FORM_PAIRS_MAX, Form, Query};
#[cfg(feature = "multipart")]
pub use extract::{Field, Multipart, MultipartError, MultipartLimits};

pub use codec::{HttpCodec, HttpFilter, SessionCodec};
#[cfg(feature = "compress")]
pub use compression::{RequestDecompression, ResponseCompression};
pub use endpoint::{
    AsyncFunction, BoxResponseFuture, Endpoint, HalfClose, RequestFunction, SyncFunction, WithHalfClose, WithRequest,
    half_close,
};
#[cfg(feature = "files")]
pub use files::Files;
pub use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
pub use limits::Limits;
pub use line_log::LineLog;
pub use middleware::{
    AccessLog, BasicAuth, ErrorPages, LogFormat, Middleware, RefusedRequest, RequestId, RequestIds, RequestInfo,
    TraceContext, TraceContexts,
};
pub use normal_path::normal_path;
pub use request::Request;
pub use response::{IntoResponse, Response};
pub use router::{Router, Slashes};
pub use server::{Config, Server, serve};
pub use serving::{HttpHandler, StreamClient};
pub use sse::{Event, EventWriter, InvalidEvent, LastEventId, Sse};
#[doc(inline)]
pub use tidegate_http_message::{Body, BodyError, BodyWriter, Data, Encoding, Upgrade, preferred_encoding};
pub use tidegate_http1::{ContentType, Fields, InvalidField, Trailers};
#[cfg(feature = "websocket")]
pub use websocket::WebSocketUpgrade;
