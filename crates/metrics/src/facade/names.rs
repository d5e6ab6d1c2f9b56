//! The names and labels that Prometheus allows, and the replacements of others.

use metrics::{Key, Label};

use crate::text::Kind;

/// Names and values of a series, in the order of the names, each name once.
pub(super) type Labels = Vec<(String, String)>;

/// The name of a family: letters, digits, `_` and `:`, and no digit in front.
pub(super) fn name_of(name: &str) -> String {
    let mut allowed = allowed(name, |letter| letter == ':');
    // The sample of a counter has it anyway, and a gauge with it could have the name of that.
    if allowed.len() > TOTAL.len() && allowed.ends_with(TOTAL) {
        allowed.truncate(allowed.len() - TOTAL.len());
    }
    // Those are ours.
    if ["tidegate_", "process_"].iter().any(|ours| allowed.starts_with(ours)) {
        allowed.insert_str(0, "application_");
    }
    allowed
}

/// The labels of a series. Of two with the same name the first counts.
pub(super) fn labels_of<'a>(labels: impl Iterator<Item = &'a Label>, kind: Kind) -> Labels {
    let mut all = Labels::new();
    for label in labels.take(LABELS_MAX) {
        let mut name = allowed(label.key(), |_| false);
        // A histogram has one of this name.
        if kind == Kind::Histogram && name == "le" {
            name.push('_');
        }
        if let Err(place) = all.binary_search_by(|(known, _)| known.cmp(&name)) {
            all.insert(place, (name, cut(label.value(), TEXT_BYTES_MAX).to_owned()));
        }
    }
    all
}

/// Whether no text of a key is cut, and no label left out.
pub(super) fn is_short(key: &Key) -> bool {
    let is_short = |text: &str| text.len() <= TEXT_BYTES_MAX;
    is_short(key.name())
        && key.labels().len() <= LABELS_MAX
        && key.labels().all(|label| is_short(label.key()) && is_short(label.value()))
}

/// The labels of the series that collects all series without room.
pub(super) fn others(mut labels: Labels) -> Labels {
    for (_, value) in &mut labels {
        *value = "other".to_owned();
    }
    labels
}

/// A name of letters, digits, `_` and the characters of `also`.
fn allowed(name: &str, also: impl Fn(char) -> bool) -> String {
    let name = cut(name, TEXT_BYTES_MAX);
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || also(letter) { letter } else { '_' };
    let mut allowed: String = name.chars().map(letter).collect();
    if allowed.is_empty() || allowed.starts_with(|first: char| first.is_ascii_digit()) {
        allowed.insert(0, '_');
    }
    allowed
}

/// The beginning of a text, of at most so many bytes.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Bytes of a name or of the value of a label; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 128;

/// Labels of a series; further ones are left out.
pub const LABELS_MAX: usize = 16;

const TOTAL: &str = "_total";
