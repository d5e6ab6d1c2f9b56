//! `RedisCounts`: replies by command, and error replies by their first word.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The counts of a load of Redis commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RedisCounts {
    /// By their places in the mix; PUBLISH alone if messages are published.
    pub(crate) commands: Vec<CommandCounts>,
    pub(crate) errors: ErrorReplies,
    /// Connections with RESP3, and with RESP2 since the server refused HELLO.
    pub(crate) resp3: u64,
    pub(crate) resp2: u64,
    /// The receivers of published messages, as the server counts them.
    pub(crate) receivers: u64,
}

/// The replies to one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandCounts {
    pub(crate) name: String,
    /// All replies.
    pub(crate) replies: u64,
    /// Those without a value.
    pub(crate) nulls: u64,
    pub(crate) errors: u64,
}

/// Error replies by their first word, each with its count and the first whole text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorReplies(pub(crate) BTreeMap<String, (u64, String)>);

impl ErrorReplies {
    /// Counts an error reply. Words beyond the first [`WORDS_MAX`] are counted together.
    pub(crate) fn count(&mut self, text: &[u8]) {
        let text = printable(text);
        let word: String = text.split(' ').next().unwrap_or_default().chars().take(WORD_CHARS_MAX).collect();
        self.add(&word, 1, &text);
    }

    fn add(&mut self, word: &str, count: u64, text: &str) {
        let is_new = !self.0.contains_key(word);
        let word = if is_new && self.0.len() >= WORDS_MAX { "others" } else { word };
        match self.0.get_mut(word) {
            Some((counted, _)) => *counted += count,
            None => drop(self.0.insert(word.to_owned(), (count, text.to_owned()))),
        }
    }
}

/// The beginning of a text without control characters: a terminal and a page show it.
fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

impl AddAssign for RedisCounts {
    fn add_assign(&mut self, other: Self) {
        if self.commands.is_empty() {
            self.commands = other.commands;
        } else {
            for (sum, counts) in self.commands.iter_mut().zip(other.commands) {
                sum.replies += counts.replies;
                sum.nulls += counts.nulls;
                sum.errors += counts.errors;
            }
        }
        for (word, (count, text)) in other.errors.0 {
            self.errors.add(&word, count, &text);
        }
        self.resp3 += other.resp3;
        self.resp2 += other.resp2;
        self.receivers += other.receivers;
    }
}

/// Different first words of error replies. A server that invents words fills no memory.
const WORDS_MAX: usize = 32;

const WORD_CHARS_MAX: usize = 32;

/// The bytes of an error reply that are shown.
const TEXT_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_are_counted_by_their_first_word_in_bounded_memory() {
        let mut errors = ErrorReplies::default();
        errors.count(b"WRONGTYPE Operation against a key");
        errors.count(b"WRONGTYPE another text");
        errors.count(b"ERR \x1b[2J\xff");
        assert_eq!(errors.0["WRONGTYPE"], (2, "WRONGTYPE Operation against a key".to_owned()));
        assert_eq!(errors.0["ERR"].1, "ERR \u{fffd}[2J\u{fffd}");
        for number in 0..10_000 {
            errors.count(format!("CODE{number} {}", "x".repeat(10_000)).as_bytes());
        }
        assert_eq!(errors.0.len(), WORDS_MAX + 1);
        assert_eq!(errors.0.values().map(|(count, _)| count).sum::<u64>(), 10_003);
        assert!(errors.0.values().all(|(_, text)| text.len() <= TEXT_BYTES_MAX));
    }

    #[test]
    fn the_counts_of_threads_add_up() {
        let mut errors = ErrorReplies::default();
        errors.count(b"ERR no");
        let commands = vec![CommandCounts { name: "get".into(), replies: 5, nulls: 2, errors: 1 }];
        let one = RedisCounts { commands, errors, resp3: 1, resp2: 2, receivers: 3 };
        let mut sum = RedisCounts::default();
        sum += one.clone();
        sum += one;
        assert_eq!((sum.commands[0].replies, sum.commands[0].nulls, sum.commands[0].errors), (10, 4, 2));
        assert_eq!((sum.errors.0["ERR"].0, sum.resp3, sum.resp2, sum.receivers), (2, 2, 4, 6));
    }
}
