//! The request before another argument.
//@ `Request` may only be the last

use tidegate::http::{Path, Request};

#[tidegate::debug_function]
async fn show(request: Request, Path(name): Path<String>) -> String {
    drop(request);
    name
}
