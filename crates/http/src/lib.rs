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
//! | open a session of WebTransport, by the feature `webtransport` | `WebTransportUpgrade` |
//! | open a tunnel of capsules and datagrams, by the feature `connect-udp` | `CapsuleUpgrade` |
//! | be a proxy of UDP, by the feature `connect-udp` | `UdpProxy` |
//! | list all routes | [`Router::routes`] |
//! | wait before a function, or after it | [`Router::wrap`], [`Next`] |
//! | give one route limits of its own | [`route`] |
//! | see all requests and responses | [`Middleware`]; for one function [`with_middleware`] |
//! | redirect, or answer with the same response | [`Redirect`], [`FixedResponse`] |
//! | fill values of a request into a text | [`Template`], [`Edit`] |
//!
//! A function that is not async runs within the dispatch of its connection, like a handler of the protocol itself. An
//! async function begins there as well, and where it waits it goes on as a task on the loop of its connection. While a
//! connection is idle, it has the memory of neither.
//!
//! Read next: `serving/mod.rs` for the way of a connection's requests, `table/find.rs` for the choice of their functions.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `server.rs` | `serve`, `Server`, `Config`: from an address and functions to a running server; their methods about HTTP/3 (`server/over_quic.rs`) |
//! | `limits.rs` | `Limits`, from the socket to the function |
//! | `line_log.rs` | `LineLog`: lines that a thread of its own writes |
//! | `app.rs` | the state that the connections of a loop share; `Reload` |
//! | `app_of_loop.rs` | the one application of a loop |
//! | `http3_listener.rs` | HTTP/3 beside an HTTPS listener |
//! | `debug_function.rs` | the checks of `#[tidegate::debug_function]` |
//! | `make_router.rs` | `MakeRouter`: the closure that makes the router of each loop |
//! | `cause.rs` | why this crate has made an error, for `DebugPages` |
//! | `client_address.rs` | `TrustedProxies`: the rule for the client behind proxies in front |
//! | `client_of.rs` | the client of a request by that rule |
//! | `condition.rs` | `Condition`: a test of a request beside its host and path |
//! | `cookie_value.rs` | one cookie of a request |
//! | `counting.rs` | counts the requests of a loop |
//! | `exchange_note.rs` | `ExchangeNote`: facts of a gateway or a cache for the access log |
//! | `tls_info.rs` | `TlsInfo`: the parameters of a request's TLS connection |
//! | `request.rs` | `Request` |
//! | `request_id.rs` | `RequestId`, the id of a request |
//! | `response.rs` | `Response`, `IntoResponse` |
//! | `redirect.rs` | `Redirect`, `FixedResponse` |
//! | `template/` | `Template`: a text with placeholders, parsed once; where their values come from |
//! | `route.rs` | the pattern that a path matches, and where the values of its parameters are |
//! | `route_function.rs` | `route`: a function with limits of its own |
//! | `route_limits.rs` | the limits of one route |
//! | `router.rs` | `Router`: hosts, paths, methods |
//! | `slashes.rs` | `Slashes`: how routes match slashes that servers read in different ways |
//! | `table/` | the routes of a router: adding them (`mod.rs`); the way from a request to its function (`find.rs`); routes with conditions (`conditional.rs`), and all of them that match one path (`segments.rs`); all routes as a list, `RouteInfo` (`list.rs`) |
//! | `normal_path.rs` | a path as routes match it, in each of its spellings; the rest of a path behind a prefix |
//! | `edit.rs` | `Edit`: a field is set, added or removed |
//! | `future_place.rs` | memory that the futures of a function use one after the other |
//! | `field_names.rs` | names of fields that servers read alike; the fields of one connection |
//! | `endpoint.rs` | `RequestFunction`: functions, async or not, without their types |
//! | `extract/` | parts of a request as arguments: `Path`, `Query`, `Json`, `Form`, `Cookies`, `Multipart`, `State` and others, one file each; the bodies of refusals (`refusal.rs`) |
//! | `sse/` | `Sse`, a response that is a stream of events |
//! | `gateway.rs` | the interface between the layer and a reverse proxy, which is a crate of its own |
//! | `event_stream.rs` | the end of any event stream when the server drains |
//! | `files/` | `Files`: opening safely (`open.rs`, `path.rs`), conditional requests, ranges, listings, precompressed variants |
//! | `compression/` | content codings of responses and requests |
//! | `middleware/` | `Middleware`; async middleware (`wrap.rs`), access log, request ids, trace contexts and spans (`request_spans.rs`), basic authentication (`basic_auth.rs`; hashed passwords: `passwords.rs`), error pages, those of a debug build (`debug_pages.rs`), CORS (`cors.rs`), fields that protect users (`security_fields.rs`), limits that processes share (`shared_rate_limit.rs`), early requests (`early_data.rs`) |
//! | `serving/` | from the events of a connection to functions, and from their responses back |
//! | `codec.rs` | `HttpCodec`: the interface of the pipeline below the layer |
//! | `websocket.rs` | `WebSocketUpgrade`, a request that opens a WebSocket |
//! | `webtransport/` | `WebTransportUpgrade`, a request that opens a session of WebTransport; the session (`session.rs`), the task that serves it (`serve.rs`), a client (`client.rs`) |
//! | `capsules/` | `CapsuleUpgrade`, a request that opens a tunnel of capsules and datagrams; the tunnel (`tunnel.rs`), a client over all versions (`client.rs`) |
//! | `extended_client.rs` | HTTP/3 connections and requests of clients whose streams become tunnels |
//! | `connect_udp/` | `UdpProxy`, UDP over HTTP: its rules (`rules.rs`, `target.rs`, `nat64.rs`), the task of a tunnel (`relay.rs`), its numbers (`counts.rs`, `metrics.rs`), the tunnel of a client (`tunnel.rs`) |
//! | `same_site.rs` | whether a page's origin is that of the host |
//! | `with_middleware.rs` | a function with middleware of its own |

