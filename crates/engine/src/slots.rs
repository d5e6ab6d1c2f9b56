//! `Slots`: where a loop's connections and listeners are, in pages that are given back when empty.
//!
//! An occupant is *taken out* of its slot while it is visited, and put back afterwards: absence is what keeps it
//! from being entered twice.

use tidegate_sys::Token;

use crate::connection::Occupant;
use crate::wheel::{Node, Nodes};

#[derive(Default)]
pub(crate) struct Slots {
    pages: Vec<Option<Box<Page>>>,
    /// Pages that may have room.
    roomy: Vec<u32>,
    generation: u32,
    len: usize,
}

struct Page {
    slots: [Slot; PAGE_SLOTS],
    used: u32,
    listed: bool,
}

#[derive(Default)]
struct Slot {
    node: Node,
    occupant: Option<Box<dyn Occupant>>,
    /// Zero while it is vacant.
    generation: u32,
}

impl Slots {
    /// Gives a slot away. It is empty until something is put there.
    pub(crate) fn reserve(&mut self) -> Token {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        let number = self.page_with_room();
        let page = self.page(number).expect("a page with room exists");
        let place = page.slots.iter().position(|slot| slot.generation == 0).expect("the page has room");
        page.used += 1;
        let generation = self.generation;
        self.page(number).expect("it was just there").slots[place].generation = generation;
        self.len += 1;
        Token { slot: number * PAGE_SLOTS as u32 + place as u32, generation }
    }

    /// Takes an occupant out to visit it; `None` if it is out already, or gone.
    #[inline]
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<dyn Occupant>> {
        self.slot(token)?.occupant.take()
    }

    /// Puts an occupant back.
    #[inline]
    pub(crate) fn put(&mut self, token: Token, occupant: Box<dyn Occupant>) {
        if let Some(slot) = self.slot(token) {
            slot.occupant = Some(occupant);
        }
    }

    /// Gives a slot up. Its node must have been forgotten.
    pub(crate) fn release(&mut self, token: Token) {
        let Some(slot) = self.slot(token) else { return };
        *slot = Slot::default();
        self.len -= 1;
        let number = token.slot / PAGE_SLOTS as u32;
        let page = self.pages[number as usize].as_mut().expect("the slot was in it");
        page.used -= 1;
        if page.used == 0 {
            self.pages[number as usize] = None;
        } else if !page.listed {
            page.listed = true;
            self.roomy.push(number);
        }
    }

    /// Slots that are given away.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the token's slot has not been given up.
    pub(crate) fn contains(&mut self, token: Token) -> bool {
        self.slot(token).is_some()
    }

    /// Everything that is in its slot, with its token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &dyn Occupant)> {
        self.pages.iter().enumerate().flat_map(|(number, page)| {
            let slots = page.iter().flat_map(|page| &page.slots).enumerate();
            slots.filter_map(move |(place, slot)| {
                let token = Token { slot: (number * PAGE_SLOTS + place) as u32, generation: slot.generation };
                Some((token, &**slot.occupant.as_ref()?))
            })
        })
    }

    /// The token of whoever has a slot now.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        let page = self.pages.get(slot as usize / PAGE_SLOTS)?.as_ref()?;
        let generation = page.slots[slot as usize % PAGE_SLOTS].generation;
        (generation != 0).then_some(Token { slot, generation })
    }

    #[inline]
    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let page = self.pages.get_mut(token.slot as usize / PAGE_SLOTS)?.as_mut()?;
        let slot = &mut page.slots[token.slot as usize % PAGE_SLOTS];
        (slot.generation == token.generation).then_some(slot)
    }

    fn page(&mut self, number: u32) -> Option<&mut Page> {
        self.pages.get_mut(number as usize)?.as_deref_mut()
    }

    fn page_with_room(&mut self) -> u32 {
        while let Some(&number) = self.roomy.last() {
            match self.page(number) {
                Some(page) if (page.used as usize) < PAGE_SLOTS => return number,
                Some(page) => page.listed = false,
                None => {}
            }
            self.roomy.pop();
        }
        let number = self.pages.iter().position(Option::is_none).unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() - 1
        });
        self.pages[number] =
            Some(Box::new(Page { slots: std::array::from_fn(|_| Slot::default()), used: 0, listed: true }));
        self.roomy.push(number as u32);
        number as u32
    }
}

impl Nodes for Slots {
    #[inline]
    fn node(&mut self, index: u32) -> &mut Node {
        let page = self.pages[index as usize / PAGE_SLOTS].as_mut();
        &mut page.expect("a slot with a timer is not given up").slots[index as usize % PAGE_SLOTS].node
    }
}

const PAGE_SLOTS: usize = 64;

const _: () = assert!(size_of::<Slot>() == 40);
