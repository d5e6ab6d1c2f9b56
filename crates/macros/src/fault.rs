//! `#[derive(Fault)]`: an enum of errors as the derive reads it, and the implementations that it gets.
//!
//! Each variant has an attribute: `#[fault(peer, "text with {0} or {name}")]`, or `#[fault(from)]` if it has another error
//! within.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::mistake::Mistake;

/// An enum of errors.
pub(crate) struct FaultEnum {
    name: String,
    /// The path of the crate that has the trait.
    codec: String,
    variants: Vec<Variant>,
}

struct Variant {
    name: String,
    fields: Fields,
    meaning: Meaning,
}

enum Fields {
    Unit,
    /// Their types.
    Tuple(Vec<String>),
    Named,
}

/// The parsed attribute of a variant.
enum Meaning {
    /// The variant of `Blame`, and the text, a string literal for `write!`.
    Blamed { blame: &'static str, text: Text },
    /// The error within has both.
    From,
}

/// A string literal for `write!`, and the fields that it names.
struct Text {
    literal: String,
    names: Vec<String>,
}

impl FaultEnum {
    pub(crate) fn read(item: TokenStream) -> Result<Self, Mistake> {
        let tokens: Vec<TokenTree> = item.into_iter().collect();
        let keyword =
            tokens.iter().position(|token| matches!(token, TokenTree::Ident(word) if word.to_string() == "enum"));
        let keyword = keyword.ok_or(Mistake(Span::call_site(), NOT_AN_ENUM))?;
        let (before, rest) = tokens.split_at(keyword);
        let [_, TokenTree::Ident(name), TokenTree::Group(body)] = rest else {
            return Err(Mistake(rest[0].span(), "an enum of errors has no parameters"));
        };
        let codec = attributes(before).find_map(|attribute| path_of_crate(&attribute));
        let variants = variants(&body.stream().into_iter().collect::<Vec<_>>())?;
        if variants.is_empty() {
            return Err(Mistake(body.span(), "an enum without variants is `std::convert::Infallible`"));
        }
        let codec = codec.unwrap_or_else(|| "::tidegate::codec".to_owned());
        Ok(Self { name: name.to_string(), codec, variants })
    }

    pub(crate) fn expand(&self) -> TokenStream {
        let Self { name, codec, variants } = self;
        let blames: String = variants.iter().map(|variant| variant.blame(codec)).collect();
        let texts: String = variants.iter().map(Variant::display).collect();
        let conversions: String = variants.iter().map(|variant| variant.conversion(name)).collect();
        let source = format!(
            "impl {codec}::Fault for {name} {{
                fn blame(&self) -> {codec}::Blame {{ match self {{ {blames} }} }}
            }}
            impl ::core::fmt::Display for {name} {{
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{ match self {{ {texts} }} }}
            }}
            impl ::core::error::Error for {name} {{}}
            {conversions}"
        );
        source.parse().expect("it is valid Rust")
    }
}

impl Variant {
    fn blame(&self, codec: &str) -> String {
        let name = &self.name;
        match &self.meaning {
            Meaning::Blamed { blame, .. } => format!("Self::{name} {{ .. }} => {codec}::Blame::{blame},"),
            Meaning::From => format!("Self::{name}(error) => {codec}::Fault::blame(error),"),
        }
    }

    fn display(&self) -> String {
        let name = &self.name;
        match (&self.meaning, &self.fields) {
            (Meaning::From, _) => format!("Self::{name}(error) => ::core::fmt::Display::fmt(error, f),"),
            (Meaning::Blamed { text, .. }, Fields::Named) => {
                format!("Self::{name} {{ {} .. }} => ::core::write!(f, {}),", text.list(), text.literal)
            }
            (Meaning::Blamed { text, .. }, Fields::Unit | Fields::Tuple(_)) => {
                let numbered = text.names.iter().map(|name| {
                    let number = name.trim_start_matches(NUMBERED);
                    format!("{number}: {name}, ")
                });
                format!(
                    "Self::{name} {{ {} .. }} => ::core::write!(f, {}),",
                    numbered.collect::<String>(),
                    text.literal
                )
            }
        }
    }

    fn conversion(&self, of: &str) -> String {
        match (&self.meaning, &self.fields) {
            (Meaning::From, Fields::Tuple(types)) => {
                let (name, within) = (&self.name, &types[0]);
                format!(
                    "impl ::core::convert::From<{within}> for {of} {{
                        fn from(error: {within}) -> Self {{ Self::{name}(error) }}
                    }}"
                )
            }
            _ => String::new(),
        }
    }
}