#![forbid(unsafe_code)]

mod app;
mod app_of_loop;
#[cfg(feature = "connect-udp")]
mod capsules;
mod cause;
mod client_address;
mod client_of;
mod codec;
#[cfg(feature = "compress")]
mod compression;
mod condition;
#[cfg(feature = "connect-udp")]
mod connect_udp;
mod cookie_value;
mod counting;
#[doc(hidden)]
pub mod debug_function;
mod edit;
mod endpoint;
mod event_stream;
mod exchange_note;
#[cfg(any(feature = "connect-udp", feature = "webtransport"))]
mod extended_client;
mod extract;
mod field_names;
#[cfg(feature = "files")]
mod files;
mod future_place;
#[doc(hidden)]
pub mod gateway;
#[cfg(feature = "http3")]
mod http3_listener;
mod limits;
mod line_log;
mod make_router;
mod middleware;
mod normal_path;
mod redirect;
mod request;
mod request_id;
mod response;
mod route;
mod route_function;
mod route_limits;
mod router;
#[cfg(any(feature = "websocket", feature = "webtransport"))]
mod same_site;
mod server;
mod serving;
mod slashes;
mod sse;
mod table;
mod template;
mod tls_info;
#[cfg(feature = "websocket")]
mod websocket;
#[cfg(feature = "webtransport")]
mod webtransport;
mod with_middleware;

pub use app::Reload;
#[cfg(feature = "cookies")]
#[doc(inline)]
pub use cookie::{self, Cookie, SameSite};
#[cfg(feature = "cookies")]
pub use extract::Cookies;
#[cfg(feature = "json")]
pub use extract::Json;
pub use extract::{
    Argument, BodyUse, ConnectionState, Extension, FromRequest, FromRequestAsync, Host, Path, Peer, State,
};
#[cfg(feature = "form")]
pub use extract::{FORM_PAIRS_MAX, Form, Query};
#[cfg(feature = "multipart")]
pub use extract::{Field, Multipart, MultipartError, MultipartLimits};

#[cfg(feature = "connect-udp")]
pub use capsules::{
    CapsuleClient, CapsuleConnection, CapsuleReader, CapsuleTunnel, CapsuleUpgrade, CapsuleWriter, ExtendedConnectError,
};
pub use client_address::{ClientAddress, TrustedProxies};
pub use codec::{HttpCodec, HttpFilter, SessionCodec};
#[cfg(feature = "compress")]
pub use compression::{RequestDecompression, ResponseCompression};
pub use condition::Condition;
#[cfg(feature = "connect-udp")]
pub use connect_udp::{
    ConnectUdp, InvalidNat64Prefix, Nat64Prefix, UdpProxy, UdpProxyCounts, UdpProxyRules, UdpTunnel,
};
pub use edit::{Edit, EditValue};
pub use endpoint::{
    AsyncFunction, BoxResponseFuture, Endpoint, HalfClose, RequestFunction, SyncFunction, WithHalfClose, WithRequest,
    half_close,
};
#[cfg(feature = "files")]
pub use files::Files;
pub use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
#[cfg(feature = "http3")]
pub use http3_listener::Http3Listener;
pub use limits::Limits;
pub use line_log::LineLog;
pub use make_router::MakeRouter;
pub use middleware::{
    AccessLog, AsyncMiddleware, BasicAuth, ConcurrencyLimit, Cors, CorsBuilder, CorsError, DebugPages, EarlyData,
    ErrorPage, ErrorPages, LogFormat, LogTemplate, LogTemplateError, Middleware, NetworkRules, Next, NextResponse,
    OfRateLimit, PageText, RateGrant, RateKey, RateLimit, RateStore, RefusedRequest, RequestIds, RequestInfo,
    RequestSpan, RequestSpans, ResponseFields, SecurityFields, SharedRateLimit, SharedWrapper, TakeTokens, TlsInfos,
    TraceContexts, Wrapper,
};
#[cfg(feature = "passwords")]
pub use middleware::{Passwords, PasswordsError, UserName};
pub use normal_path::normal_path;
pub use redirect::{FixedResponse, InvalidRedirect, Redirect, ResponseFunction};
pub use request::Request;
pub use request_id::RequestId;
pub use response::{IntoResponse, Response};
pub use route_function::{RouteFunction, WithRouteLimits, route};
pub use router::Router;
pub use server::{Config, Server, serve};
pub use serving::{HttpHandler, StreamClient};
pub use slashes::Slashes;
pub use sse::{Event, EventWriter, InvalidEvent, LastEventId, Sse};
pub use table::RouteInfo;
pub use template::{InvalidTemplate, Template, TemplateValues};
#[doc(inline)]
pub use tidegate_http_message::{
    Body, BodyError, BodyWriter, Data, Encoding, HeaderFields, TraceContext, Upgrade, preferred_encoding,
};
pub use tidegate_http1::{ContentType, Fields, InvalidField, Trailers};
pub use tls_info::TlsInfo;
#[cfg(feature = "websocket")]
pub use websocket::{WebSocketChannel, WebSocketUpgrade};
#[cfg(feature = "webtransport")]
pub use webtransport::{
    WebTransportClient, WebTransportClose, WebTransportError, WebTransportSession, WebTransportUpgrade,
};
pub use with_middleware::{InMiddleware, WithMiddleware, with_middleware};
