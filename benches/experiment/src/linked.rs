//! The change: a linked list of recycled entries, one for each message, and one array of parts for each thread.

use std::hint::black_box;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::queue::{PARTS, Queue, recycle, write_vectored};

/// Where the messages of a thread are allocated: chunk by chunk, each shared by its messages and used again once they
/// are gone. It stands for the pooled allocator that servers of this design have.
pub(crate) struct Arena {
    chunk: BytesMut,
}

impl Arena {
    pub(crate) fn message(&mut self, bytes: &[u8]) -> Bytes {
        self.chunk.reserve(bytes.len());
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self { chunk: BytesMut::with_capacity(CHUNK_BYTES) }
    }
}

/// No queue at all: allocates and fills a message, and lets go of it. What is left of the others is their own.
pub(crate) struct Messages;

impl Queue for Messages {
    const NAME: &'static str = "messages";

    type Shared = Arena;

    fn new(_: &Arena) -> Self {
        Self
    }

    fn push(&mut self, arena: &mut Arena, response: &[u8]) {
        drop(black_box(arena.message(response)));
    }

    fn flush(&mut self, _: &mut Arena) {}
}

pub(crate) struct Linked {
    head: u32,
    unflushed: u32,
    tail: u32,
    pending: u64,
}

struct Entry {
    message: Bytes,
    next: u32,
}

/// What a thread has once.
pub(crate) struct Thread {
    arena: Arena,
    /// Entries never move and are never given back, only used again.
    #[expect(clippy::vec_box, reason = "a page must not move when there are more of them")]
    pages: Vec<Box<[Entry; PAGE_ENTRIES]>>,
    free: u32,
    parts: Vec<IoSlice<'static>>,
}

impl Thread {
    fn insert(&mut self, message: Bytes) -> u32 {
        if self.free == NIL {
            self.add_page();
        }
        let index = self.free;
        let entry = self.entry(index);
        let next = std::mem::replace(&mut entry.next, NIL);
        entry.message = message;
        self.free = next;
        index
    }

    fn remove(&mut self, index: u32) -> u32 {
        let free = self.free;
        let entry = self.entry(index);
        let next = std::mem::replace(&mut entry.next, free);
        entry.message = Bytes::new();
        self.free = index;
        next
    }

    #[cold]
    fn add_page(&mut self) {
        let first = (self.pages.len() * PAGE_ENTRIES) as u32;
        let next = |place| if place + 1 < PAGE_ENTRIES { first + place as u32 + 1 } else { NIL };
        let page = std::array::from_fn(|place| Entry { message: Bytes::new(), next: next(place) });
        self.pages.push(Box::new(page));
        self.free = first;
    }

    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.pages[index as usize / PAGE_ENTRIES][index as usize % PAGE_ENTRIES]
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self { arena: Arena::default(), pages: Vec::new(), free: NIL, parts: Vec::with_capacity(PARTS) }
    }
}

impl Linked {
    fn gather_and_write(&self, thread: &mut Thread) -> usize {
        let mut parts = recycle(std::mem::take(&mut thread.parts));
        let mut index = self.head;
        while index != self.unflushed && parts.len() < PARTS {
            let entry = &thread.pages[index as usize / PAGE_ENTRIES][index as usize % PAGE_ENTRIES];
            parts.push(IoSlice::new(&entry.message));
            index = entry.next;
        }
        let written = write_vectored(&parts);
        thread.parts = recycle(parts);
        written
    }

    fn advance(&mut self, thread: &mut Thread, mut count: usize) {
        self.pending -= count as u64;
        while count > 0 {
            let message = &mut thread.entry(self.head).message;
            let length = message.len();
            if count < length {
                return message.advance(count);
            }
            count -= length;
            self.head = thread.remove(self.head);
        }
        if self.head == NIL {
            self.tail = NIL;
        }
    }
}

impl Queue for Linked {
    const NAME: &'static str = "linked (the change)";

    type Shared = Thread;

    fn new(_: &Thread) -> Self {
        Self { head: NIL, unflushed: NIL, tail: NIL, pending: 0 }
    }

    fn push(&mut self, thread: &mut Thread, response: &[u8]) {
        let message = thread.arena.message(response);
        let length = message.len() as u64;
        let index = thread.insert(message);
        if self.tail == NIL {
            self.head = index;
        } else {
            thread.entry(self.tail).next = index;
        }
        if self.unflushed == NIL {
            self.unflushed = index;
        }
        self.tail = index;
        self.pending += length;
    }

    fn flush(&mut self, thread: &mut Thread) {
        self.unflushed = NIL;
        while self.head != self.unflushed {
            let written = self.gather_and_write(thread);
            self.advance(thread, written);
        }
    }
}

const NIL: u32 = u32::MAX;

const PAGE_ENTRIES: usize = 64;

const CHUNK_BYTES: usize = 16 * 1024;
