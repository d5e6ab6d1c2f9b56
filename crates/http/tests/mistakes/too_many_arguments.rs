//! More arguments than a function may have.
//@ a function has at most five arguments, and the request behind them

use tidegate::http::{Method, Request};

#[tidegate::debug_function]
async fn show(_: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Request) -> &'static str {
    "shown"
}
