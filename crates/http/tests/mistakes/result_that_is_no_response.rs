//! A result that does not become a response.
//@ `u32` does not become an HTTP response
//@ implement `IntoResponse`

#[tidegate::debug_function]
async fn count() -> u32 {
    7
}
