//! Prose of comments: sentences name their subject, and compounds stand where a genitive would.
//!
//! Two habits are counted: *what* without an antecedent ("What the peer sent is dropped", where "The peer's bytes are
//! dropped" names the subject), and a genitive for a compound ("a client of HTTP" for "an HTTP client").

use super::sources::rust_files;

/// Bounds for all comments of the tree, with a little room for indirect questions. They may only shrink.
const WHAT_MAX: usize = 20;
const GENITIVES_MAX: usize = 12;

const FOLDERS: &[&str] = &["benches", "crates", "examples", "fuzz", "xtask"];

/// Names that make compounds.
const NAMES: &[&str] = &["HTTP", "SOCKS", "TCP", "TLS", "WebSocket", "axum", "gRPC", "hyper", "tokio", "tower"];

/// Words behind a name that begin no compound with it: "of HTTP that", in contrast to "of HTTP requests".
const NO_NOUNS: &[&str] = &[
    "and", "are", "as", "at", "by", "can", "for", "from", "has", "have", "in", "into", "is", "may", "nor", "on", "or",
    "over", "than", "that", "through", "to", "until", "when", "which", "while", "who", "whose", "with", "without",
];

#[test]
fn comments_name_their_subject() {
    assert_count("what without an antecedent", headless_what, WHAT_MAX);
}

#[test]
fn comments_have_compounds_for_genitives() {
    assert_count("genitives for compounds", genitives, GENITIVES_MAX);
}

/// Counts the hits in all comments. Beyond the bound, it lists them.
fn assert_count(habit: &str, count: fn(&str) -> usize, max: usize) {
    let mut hits = Vec::new();
    for (path, source) in rust_files(FOLDERS) {
        for (line, text) in comments(&source) {
            hits.extend((0..count(&text)).map(|_| format!("{path}:{line}: {text}")));
        }
    }
    let found = hits.len();
    assert!(found <= max, "{habit}: {found} in comments, and {max} are allowed\n{}", hits.join("\n"));
}

/// The comments of a source, each joined to one line, without code between backticks; with the number of its first line.
fn comments(source: &str) -> Vec<(usize, String)> {
    let (mut comments, mut is_within) = (Vec::<(usize, String)>::new(), false);
    for (number, line) in source.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        match (comment, comments.last_mut()) {
            (Some(text), Some((_, joined))) if is_within => {
                joined.push(' ');
                joined.push_str(text);
            }
            (Some(text), _) => comments.push((number + 1, text.to_owned())),
            _ => {}
        }
        is_within = comment.is_some();
    }
    for (_, text) in &mut comments {
        *text = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    }
    comments
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|next: char| !next.is_alphanumeric() && !matches!(next, '/' | '.' | '-')).filter(|word| !word.is_empty())
}

fn headless_what(text: &str) -> usize {
    words(text).filter(|word| matches!(*word, "What" | "what")).count()
}

fn genitives(text: &str) -> usize {
    let is_genitive = |(at, of): (usize, &str)| {
        let is_word = text[..at].chars().next_back().is_none_or(char::is_whitespace);
        let rest = &text[at + of.len()..];
        let word = rest.split([' ', ',', ';', ':', '(', ')', '|', '`']).next().unwrap_or_default();
        let name = word.trim_end_matches('.').split('/').next().unwrap_or_default();
        let after = rest[word.len()..].strip_prefix(' ').and_then(|after| words(after).next());
        let ends = word.ends_with('.') || after.is_none_or(|next| NO_NOUNS.contains(&next));
        is_word && ends && NAMES.contains(&name)
    };
    text.match_indices("of ").filter(|found| is_genitive(*found)).count()
}

#[test]
fn a_headless_what_and_a_genitive_are_found() {
    let source =
        "/// What a client of HTTP/1.1 sends, and\n/// what of TLS it knows.\nfn what() {} // what else\n// `what`\n";
    let found = comments(source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(headless_what(&found[0].1), 2);
    assert_eq!(headless_what(&found[1].1), 0);
    assert_eq!(genitives("a client of HTTP/1.1, of tokio; a stream of TLS that ends, a body of HTTP."), 4);
    assert_eq!(genitives("a batch of HTTP/2 streams, an end of TLS records, of HTTP/1.1 requests, of the TLS peer"), 0);
}
