//! `Table`: values by id, where the id of a removed value finds nothing.

/// A table. Ids are assigned in the same order in every run, and none twice.
#[derive(Debug)]
pub(super) struct Table<T> {
    places: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// How many values this spot has had before.
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Slot { generation: 0, value: None });
            (self.places.len() - 1) as u32
        });
        let spot = &mut self.places[index as usize];
        spot.value = Some(value);
        number(index, spot.generation)
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.places.get(index_of(id)).filter(|spot| spot.generation == generation_of(id))?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.places.get_mut(index_of(id)).filter(|spot| spot.generation == generation_of(id))?.value.as_mut()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let spot = self.places.get_mut(index_of(id)).filter(|spot| spot.generation == generation_of(id))?;
        let value = spot.value.take()?;
        spot.generation += 1;
        self.free.push(index_of(id) as u32);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (0..).zip(&self.places).filter_map(|(index, spot)| Some((number(index, spot.generation), spot.value.as_ref()?)))
    }
}

const fn number(index: u32, generation: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

const fn index_of(id: u64) -> usize {
    id as u32 as usize
}

const fn generation_of(id: u64) -> u32 {
    (id >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_removed_value_finds_nothing() {
        let mut table = Table::new();
        let (ebb, flow) = (table.insert("ebb"), table.insert("flow"));
        assert_eq!(table.remove(ebb), Some("ebb"));
        let tide = table.insert("tide");
        assert_eq!((table.get(ebb), table.get(tide)), (None, Some(&"tide")));
        assert_eq!((table.get_mut(ebb).copied(), table.remove(ebb)), (None, None));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(tide, &"tide"), (flow, &"flow")]);
    }
}
