//! The data set of `/json/{count}`: fifty items, the same in each run. The peers in `benches/peers` include this file.

use serde::Serialize;

/// An item of the data set.
#[derive(Debug, Serialize)]
pub struct Item {
    id: u32,
    name: String,
    category: &'static str,
    price: u64,
    quantity: u64,
    active: bool,
    tags: Vec<&'static str>,
    rating: Rating,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Rating {
    score: u32,
    count: u32,
}

/// The response: the first items, each with its total.
#[derive(Debug, Serialize)]
pub struct Page<'a> {
    items: Vec<Priced<'a>>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct Priced<'a> {
    id: u32,
    name: &'a str,
    category: &'a str,
    price: u64,
    quantity: u64,
    active: bool,
    tags: &'a [&'static str],
    rating: Rating,
    total: u64,
}

/// The data set.
#[must_use]
pub fn items() -> Vec<Item> {
    // A linear congruential generator, for values without a pattern.
    let mut state = 2_026_u64;
    let mut below = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut item = |id: u32| Item {
        id,
        name: format!("{} {}", NOUNS[below(8) as usize], id),
        category: CATEGORIES[below(5) as usize],
        price: 1 + below(500),
        quantity: 1 + below(50),
        active: below(4) > 0,
        tags: (0..1 + below(4)).map(|_| TAGS[below(6) as usize]).collect(),
        rating: Rating { score: below(51) as u32, count: 1 + below(400) as u32 },
    };
    (1..=ITEMS).map(&mut item).collect()
}

/// The first `count` items, with `total` = price × quantity × `multiplier`.
#[must_use]
pub fn page(items: &[Item], count: usize, multiplier: u64) -> Page<'_> {
    let items = &items[..count.min(items.len())];
    let priced = items.iter().map(|item| Priced {
        id: item.id,
        name: &item.name,
        category: item.category,
        price: item.price,
        quantity: item.quantity,
        active: item.active,
        tags: &item.tags,
        rating: item.rating,
        total: (item.price * item.quantity).saturating_mul(multiplier),
    });
    Page { count: items.len(), items: priced.collect() }
}

/// How many items there are.
pub const ITEMS: u32 = 50;

const NOUNS: [&str; 8] = ["Anchor", "Beacon", "Buoy", "Compass", "Lantern", "Rudder", "Sextant", "Winch"];
const CATEGORIES: [&str; 5] = ["deck", "engine", "navigation", "rigging", "safety"];
const TAGS: [&str; 6] = ["brass", "fast", "new", "sale", "sturdy", "tested"];
