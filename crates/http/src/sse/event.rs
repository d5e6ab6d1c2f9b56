//! `Event`: one event of an event stream, as it is sent.

use std::error::Error;
use std::fmt::{self, Write};
use std::time::Duration;

/// One event of a stream of Server-Sent Events: data, a name, an id, a time to wait before reconnecting, comments. A client
/// dispatches only events with data.
///
/// ```
/// use tidegate::http::Event;
///
/// let event = Event::new().id("7")?.name("tide")?.data("high water\nat 14:05");
/// assert_eq!(event.to_string(), "id: 7\nevent: tide\ndata: high water\ndata: at 14:05\n\n");
/// # Ok::<(), tidegate::http::InvalidEvent>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The lines without the empty one at the end.
    lines: String,
}

/// Why an event cannot be sent. Nothing was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidEvent {
    /// The id has line ends or NUL, with which clients ignore it.
    Id,
    /// The name has line ends.
    Name,
}

impl Event {
    /// An event without anything.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: String::new() }
    }

    /// Adds data. Each line of it is a line of the event, and the client receives them with LF between them; CR and CRLF
    /// end lines as well.
    #[must_use]
    pub fn data(mut self, data: impl AsRef<str>) -> Self {
        for line in lines(data.as_ref()) {
            self.push("data: ", line);
        }
        self
    }

    /// Adds a value as JSON as data.
    ///
    /// # Errors
    /// That of the value, if it cannot be serialized.
    #[cfg(feature = "json")]
    pub fn json(self, value: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.data(serde_json::to_string(value)?))
    }

    /// Adds a name, by which a client chooses a listener; `message` without one.
    ///
    /// # Errors
    /// [`InvalidEvent::Name`] if it has line ends.
    pub fn name(mut self, name: &str) -> Result<Self, InvalidEvent> {
        if name.contains(['\r', '\n']) {
            return Err(InvalidEvent::Name);
        }
        self.push("event: ", name);
        Ok(self)
    }

    /// Adds an id. A client that reconnects sends the last one: [`LastEventId`](crate::LastEventId).
    ///
    /// # Errors
    /// [`InvalidEvent::Id`] if it has line ends or NUL.
    pub fn id(mut self, id: &str) -> Result<Self, InvalidEvent> {
        if id.contains(['\r', '\n', '\0']) {
            return Err(InvalidEvent::Id);
        }
        self.push("id: ", id);
        Ok(self)
    }

    /// Adds how long a client waits before it reconnects, in whole milliseconds.
    #[must_use]
    pub fn retry(mut self, delay: Duration) -> Self {
        // Writing to a text does not fail.
        let _ = writeln!(self.lines, "retry: {}", delay.as_millis());
        self
    }

    /// Adds a comment, which clients skip.
    #[must_use]
    pub fn comment(mut self, comment: &str) -> Self {
        for line in lines(comment) {
            self.push(": ", line);
        }
        self
    }

    fn push(&mut self, name: &str, value: &str) {
        self.lines.reserve(name.len() + value.len() + 2);
        for piece in [name, value, "\n"] {
            self.lines.push_str(piece);
        }
    }

    pub(crate) fn into_text(mut self) -> String {
        self.lines.push('\n');
        self.lines
    }
}

/// The lines of a text: with CR, LF or CRLF between them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let Some(end) = all.find(['\r', '\n']) else { return rest.take() };
        let after = &all[end..];
        rest = Some(after.strip_prefix("\r\n").unwrap_or(&after[1..]));
        Some(&all[..end])
    })
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.lines)
    }
}

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "the id of an event has line ends or NUL",
            Self::Name => "the name of an event has line ends",
        })
    }
}

impl Error for InvalidEvent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_split_at_every_kind_of_line_end() {
        for (data, expected) in [
            ("", "data: \n\n"),
            ("a", "data: a\n\n"),
            ("a\nb\r\nc\rd", "data: a\ndata: b\ndata: c\ndata: d\n\n"),
            ("a\n", "data: a\ndata: \n\n"),
            ("\r\r\n\n", "data: \ndata: \ndata: \ndata: \n\n"),
            ("a\n\nid: 7", "data: a\ndata: \ndata: id: 7\n\n"),
        ] {
            assert_eq!(Event::new().data(data).into_text(), expected, "{data:?}");
        }
    }

    #[test]
    fn line_ends_in_ids_and_names_are_errors() {
        for text in ["a\nb", "a\rb", "\r\n", "\n"] {
            assert_eq!(Event::new().id(text), Err(InvalidEvent::Id));
            assert_eq!(Event::new().name(text), Err(InvalidEvent::Name));
        }
        assert_eq!(Event::new().id("a\0"), Err(InvalidEvent::Id));
        let event = Event::new().comment("a\nb").retry(Duration::from_secs(3)).id("").unwrap().name("n").unwrap();
        assert_eq!(event.into_text(), ": a\n: b\nretry: 3000\nid: \nevent: n\n\n");
    }
}
