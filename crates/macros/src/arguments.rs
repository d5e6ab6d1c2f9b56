//! The arguments of an attribute: `name = literal`, separated by commas.

use proc_macro::{Literal, Span, TokenStream, TokenTree};

use crate::mistake::Mistake;

/// The settings of an attribute.
#[derive(Default)]
pub(crate) struct Arguments {
    /// The name of a backend, as a literal.
    pub(crate) backend: Option<Literal>,
    pub(crate) tokio_threads: Option<Literal>,
}

impl Arguments {
    pub(crate) fn read(tokens: TokenStream) -> Result<Self, Mistake> {
        let mut arguments = Self::default();
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            let (span, name) = (token.span(), token.to_string());
            let value = value(span, &mut tokens)?;
            let (place, is_valid, message) = match &*name {
                "backend" => {
                    let is_known = ["\"auto\"", "\"epoll\"", "\"uring\""].contains(&&*value.to_string());
                    (&mut arguments.backend, is_known, "a backend is \"auto\", \"epoll\" or \"uring\"")
                }
                "tokio_threads" => {
                    let threads = value.to_string().replace('_', "").parse::<usize>();
                    let is_some = threads.is_ok_and(|threads| threads > 0);
                    (&mut arguments.tokio_threads, is_some, "`tokio_threads` is a number above zero")
                }
                _ => return Err(Mistake(span, "the arguments are `backend` and `tokio_threads`")),
            };
            if !is_valid {
                return Err(Mistake(value.span(), message));
            }
            if place.replace(value).is_some() {
                return Err(Mistake(span, "an argument is given twice"));
            }
        }
        Ok(arguments)
    }
}

/// The value behind a name: `= literal`, and a comma unless it is the last.
fn value(name: Span, tokens: &mut impl Iterator<Item = TokenTree>) -> Result<Literal, Mistake> {
    let is =
        |token: &Option<TokenTree>, sign| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
    if !is(&tokens.next(), '=') {
        return Err(Mistake(name, "an argument is written `name = value`"));
    }
    let Some(TokenTree::Literal(value)) = tokens.next() else {
        return Err(Mistake(name, "the value of an argument is a literal"));
    };
    let next = tokens.next();
    if next.is_some() && !is(&next, ',') {
        return Err(Mistake(value.span(), "arguments are separated by commas"));
    }
    Ok(value)
}
