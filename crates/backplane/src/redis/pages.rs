//! `read`: the history of a room, in pages.
//!
//! A reply has a bound, and a history may be longer: another node may have other bounds, and another program may add to it. So the
//! script returns pages. All of them together are the history at the time of the first page: later messages reach the node
//! through its subscription. Messages that are trimmed between two pages are missing, which the feed reports as a gap.

use std::collections::VecDeque;

use tidegate_engine::Position;
use tidegate_redis::{Client, OwnedValue};

use super::scripts::READ;
use crate::broker::{History, HistoryBounds, HistoryEntry};

/// The bounds of a page, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageBounds {
    /// The page ends with the entry that reaches it.
    pub(super) page_max: usize,
    /// A longer entry of a history cannot be read.
    entry_max: usize,
    /// A longer list of members comes without its names, and a longer kick not at all. A page may end with one of each.
    pub(super) list_max: usize,
}

impl PageBounds {
    /// Those of a client with this bound of replies.
    pub(super) fn of(reply_bytes_max: usize) -> Self {
        let page_max = (reply_bytes_max / 8).min(PAGE_BYTES_MAX);
        Self { page_max, entry_max: reply_bytes_max / 2, list_max: reply_bytes_max / 4 }
    }
}

/// The history that was read, or that one of its keys is foreign.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadHistory {
    History(History),
    Foreign,
}

/// Reads the history of a channel. `None` if the server does not answer so.
pub(super) async fn read(
    client: &Client,
    channel: &str,
    from: Option<Position>,
    (bounds, page): (HistoryBounds, PageBounds),
) -> Option<ReadHistory> {
    let mut pages = Pages { bounds, top: None, entries: VecDeque::new(), bytes: 0 };
    let mut from = from.unwrap_or(Position { epoch: 0, offset: 0 });
    loop {
        let keys = [format!("{channel}:m"), format!("{channel}:h")];
        let wanted = [format!("{:016x}", from.epoch), from.offset.to_string()];
        let arguments = wanted.into_iter().chain([page.page_max, page.entry_max].map(|bytes| bytes.to_string()));
        let reply = READ.run(client, keys, arguments).await.ok()?;
        let OwnedValue::Aggregate(_, parts) = reply else { return None };
        if matches!(&parts[..], [OwnedValue::Bulk(word)] if word == "foreign") {
            return Some(ReadHistory::Foreign);
        }
        match pages.add(Page::of(&parts)?)? {
            Some(next) => from = next,
            None => return Some(ReadHistory::History(pages.into_history())),
        }
    }
}

/// A reply of the script.
struct Page {
    /// The position of the last message; none if the room has no history.
    top: Option<Position>,
    /// The offset of the first entry, or of the one that follows.
    first: u64,
    entries: Vec<HistoryEntry>,
}

impl Page {
    fn of(parts: &[OwnedValue]) -> Option<Self> {
        let [epoch, last, first, OwnedValue::Aggregate(_, entries)] = parts else {
            return parts.is_empty().then(|| Self { top: None, first: 1, entries: Vec::new() });
        };
        let epoch = u64::from_str_radix(&text_of(epoch)?, 16).ok()?;
        let (last, first): (u64, i64) = (text_of(last)?.parse().ok()?, text_of(first)?.parse().ok()?);
        // There may be entries that others have added: more than messages.
        let first = first.max(1).unsigned_abs();
        let entry = |(offset, entry): (u64, &OwnedValue)| match entry {
            OwnedValue::Bulk(bytes) => Some(HistoryEntry { offset, bytes: bytes.clone() }),
            _ => None,
        };
        let entries =
            (first..).zip(entries).take_while(|(offset, _)| *offset <= last).map(entry).collect::<Option<_>>()?;
        Some(Self { top: (last > 0).then_some(Position { epoch, offset: last }), first, entries })
    }
}

/// The pages that were read: the last entries within the bounds of the history.
struct Pages {
    bounds: HistoryBounds,
    /// The position of the last message at the first page.
    top: Option<Position>,
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
}

impl Pages {
    /// Adds a page. Returns the first message of the next one; none if this was the last.
    ///
    /// `None` if the epoch has changed meanwhile.
    fn add(&mut self, page: Page) -> Option<Option<Position>> {
        let is_first = self.top.is_none();
        let Some(page_top) = page.top else { return is_first.then_some(None) };
        let top = *self.top.get_or_insert(page_top);
        if page_top.epoch != top.epoch || page_top.offset < top.offset {
            return None;
        }
        // Some were trimmed, or are too long.
        if self.entries.back().is_some_and(|last| page.first != last.offset + 1) {
            (self.entries, self.bytes) = (VecDeque::new(), 0);
        }
        let next = page.first.saturating_add(page.entries.len() as u64);
        for entry in page.entries.into_iter().filter(|entry| entry.offset <= top.offset) {
            self.bytes += entry.bytes.len();
            self.entries.push_back(entry);
            while self.entries.len() > self.bounds.messages_max || self.bytes > self.bounds.bytes_max {
                let Some(oldest) = self.entries.pop_front() else { break };
                self.bytes -= oldest.bytes.len();
            }
        }
        Some((next <= top.offset).then_some(Position { offset: next, ..top }))
    }

    fn into_history(self) -> History {
        History { position: self.top, entries: self.entries.into(), after: None }
    }
}

/// The text of a bulk string.
pub(super) fn text_of(value: &OwnedValue) -> Option<String> {
    match value {
        OwnedValue::Bulk(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

/// The longest page, but for its last entry. Redis makes it within one script, and other commands wait.
const PAGE_BYTES_MAX: usize = 4 << 20;
