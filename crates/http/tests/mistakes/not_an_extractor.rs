//! An argument that is no part of a request.
//@ `u32` is no argument of a function whose router has the state `()`
//@ arguments are `Path`, `Query`, `Json`, `Form`, `State`

use tidegate::http::Path;

#[tidegate::debug_function]
async fn show(Path(name): Path<String>, number: u32) -> String {
    format!("{name} {number}")
}
