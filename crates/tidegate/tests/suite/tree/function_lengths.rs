//! A function fits on a screen: it has at most 60 lines, from its name to the brace that closes it.
//!
//! The check reads the text of a file, without comments, strings and characters, and counts braces.

use std::collections::BTreeMap;

use super::sources::{differences, rust_files};

const LINES_MAX: usize = 60;

/// Longer functions, by their crates. The list may only shrink.
const LONGER: &[(&str, usize)] = &[
    ("crates/http: messages_of_web_sockets_are_compressed_and_decompressed_within_the_bound_of_a_turn", 64),
    ("crates/http2: find_name", 112),
    ("crates/http2: heads_are_those_of_a_decoder_without_memory", 70),
];

/// Files that a program has written.
const GENERATED: &[&str] = &["benches/arena/src/benchmark.rs", "examples/grpc/tides.v1.rs"];

#[test]
fn a_function_has_at_most_60_lines() {
    let mut found = BTreeMap::new();
    for (path, source) in rust_files(&["benches", "crates", "examples", "fuzz", "xtask"]) {
        if GENERATED.contains(&&*path) {
            continue;
        }
        for function in functions(&source).into_iter().filter(|function| function.lines > LINES_MAX) {
            let folder: Vec<_> = path.split('/').take(2).collect();
            let lines = found.entry(format!("{}: {}", folder.join("/"), function.name)).or_default();
            *lines = function.lines.max(*lines);
        }
    }
    let differences = differences(&found, LONGER);
    assert!(differences.is_empty(), "lines of functions:\n{}", differences.join("\n"));
}

#[derive(Debug, Eq, PartialEq)]
struct Function {
    name: String,
    lines: usize,
}

/// The functions in a source that have a body.
fn functions(source: &str) -> Vec<Function> {
    let code = code_of(source);
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_of_word));
    starts
        .filter_map(|(at, keyword)| {
            let rest = code[at + keyword.len()..].trim_start();
            let name: String = rest.chars().take_while(|next| is_of_word(*next)).collect();
            let end = end_of_body(rest)?;
            let lines = code[at..code.len() - rest.len() + end].matches('\n').count() + 1;
            (!name.is_empty()).then_some(Function { name, lines })
        })
        .collect()
}

fn is_of_word(next: char) -> bool {
    next.is_alphanumeric() || next == '_'
}

/// Where the body ends of the function whose signature `code` begins with; nothing if it has none.
fn end_of_body(code: &str) -> Option<usize> {
    let (mut parentheses, mut braces) = (0_usize, 0_usize);
    for (at, next) in code.char_indices() {
        match next {
            '(' | '[' if braces == 0 => parentheses += 1,
            ')' | ']' if braces == 0 => parentheses = parentheses.checked_sub(1)?,
            ';' if braces == 0 && parentheses == 0 => return None,
            '{' if braces > 0 || parentheses == 0 => braces += 1,
            '}' if braces == 1 => return Some(at + 1),
            '}' if braces > 0 => braces -= 1,
            _ => {}
        }
    }
    None
}

/// A source without its comments, and with empty strings and characters. Line ends stay.
fn code_of(source: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(next) = rest.chars().next() {
        let is_in_word = code.ends_with(is_of_word);
        let (skipped, kept) = match next {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), ""),
            '/' if rest.starts_with("/*") => (block_comment(rest), ""),
            '"' => (string(rest), "\"\""),
            'r' | 'b' if !is_in_word && raw_string(rest).is_some() => (raw_string(rest).unwrap_or(1), "\"\""),
            '\'' if character(rest).is_some() => (character(rest).unwrap_or(1), "''"),
            _ => (next.len_utf8(), &rest[..next.len_utf8()]),
        };
        let (text, after) = rest.split_at(skipped);
        code.push_str(kept);
        if kept != text {
            code.extend(text.chars().filter(|next| *next == '\n'));
        }
        rest = after;
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let begin = text.strip_prefix('b').unwrap_or(text).strip_prefix('r')?;
    let hashes = begin.len() - begin.trim_start_matches('#').len();
    let content = begin[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// A character, and not a lifetime.
fn character(text: &str) -> Option<usize> {
    let content = &text[1..];
    if let Some(escaped) = content.strip_prefix('\\') {
        let after = escaped.chars().next()?.len_utf8();
        return Some(2 + after + escaped[after..].find('\'')? + 1);
    }
    let first = content.chars().next()?.len_utf8();
    content[first..].starts_with('\'').then_some(1 + first + 1)
}

#[test]
fn a_function_is_measured_from_its_name_to_its_last_brace() {
    let source = r##"
        /// fn in_a_comment() {
        pub fn three<'a>(text: &'a str) -> [u8; 2] {
            let braces = ('{', b'}', "fn text() { \" {", r#"{ " {"#, '\'', '\u{7b}');
        }
        trait Several {
            fn without_a_body(&self, bytes: [u8; 4]);
            fn one(&self) -> bool { /* } /* } */ */ true }
        }
        macro_rules! within { () => { fn two() {
        } } }
        fn outer() {
            fn inner() {
            }
        }
    "##;
    let found = functions(source);
    let expected = [("three", 3), ("one", 1), ("two", 2), ("outer", 4), ("inner", 2)];
    let expected = expected.map(|(name, lines)| Function { name: name.to_owned(), lines });
    assert_eq!(found, expected);
}

#[test]
fn a_long_function_is_found() {
    let source = format!("impl T {{ async fn long(&self) {{{}}} }}", "\n".repeat(LINES_MAX));
    assert_eq!(functions(&source), [Function { name: "long".to_owned(), lines: LINES_MAX + 1 }]);
}
