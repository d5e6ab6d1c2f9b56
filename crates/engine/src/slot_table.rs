//! `SlotTable`: a loop's values for some of its connections, by slot, in pages that come and go with them. A loop in
//! which no connection has such a value stores nothing.

/// Values by slot.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    pages: Vec<Option<Box<Page<T>>>>,
}

#[derive(Debug)]
struct Page<T> {
    used: u64,
    values: [T; PAGE],
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T: Copy + Default> SlotTable<T> {
    pub(crate) fn get(&self, slot: u32) -> Option<T> {
        let page = self.pages.get(slot as usize / PAGE)?.as_ref()?;
        (page.used & bit(slot) != 0).then(|| page.values[slot as usize % PAGE])
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(slot as usize / PAGE)?.as_mut()?;
        (page.used & bit(slot) != 0).then(|| &mut page.values[slot as usize % PAGE])
    }

    pub(crate) fn set(&mut self, slot: u32, value: T) {
        let number = slot as usize / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(|| Box::new(Page { used: 0, values: [T::default(); PAGE] }));
        page.used |= bit(slot);
        page.values[slot as usize % PAGE] = value;
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(place) = self.pages.get_mut(slot as usize / PAGE) else { return };
        let Some(page) = place else { return };
        page.used &= !bit(slot);
        if page.used == 0 {
            *place = None;
            while self.pages.last().is_some_and(Option::is_none) {
                self.pages.pop();
            }
        }
    }
}

const fn bit(slot: u32) -> u64 {
    1 << (slot as usize % PAGE)
}

/// Values in a page.
const PAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::SlotTable;

    #[test]
    fn pages_come_and_go_with_their_values() {
        let mut table = SlotTable::default();
        for slot in [3, 64, 700] {
            table.set(slot, slot);
        }
        assert_eq!(table.pages.iter().flatten().count(), 3);
        assert_eq!([3, 4, 64, 700].map(|slot| table.get(slot)), [Some(3), None, Some(64), Some(700)]);
        *table.get_mut(64).expect("it was set") += 1;
        [3, 700, 900].iter().for_each(|slot| table.remove(*slot));
        assert_eq!((table.pages.len(), table.get(64)), (2, Some(65)));
        table.remove(64);
        assert!(table.pages.is_empty());
    }
}
