//! `Function`: an async function as the attributes read it, and the function that runs it.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::arguments::Arguments;
use crate::mistake::Mistake;

/// Which attribute it is.
#[derive(Clone, Copy)]
pub(crate) enum AttributeKind {
    Main,
    Test,
}

/// The pieces of an async function without arguments.
pub(crate) struct Function {
    /// Attributes and visibility.
    before: TokenStream,
    /// From `fn` on, up to the body.
    signature: Vec<TokenTree>,
    name: TokenTree,
    body: Group,
}

impl Function {
    pub(crate) fn read(item: TokenStream) -> Result<Self, Mistake> {
        let mut tokens: Vec<TokenTree> = item.into_iter().collect();
        let Some(TokenTree::Group(body)) = tokens.pop() else {
            return Err(Mistake(Span::call_site(), NOT_ASYNC));
        };
        let asynchronous = tokens.iter().position(|token| is_word(token, "async"));
        let Some(asynchronous) = asynchronous.filter(|_| body.delimiter() == Delimiter::Brace) else {
            return Err(Mistake(body.span(), NOT_ASYNC));
        };
        let mut signature = tokens.split_off(asynchronous);
        let keyword = signature.remove(0);
        let [TokenTree::Ident(function), name @ TokenTree::Ident(_), TokenTree::Group(arguments), ..] = &signature[..]
        else {
            return Err(Mistake(keyword.span(), NOT_PLAIN));
        };
        if function.to_string() != "fn" {
            return Err(Mistake(keyword.span(), NOT_PLAIN));
        }
        if !arguments.stream().is_empty() {
            return Err(Mistake(arguments.span(), "the function has no arguments: nothing could pass them"));
        }
        let name = name.clone();
        Ok(Self { before: tokens.into_iter().collect(), signature, name, body })
    }

    /// `fn NAME() -> T { async fn NAME() -> T { .. } ::tidegate::entry::Entry::main()..run(NAME()) }`
    pub(crate) fn expand(self, arguments: &Arguments, kind: AttributeKind) -> TokenStream {
        let mut body = vec![name("async")];
        body.extend(self.signature.iter().cloned());
        body.push(TokenTree::Group(self.body));
        body.extend(source(match kind {
            AttributeKind::Main => "::tidegate::entry::Entry::main()",
            AttributeKind::Test => "::tidegate::entry::Entry::test()",
        }));
        for (setter, value) in [("backend", &arguments.backend), ("tokio_threads", &arguments.tokio_threads)] {
            if let Some(value) = value {
                body.extend(source("."));
                body.extend([name(setter), group(TokenTree::Literal(value.clone()).into())]);
            }
        }
        body.extend(source(".run"));
        body.push(group([self.name, group(TokenStream::new())].into_iter().collect()));
        let test = match kind {
            AttributeKind::Main => TokenStream::new(),
            AttributeKind::Test => source("#[::core::prelude::v1::test]"),
        };
        let body = TokenTree::Group(Group::new(Delimiter::Brace, body.into_iter().collect()));
        test.into_iter().chain(self.before).chain(self.signature).chain([body]).collect()
    }
}

/// A name that is resolved where the function stands.
fn name(text: &str) -> TokenTree {
    TokenTree::Ident(Ident::new(text, Span::call_site()))
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

/// Tokens in parentheses.
fn group(tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(Delimiter::Parenthesis, tokens))
}

fn source(text: &str) -> TokenStream {
    text.parse().expect("it is valid Rust")
}

const NOT_ASYNC: &str = "the attribute belongs to an `async fn`; a test without `async` has the attribute of std, which needs \
     `use tidegate::{..}` with names in place of `use tidegate::*`";
const NOT_PLAIN: &str = "the attribute belongs to an `async fn` without generic parameters";
