//! The checks of `#[tidegate::debug_function]`: calls with the types of a function's arguments and of its result, each of
//! which has an error of its own.

use crate::extract::{Argument, FromRequest};
use crate::response::IntoResponse;

/// An argument of an async function.
pub const fn argument<T: Argument<S, M> + 'static, S, M>() {}

/// An argument of a function that is not async.
pub const fn argument_at_once<T: FromRequest<S> + 'static, S>() {}

/// The result of a function.
pub const fn result<T: IntoResponse>() {}