impl Text {
    /// Reads a string literal. A number in braces becomes the name of a field: `{0}` is `{field_0}`.
    fn read(literal: &str) -> Option<Self> {
        let mut rest = literal.strip_prefix('"')?;
        let (mut written, mut names) = ("\"".to_owned(), Vec::new());
        while let Some((before, after)) = rest.split_once('{') {
            written.push_str(before);
            written.push('{');
            if let Some(escaped) = after.strip_prefix('{') {
                written.push('{');
                rest = escaped;
                continue;
            }
            // The braces of `\u{7d}` hold no name.
            if before.ends_with("\\u") {
                rest = after;
                continue;
            }
            let end = after.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(after.len());
            let name = &after[..end];
            let name = if name.starts_with(|first: char| first.is_ascii_digit()) {
                format!("{NUMBERED}{name}")
            } else {
                name.to_owned()
            };
            written.push_str(&name);
            // A constant is in scope where the enum is.
            let is_field = !name.starts_with(|first: char| first.is_ascii_uppercase());
            if is_field && !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
            rest = &after[end..];
        }
        written.push_str(rest);
        Some(Self { literal: written, names })
    }

    fn list(&self) -> String {
        self.names.iter().map(|name| format!("{name}, ")).collect()
    }
}

/// The contents of `#[fault(..)]` among these tokens.
fn attributes(tokens: &[TokenTree]) -> impl Iterator<Item = Group> {
    tokens.iter().filter_map(|token| {
        let TokenTree::Group(attribute) = token else { return None };
        let tokens: Vec<_> = attribute.stream().into_iter().collect();
        match &tokens[..] {
            [TokenTree::Ident(name), TokenTree::Group(content)] if name.to_string() == "fault" => Some(content.clone()),
            _ => None,
        }
    })
}

/// The path in `crate = path`.
fn path_of_crate(attribute: &Group) -> Option<String> {
    let mut tokens = attribute.stream().into_iter();
    let (keyword, equals) = (tokens.next()?, tokens.next()?);
    let is_path = keyword.to_string() == "crate" && equals.to_string() == "=";
    is_path.then(|| tokens.collect::<TokenStream>().to_string())
}

fn variants(tokens: &[TokenTree]) -> Result<Vec<Variant>, Mistake> {
    let mut variants = Vec::new();
    for tokens in parts(tokens) {
        let name = tokens.iter().position(|token| matches!(token, TokenTree::Ident(_)));
        let Some(name) = name else { continue };
        let (before, rest) = tokens.split_at(name);
        let fields = match rest.get(1) {
            Some(TokenTree::Group(fields)) if fields.delimiter() == Delimiter::Parenthesis => {
                let fields: Vec<_> = fields.stream().into_iter().collect();
                Fields::Tuple(parts(&fields).map(type_of).collect())
            }
            Some(TokenTree::Group(_)) => Fields::Named,
            _ => Fields::Unit,
        };
        let attribute = attributes(before).next().ok_or_else(|| Mistake(rest[0].span(), NO_ATTRIBUTE))?;
        let meaning = meaning(&attribute)?;
        let has_error = matches!(&fields, Fields::Tuple(types) if types.len() == 1);
        if matches!(meaning, Meaning::From) && !has_error {
            return Err(Mistake(
                attribute.span(),
                "a variant that is made from another error has that as its only field",
            ));
        }
        variants.push(Variant { name: rest[0].to_string(), fields, meaning });
    }
    Ok(variants)
}

fn meaning(attribute: &Group) -> Result<Meaning, Mistake> {
    let tokens: Vec<_> = attribute.stream().into_iter().collect();
    let mistake = || Mistake(attribute.span(), NO_ATTRIBUTE);
    match &tokens[..] {
        [TokenTree::Ident(word)] if word.to_string() == "from" => Ok(Meaning::From),
        [TokenTree::Ident(blame), TokenTree::Punct(comma), TokenTree::Literal(text)] if comma.as_char() == ',' => {
            let blame = match &*blame.to_string() {
                "peer" => "Peer",
                "caller" => "Caller",
                "limit" => "Limit",
                "system" => "System",
                _ => return Err(mistake()),
            };
            Ok(Meaning::Blamed { blame, text: Text::read(&text.to_string()).ok_or_else(mistake)? })
        }
        _ => Err(mistake()),
    }
}

/// The parts between commas that are not within the parameters of a type.
fn parts(tokens: &[TokenTree]) -> impl Iterator<Item = &[TokenTree]> {
    let mut depth = 0_usize;
    let parts = tokens.split(move |token| {
        let TokenTree::Punct(token) = token else { return false };
        match token.as_char() {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        token.as_char() == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

/// The type of a field, without its attributes.
fn type_of(field: &[TokenTree]) -> String {
    let mut field = field;
    while let [TokenTree::Punct(hash), TokenTree::Group(_), rest @ ..] = field {
        if hash.as_char() != '#' {
            break;
        }
        field = rest;
    }
    field.iter().cloned().collect::<TokenStream>().to_string()
}

/// How the fields of a tuple are called in a text.
const NUMBERED: &str = "field_";

const NOT_AN_ENUM: &str = "errors that are sorted by blame are an enum";
const NO_ATTRIBUTE: &str =
    "each variant has `#[fault(peer, \"a text\")]`, with `peer`, `caller`, `limit` or `system`, or `#[fault(from)]`";
