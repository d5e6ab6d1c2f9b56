//! `DebugFunction`: a function of a router as the attribute `debug_function` reads it, and the checks that it gets.

use proc_macro::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use crate::mistake::Mistake;

/// The checked parts of a function: its arguments, its result, and the state of its router.
pub(crate) struct DebugFunction {
    is_async: bool,
    /// The types of the arguments, without a request at the end, nor the rest of a middleware's way behind it.
    arguments: Vec<Vec<TokenTree>>,
    /// `None` if it is `impl Trait`, which only the router can check.
    result: Option<Vec<TokenTree>>,
    state: Vec<TokenTree>,
}

impl DebugFunction {
    /// Reads the arguments of the attribute, and the function at which it stands.
    pub(crate) fn read(attribute: TokenStream, item: TokenStream) -> Result<Self, Mistake> {
        let tokens: Vec<TokenTree> = item.into_iter().collect();
        let Some(at) = tokens.iter().position(|token| is_word(token, "fn")) else {
            return Err(Mistake(Span::call_site(), "the attribute belongs to a function"));
        };
        let is_async = tokens[..at].iter().any(|token| is_word(token, "async"));
        let parameters = match tokens.get(at + 2) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => group.stream(),
            _ => return Err(Mistake(tokens[at].span(), "the function has no generic parameters: a router calls it")),
        };
        let mut arguments = Vec::new();
        for parameter in split(parameters) {
            arguments.push(type_of(&parameter)?);
        }
        if is_named(arguments.last(), "Next") {
            arguments.pop();
        }
        if is_named(arguments.last(), "Request") {
            arguments.pop();
        }
        if let Some(further) = arguments.get(ARGUMENTS_MAX) {
            let span = further.first().map_or_else(Span::call_site, TokenTree::span);
            return Err(Mistake(span, "a function has at most five arguments, and the request behind them"));
        }
        let state = match state_of(attribute)? {
            Some(state) => state,
            None => arguments.iter().find_map(|argument| inner_of_state(argument)).unwrap_or_else(unit),
        };
        Ok(Self { is_async, arguments, result: result(&tokens[at + 3..]), state })
    }

    /// `const _: () = { fn check() { ::tidegate::http::debug_function::argument::<TYPE, STATE, _>(); .. } };`
    pub(crate) fn checks(&self) -> TokenStream {
        let mut calls = TokenStream::new();
        for argument in &self.arguments {
            let span = argument.first().map_or_else(Span::call_site, TokenTree::span);
            let name = if self.is_async { "argument" } else { "argument_at_once" };
            calls.extend(at(span, &format!("::tidegate::http::debug_function::{name}::<")));
            calls.extend(argument.iter().cloned());
            calls.extend(at(span, ","));
            calls.extend(self.state.iter().cloned());
            calls.extend(at(span, if self.is_async { ", _>();" } else { ">();" }));
        }
        if let Some(result) = &self.result {
            let span = result.first().map_or_else(Span::call_site, TokenTree::span);
            calls.extend(at(span, "::tidegate::http::debug_function::result::<"));
            calls.extend(result.iter().cloned());
            calls.extend(at(span, ">();"));
        }
        let mut check = at(Span::call_site(), "#[allow(warnings)] fn check()");
        check.extend([TokenTree::Group(Group::new(Delimiter::Brace, calls))]);
        let mut checks = at(Span::call_site(), "const _: () =");
        checks.extend([TokenTree::Group(Group::new(Delimiter::Brace, check))]);
        checks.extend(at(Span::call_site(), ";"));
        checks
    }
}

/// The parameters of a function, without the commas between them.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let (mut parameters, mut parameter, mut depth, mut before) = (Vec::new(), Vec::new(), 0_u32, ' ');
    for token in tokens {
        let sign = if let TokenTree::Punct(punct) = &token { punct.as_char() } else { ' ' };
        match sign {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = sign;
        if sign == ',' && depth == 0 {
            parameters.push(std::mem::take(&mut parameter));
        } else {
            parameter.push(token);
        }
    }
    if !parameter.is_empty() {
        parameters.push(parameter);
    }
    parameters
}

/// The type behind the colon of a parameter.
fn type_of(parameter: &[TokenTree]) -> Result<Vec<TokenTree>, Mistake> {
    let mut is_path = false;
    for (at, token) in parameter.iter().enumerate() {
        let TokenTree::Punct(punct) = token else { continue };
        match (punct.as_char(), punct.spacing()) {
            (':', Spacing::Joint) => is_path = true,
            (':', Spacing::Alone) if is_path => is_path = false,
            (':', Spacing::Alone) => return Ok(parameter[at + 1..].to_vec()),
            _ => {}
        }
    }
    let span = parameter.first().map_or_else(Span::call_site, TokenTree::span);
    Err(Mistake(span, "a function of a router has no `self`"))
}

/// Whether a type is a path that ends with this name.
fn is_named(found: Option<&Vec<TokenTree>>, name: &str) -> bool {
    found.and_then(|tokens| tokens.last()).is_some_and(|token| is_word(token, name))
}

/// The `T` of `State<T>`.
fn inner_of_state(argument: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let at = argument.iter().position(|token| is_word(token, "State"))?;
    let is_sign = |token: &TokenTree, sign| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign);
    match argument.get(at + 1..)? {
        [open, inner @ .., close] if is_sign(open, '<') && is_sign(close, '>') => Some(inner.to_vec()),
        _ => None,
    }
}

/// The type in `state = TYPE`.
fn state_of(attribute: TokenStream) -> Result<Option<Vec<TokenTree>>, Mistake> {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match &tokens[..] {
        [] => Ok(None),
        [name, TokenTree::Punct(sign), state @ ..]
            if is_word(name, "state") && sign.as_char() == '=' && !state.is_empty() =>
        {
            Ok(Some(state.to_vec()))
        }
        [first, ..] => Err(Mistake(first.span(), "the argument is `state = TYPE`, the type of the router's state")),
    }
}

/// The result behind `->`; `()` without one.
fn result(after: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let end = after.iter().position(|token| is_body(token) || is_word(token, "where")).unwrap_or(after.len());
    match &after[..end] {
        [TokenTree::Punct(_), TokenTree::Punct(_), first, ..] if is_word(first, "impl") => None,
        [TokenTree::Punct(_), TokenTree::Punct(_), result @ ..] => Some(result.to_vec()),
        _ => Some(unit()),
    }
}

fn unit() -> Vec<TokenTree> {
    vec![TokenTree::Group(Group::new(Delimiter::Parenthesis, TokenStream::new()))]
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

/// Source text, to which the compiler points where `span` is.
fn at(span: Span, text: &str) -> TokenStream {
    let stream: TokenStream = text.parse().expect("it is valid Rust");
    stream
        .into_iter()
        .map(|mut token| {
            token.set_span(span.resolved_at(Span::call_site()));
            token
        })
        .collect()
}

/// How many arguments stand before the request.
const ARGUMENTS_MAX: usize = 5;
