//! The same for a function that is not async.
//@ `u32` is no part of a request with the state `()`

#[tidegate::debug_function]
fn show(number: u32) -> String {
    number.to_string()
}
