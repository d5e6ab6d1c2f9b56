//! Several ranges in one response: `multipart/byteranges` (RFC 9110 §14.6).
//!
//! The heads of the parts are in memory, the parts are regions of the file. All lengths are known beforehand, so the
//! response has a length.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use tidegate_buffer::FileRegion;
use tidegate_http_message::Body;

/// The body, and its media type.
pub(super) fn multipart(file: &Arc<File>, length: u64, content_type: &str, ranges: Vec<Range<u64>>) -> (Body, String) {
    let boundary = boundary();
    let mut parts = Vec::with_capacity(ranges.len());
    let mut body_length = 0;
    for (index, range) in ranges.into_iter().enumerate() {
        let line_end = if index == 0 { "" } else { "\r\n" };
        let content_range = content_range(&range, length);
        let head =
            format!("{line_end}--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {content_range}\r\n\r\n");
        let region = FileRegion { file: file.clone(), offset: range.start, length: range.end - range.start };
        body_length += head.len() as u64 + region.length;
        parts.push((head, region));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    body_length += end.len() as u64;
    let body = Body::produce(async move |writer| {
        for (head, region) in parts {
            writer.write(head).await?;
            writer.write_file(region).await?;
        }
        writer.write(end).await?;
        Ok(())
    });
    (body.with_length(body_length), format!("multipart/byteranges; boundary={boundary}"))
}

/// The value of `Content-Range`.
pub(super) fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// A text that no file has, unless by a chance of one in 2^128.
fn boundary() -> String {
    // The keys of both are random.
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
