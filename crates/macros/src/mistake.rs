//! `Mistake`: a wrong use of an attribute, as a compiler error.

use proc_macro::{Span, TokenStream, TokenTree};

/// A mistake in the source, and its place.
pub(crate) struct Mistake(pub(crate) Span, pub(crate) &'static str);

impl Mistake {
    pub(crate) fn into_tokens(self) -> TokenStream {
        let message = self.1;
        let tokens: TokenStream = format!("::core::compile_error!({message:?});").parse().expect("it is valid Rust");
        tokens.into_iter().map(|token| at(self.0, token)).collect()
    }
}

/// A token that stands at a place, as far as the compiler reports it.
fn at(span: Span, mut token: TokenTree) -> TokenTree {
    token.set_span(span);
    token
}
