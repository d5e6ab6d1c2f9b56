//! The attributes `#[tidegate::main]` and `#[tidegate::test]`: an async function without arguments becomes a function that
//! runs it on an event loop. The attribute `#[tidegate::debug_function]`, which has the compiler name the wrong argument of
//! a router's function. The derive `Fault`: an enum of errors, sorted by blame, with its texts.
//!
//! The function keeps its attributes, its name and its result. The async function that was written stands within it, so
//! the compiler reports errors where they are. Read next: `arguments.rs` for the arguments of an attribute, `function.rs` for
//! the parsed parts of the function, `fault.rs` for the derive.
//!
//! Examples and tests are in the crates that export a macro, `tidegate` and `tidegate-codec`. Cargo compiles a dependency of the
//! tests of a macro crate a second time, as a part of the compiler.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `function.rs` | the async function at which an attribute stands, and the function that runs it |
//! | `arguments.rs` | the arguments of an attribute |
//! | `debug.rs` | a router's function, and the checks of its arguments and its result |
//! | `fault.rs` | the derive `Fault`: an enum of errors, and the implementations that it gets |
//! | `mistake.rs` | a wrong use of an attribute, as a compiler error |

#![forbid(unsafe_code)]

mod arguments;
mod debug;
mod fault;
mod function;
mod mistake;

use proc_macro::TokenStream;

use crate::arguments::Arguments;
use crate::debug::DebugFunction;
use crate::fault::FaultEnum;
use crate::function::{AttributeKind, Function};

/// The arguments of the attribute:
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `backend = "epoll"` | the driver of the loop: `epoll`, `uring`, `auto` | `auto` |
/// | `tokio_threads = 2` | threads of the tokio runtime; only with the feature `tokio` | 1 |
///
/// With the feature `tokio` the function runs in the tokio runtime, and servers that it starts use the same one. Servers have
/// loops of their own.
///
/// # Panics
/// The function panics if the loop does not start: the system has no descriptor left, or the environment names a backend
/// that is not available.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item, AttributeKind::Main)
}

/// The arguments are those of [`main`](macro@main).
///
/// With the feature `tokio` each test has a tokio runtime of its own, which ends with it.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item, AttributeKind::Test)
}

/// Implements `Fault`, `Display` and `Error` for an enum of errors.
///
/// Each variant names the side that it blames, `peer`, `caller`, `limit` or `system`, and its text. A variant with
/// `#[fault(from)]` has another error as its only field: the blame and the text are those of that error, and `?` converts it.
///
/// A crate that does not import `tidegate` names the crate of the trait at the enum: `#[fault(crate = tidegate_codec)]`.
#[proc_macro_derive(Fault, attributes(fault))]
pub fn fault(item: TokenStream) -> TokenStream {
    match FaultEnum::read(item) {
        Ok(errors) => errors.expand(),
        Err(mistake) => mistake.into_tokens(),
    }
}

/// Has the compiler name the argument or the result that keeps a function from being one of a router, or from being async
/// middleware. Without it the error is at the call of the router, and names the whole function. It costs nothing at run
/// time.
///
/// The state is that of the first argument `State<T>`, or `()`; `#[tidegate::debug_function(state = T)]` names another.
#[proc_macro_attribute]
pub fn debug_function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match DebugFunction::read(arguments, item.clone()) {
        Ok(function) => [item, function.checks()].into_iter().collect(),
        Err(mistake) => [mistake.into_tokens(), item].into_iter().collect(),
    }
}

fn expand(arguments: TokenStream, item: TokenStream, kind: AttributeKind) -> TokenStream {
    let function = match Function::read(item.clone()) {
        Ok(function) => function,
        Err(mistake) => return [mistake.into_tokens(), item].into_iter().collect(),
    };
    match Arguments::read(arguments) {
        Ok(arguments) => function.expand(&arguments, kind),
        // The function stays there, so that the mistake is the only one.
        Err(mistake) => [mistake.into_tokens(), function.expand(&Arguments::default(), kind)].into_iter().collect(),
    }
}
