//! Tower services on our loops: an axum `Router`, and every other `tower::Service` of `http::Request`.
//!
//! The service is polled on the loop that has the connection, without hyper in between. Only the body of the request is
//! `Send`; the service, its future and the body of its response need not be.
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//! use tidegate::http::Server;
//! use tidegate::tower;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let router: Router = Router::new().route("/", get(|| async { "Hello, World!" }));
//! Server::bind("127.0.0.1:8080")?.serve(tower::function(router))?.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Read next: `function.rs` for the way of a request, `request_body.rs` for why its body may be `Send`, `upgrade.rs`
//! for connections that a service takes over, `closing.rs` for their end at a drain, `prepare.rs` for axum routers that
//! lack their state, `grpc.rs` for gRPC calls.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `axum.rs` | `serve` in place of `axum::serve` |
//! | `make_service.rs` | `IntoService`: its argument, a service or a maker of services |
//! | `function.rs` | a service as a function of the HTTP layer: calling it, polling its future for the first time |
//! | `request.rs` | from our request to one of the `http` crate |
//! | `grpc.rs` | gRPC deadlines and limits |
//! | `request_body.rs` | `RequestBody`, which may be read on other threads |
//! | `response.rs` | from the response of a service to ours |
//! | `upgrade.rs` | hyper's `OnUpgrade`, and the bytes between it and a connection |
//! | `closing.rs` | `ClosingHandshake`: the close frame of a service's WebSocket when the server drains |
//! | `prepare.rs` | axum routers get their state, so that their layers are made once |

#![forbid(unsafe_code)]

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "upgrade")]
mod closing;
mod function;
pub mod grpc;
#[cfg(feature = "axum")]
mod make_service;
#[cfg(feature = "axum")]
mod prepare;
mod request;
mod request_body;
mod response;
#[cfg(feature = "upgrade")]
mod upgrade;

use tidegate_engine::{ServerHandle, StartError};
use tidegate_http::Server;

pub use self::function::{FromTower, ServiceFunction, TowerService, function};
pub use self::request_body::{BodyError, RequestBody, ServiceBody};

/// Serves a service, such as an axum `Router`, at an address: on a loop for each core, each with a clone of the
/// service.
///
/// ```no_run
/// use axum::Router;
/// use axum::routing::get;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// tidegate::tower::serve("127.0.0.1:8080", Router::new().route("/", get(|| async { "Hello, World!" })))?.wait();
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`StartError`], with a remedy.
pub fn serve<S>(address: &str, service: S) -> Result<ServerHandle, StartError>
where
    S: TowerService + Clone + Send + Sync + 'static,
{
    Server::bind(address)?.serve(function(service))
}
