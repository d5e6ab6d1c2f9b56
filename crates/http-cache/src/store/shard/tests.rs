use bytes::Bytes;
use tidegate_http1::{Fields, Status};

use super::*;
use crate::rules::freshness::Freshness;
use crate::rules::vary::Selector;

fn entry(selecting: Option<&str>, length: usize) -> Arc<Entry> {
    let freshness = Freshness {
        received: 0,
        initial_age: 0,
        lifetime: 1000,
        while_revalidate: 0,
        if_error: 0,
        needs_validation: false,
        forbids_stale: false,
    };
    let mut request = Fields::new();
    if let Some(value) = selecting {
        request.push("X", value).unwrap();
    }
    let vary: &[&[u8]] = if selecting.is_some() { &[b"x"] } else { &[] };
    let selector = Selector::of(vary, &request.iter()).unwrap();
    Arc::new(Entry::new(Status::OK, Fields::new(), Bytes::from(vec![0; length]), selector, freshness, false))
}

/// Each key has a hash of its own.
fn hash_of(key: &str) -> u64 {
    key.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(1_099_511_628_211) ^ u64::from(byte))
}

fn has(shard: &mut Shard, key: &str) -> bool {
    matches!(shard.get(hash_of(key), key.as_bytes(), &Fields::new().iter(), 0), Lookup::Found(_))
}

fn put(shard: &mut Shard, key: &str, length: usize) {
    assert!(shard.put(hash_of(key), key.as_bytes(), entry(None, length), None).0);
}

#[test]
fn a_flood_of_invented_keys_leaves_the_keys_that_are_used() {
    let mut shard = Shard::new(100_000, 4);
    for number in 0..20 {
        put(&mut shard, &format!("hot{number}"), 1000);
    }
    for round in 0..10_000 {
        put(&mut shard, &format!("cold?{round}"), 1000);
        assert!(shard.usage().0 <= 100_000);
        if round % 10 == 0 {
            assert!((0..20).all(|number| has(&mut shard, &format!("hot{number}"))), "round {round}");
        }
    }
    assert!(shard.usage().1 > 50);
}

#[test]
fn a_key_that_comes_back_after_its_eviction_stays() {
    let mut shard = Shard::new(50_000, 4);
    put(&mut shard, "back", 1000);
    for number in 0..100 {
        put(&mut shard, &format!("a{number}"), 1000);
    }
    assert!(!has(&mut shard, "back"));
    put(&mut shard, "back", 1000);
    for number in 0..1000 {
        put(&mut shard, &format!("b{number}"), 1000);
    }
    assert!(has(&mut shard, "back"));
}

#[test]
fn variants_of_a_key_are_bounded() {
    let mut shard = Shard::new(100_000, 4);
    for number in 0..100 {
        assert!(shard.put(1, b"key", entry(Some(&number.to_string()), 100), None).0);
        assert!(shard.usage().1 <= 4);
    }
    let get = |shard: &mut Shard, value: &str| {
        let mut fields = Fields::new();
        fields.push("x", value).unwrap();
        shard.get(1, b"key", &fields.iter(), 0)
    };
    assert!(matches!(get(&mut shard, "99"), Lookup::Found(_)));
    assert!(matches!(get(&mut shard, "5"), Lookup::NoVariant));
}

#[test]
fn large_variants_do_not_pass_the_budget() {
    let mut shard = Shard::new(100_000, 16);
    for number in 0..100 {
        assert!(shard.put(1, b"key", entry(Some(&number.to_string()), 20_000), None).0);
        assert!(shard.usage().0 <= 100_000);
    }
    assert!(!shard.put(2, b"other", entry(None, 60_000), None).0);
}

#[test]
fn removed_keys_leave_neither_bytes_nor_tokens() {
    let mut shard = Shard::new(100_000, 4);
    for round in 0..10_000 {
        put(&mut shard, "key", round % 100);
        assert_eq!(shard.remove(hash_of("key"), b"key"), 1);
    }
    assert_eq!(shard.usage(), (0, 0));
    assert_eq!(shard.small_bytes, 0);
    put(&mut shard, "a/1", 10);
    put(&mut shard, "a/2", 10);
    put(&mut shard, "b/1", 10);
    assert_eq!(shard.remove_where(|key| key.starts_with(b"a/")), 2);
    assert!(has(&mut shard, "b/1") && !has(&mut shard, "a/1"));
}

#[test]
fn a_mark_ends_and_a_response_replaces_it() {
    let mut shard = Shard::new(100_000, 4);
    let hash = hash_of("key");
    shard.mark(hash, b"key", 50);
    assert!(matches!(shard.get(hash, b"key", &Fields::new().iter(), 49), Lookup::Unstorable));
    assert!(matches!(shard.get(hash, b"key", &Fields::new().iter(), 50), Lookup::None));
    put(&mut shard, "key", 10);
    assert!(has(&mut shard, "key"));
}
