//! Async middleware without `Next`.
//@ is no async middleware
//@ it is an `async fn(Request, Next)`

use tidegate::http::{Request, Router, StatusCode};

pub fn router() -> Router {
    Router::new().get("/", || "hello").wrap(async |_: Request| StatusCode::FORBIDDEN)
}
