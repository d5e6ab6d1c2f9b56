//! `Pages`: a table whose places are named by tokens, in pages that are given back when they are empty, but for one: a place
//! that is reserved and freed again and again would make a page each time.
//!
//! A place that is freed and reserved again has another generation, so a stale token finds nothing there.

use tidegate_buffer::injected::{self, Bug};
use tidegate_sys::Token;

pub(crate) struct Pages<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    /// Pages that may have room.
    non_full: Vec<u32>,
    /// Numbers of pages that were given back.
    vacant: Vec<u32>,
    generation: u32,
    len: usize,
    /// Whether an empty page is kept.
    has_empty: bool,
}

struct Page<T> {
    places: [PageSlot<T>; PAGE_PLACES],
    /// The places in use, as bits.
    used: u64,
    listed: bool,
}

const _: () = assert!(PAGE_PLACES == u64::BITS as usize);

#[derive(Default)]
struct PageSlot<T> {
    value: T,
    /// Zero while it is vacant.
    generation: u32,
}

impl<T: Default> Pages<T> {
    /// Reserves a place. Its value is the default one.
    pub(crate) fn reserve(&mut self) -> Token {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        let number = self.page_with_room();
        let generation = self.generation;
        let page = self.page(number).expect("a page with room exists");
        let mut index = page.used.trailing_ones() as usize;
        if injected::is_injected(Bug::DoubleSlotAllocation) && index > 2 {
            index -= 1;
        }
        let was_empty = page.used == 0;
        page.used |= 1 << index;
        page.places[index].generation = generation;
        self.has_empty &= !was_empty;
        self.len += 1;
        Token { slot: number * PAGE_PLACES as u32 + index as u32, generation }
    }

    /// Frees a place, and returns its value.
    pub(crate) fn release(&mut self, token: Token) -> Option<T> {
        let place = self.place(token)?;
        let value = std::mem::take(place).value;
        self.len -= 1;
        let number = token.slot / PAGE_PLACES as u32;
        let page = self.pages[number as usize].as_mut().expect("the place was in it");
        page.used &= !(1 << (token.slot as usize % PAGE_PLACES));
        if page.used == 0 && std::mem::replace(&mut self.has_empty, true) {
            self.pages[number as usize] = None;
            self.vacant.push(number);
        } else if !page.listed {
            page.listed = true;
            self.non_full.push(number);
        }
        Some(value)
    }

    /// The value at a place, unless the place was freed.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        self.place(token).map(|place| &mut place.value)
    }

    /// The same, to look at.
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let page = self.pages.get(token.slot as usize / PAGE_PLACES)?.as_ref()?;
        let place = &page.places[token.slot as usize % PAGE_PLACES];
        (token.generation != 0 && place.generation == token.generation).then_some(&place.value)
    }

    /// The value at a place, of any generation.
    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(slot as usize / PAGE_PLACES)?.as_mut()?;
        Some(&mut page.places[slot as usize % PAGE_PLACES].value)
    }

    /// The present token of a place.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        let page = self.pages.get(slot as usize / PAGE_PLACES)?.as_ref()?;
        let generation = page.places[slot as usize % PAGE_PLACES].generation;
        (generation != 0).then_some(Token { slot, generation })
    }

    /// Places in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All places in use, with their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.iter_between(0, self.end())
    }

    /// The same of the places from a multiple of [`PAGE_PLACES`] on, up to another one.
    pub(crate) fn iter_between(&self, from: u32, to: u32) -> impl Iterator<Item = (Token, &T)> {
        let last = (to as usize / PAGE_PLACES).min(self.pages.len());
        let first = (from as usize / PAGE_PLACES).min(last);
        self.pages[first..last].iter().zip(first..).flat_map(|(page, number)| {
            let places = page.iter().flat_map(|page| &page.places).enumerate();
            places.filter(|(_, place)| place.generation != 0).map(move |(index, place)| {
                (Token { slot: (number * PAGE_PLACES + index) as u32, generation: place.generation }, &place.value)
            })
        })
    }

    /// One more than the highest place that may be in use.
    pub(crate) fn end(&self) -> u32 {
        (self.pages.len() * PAGE_PLACES) as u32
    }

    #[inline]
    fn place(&mut self, token: Token) -> Option<&mut PageSlot<T>> {
        let page = self.pages.get_mut(token.slot as usize / PAGE_PLACES)?.as_mut()?;
        let place = &mut page.places[token.slot as usize % PAGE_PLACES];
        (place.generation == token.generation).then_some(place)
    }

    fn page(&mut self, number: u32) -> Option<&mut Page<T>> {
        self.pages.get_mut(number as usize)?.as_deref_mut()
    }

    fn page_with_room(&mut self) -> u32 {
        while let Some(&number) = self.non_full.last() {
            match self.page(number) {
                Some(page) if page.used != u64::MAX => return number,
                Some(page) => page.listed = false,
                None => {}
            }
            self.non_full.pop();
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() as u32 - 1
        });
        let places = std::array::from_fn(|_| PageSlot::default());
        self.pages[number as usize] = Some(Box::new(Page { places, used: 0, listed: true }));
        self.non_full.push(number);
        number
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), non_full: Vec::new(), vacant: Vec::new(), generation: 0, len: 0, has_empty: false }
    }
}

/// Bytes that one place of a table of `T` takes.
pub(crate) const fn place_bytes<T>() -> usize {
    size_of::<PageSlot<T>>()
}

/// Places in a page.
pub(crate) const PAGE_PLACES: usize = 64;
