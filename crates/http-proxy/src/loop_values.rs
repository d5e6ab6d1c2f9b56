//! `LoopValues`: values of which each loop has one for a key that all loops share.
//!
//! The routers of a loop are made anew by a reload, and a router has a route for each of its hosts and paths. State such as
//! idle connections is not theirs: they share it by its key. Each value lasts as long as one of them has it.
//!
//! Where no loop runs, a value is not shared: several loops may take turns on a thread, and which of them gets the value
//! is not known.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};

use tidegate_engine::task;

/// The values of this thread, for a thread-local variable.
pub(super) struct LoopValues<K, V>(RefCell<Vec<LoopValue<K, V>>>);

struct LoopValue<K, V> {
    loop_number: u64,
    /// Keeps the address of the key from being that of another one.
    key: sync::Weak<K>,
    value: Weak<V>,
}

impl<K, V> LoopValues<K, V> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The value of the loop of this thread for this key, made by the first call; a new one if no loop runs here.
    pub(super) fn get(&self, key: &Arc<K>, make: impl FnOnce() -> V) -> Rc<V> {
        if !task::can_spawn() {
            return Rc::new(make());
        }
        let loop_number = task::loop_number();
        let is_of_key =
            |known: &LoopValue<K, V>| known.loop_number == loop_number && known.key.as_ptr() == Arc::as_ptr(key);
        let known = self.0.borrow().iter().find(|known| is_of_key(known)).and_then(|known| known.value.upgrade());
        known.unwrap_or_else(|| {
            let value = Rc::new(make());
            let mut values = self.0.borrow_mut();
            values.retain(|known| known.value.strong_count() > 0);
            values.push(LoopValue { loop_number, key: Arc::downgrade(key), value: Rc::downgrade(&value) });
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Backend, EventLoop};

    use super::*;

    #[test]
    fn a_loop_has_one_value_for_a_key_while_it_is_used() {
        let values = LoopValues::new();
        let (one, other) = (Arc::new(()), Arc::new(()));
        let mut event_loops = [(); 2].map(|()| EventLoop::on(Backend::Auto).unwrap());
        let mut value = |number: usize, key: &Arc<()>, value| {
            let values = &values;
            event_loops[number].block_on(async move { values.get(key, || value) }).unwrap()
        };
        let first = value(0, &one, 1);
        assert!(Rc::ptr_eq(&first, &value(0, &one, 2)));
        assert_eq!(*value(0, &other, 3), 3);
        assert_eq!(*value(1, &one, 4), 4);
        drop(first);
        assert_eq!(*value(0, &one, 5), 5);
    }

    #[test]
    fn values_without_a_loop_are_not_shared() {
        // Each may be for another loop of this thread.
        let (values, key) = (LoopValues::new(), Arc::new(()));
        let first = values.get(&key, || 1);
        assert_eq!((*first, *values.get(&key, || 2)), (1, 2));
    }
}
