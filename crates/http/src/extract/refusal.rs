//! The responses to requests without the parts that a function needs.

use std::fmt::{self, Display, Write};

use tidegate_http1::{ContentType, Status};

use crate::response::Response;

/// A response with a short text that names the fault of the request.
#[cold]
pub(crate) fn refuse(status: Status, reason: impl Display) -> Response {
    let mut text = BoundedText(String::new());
    // It fails where the bound is reached.
    let _ = write!(text, "{reason}");
    let mut text = text.0;
    text.push('\n');
    Response::with(status).content_type(ContentType::from_static("text/plain; charset=utf-8")).body(text)
}

/// The response to a bug of the application, which the log describes.
#[cold]
pub(crate) fn failed(cause: impl Display) -> Response {
    Response::of_error(Status::INTERNAL_SERVER_ERROR).caused_by(cause)
}

/// A text of at most [`REASON_BYTES_MAX`] bytes. A reason may quote the peer's input.
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = REASON_BYTES_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

const REASON_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let response = refuse(Status::BAD_REQUEST, "ü".repeat(10_000));
        assert_eq!(response.content_length(), Some(513));
        let response = refuse(Status::BAD_REQUEST, format!("x{}", "ü".repeat(10_000)));
        assert_eq!(response.content_length(), Some(512));
        assert_eq!(refuse(Status::BAD_REQUEST, "short").content_length(), Some(6));
    }
}
