//! A function with a generic parameter.
//@ the function has no generic parameters

#[tidegate::debug_function]
fn show<T>(_: T) -> &'static str {
    "shown"
}
