//! A function with a state, in a router that has another one.
//@ is not a function from a request to a response
//@ router whose state is `()`
//@ `#[tidegate::debug_function]` at the function names the argument that is wrong

use tidegate::http::{Router, State};

pub fn router() -> Router {
    Router::new().get("/", async |State(number): State<u32>| number.to_string())
}
