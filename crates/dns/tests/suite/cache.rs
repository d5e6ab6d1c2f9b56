//! The cache: its budget, times, eviction.

use std::time::{Duration, Instant};

use tidegate_dns::{Cache, CacheConfig, Rdata, RecordType};

use crate::support::name;

fn a(host: u32) -> Rdata {
    Rdata::a(host.into())
}

#[test]
fn a_hundred_thousand_names_take_at_most_forty_megabytes() {
    let mut cache = Cache::new(CacheConfig { memory_max: 40_000_000, ..CacheConfig::default() });
    let now = Instant::now();
    for index in 0..100_000 {
        cache.insert(&name(&format!("host-{index}.tides.example")), RecordType::A, &[a(index)], 300, now);
    }
    assert_eq!(cache.len(), 100_000);
    assert!(cache.memory_bytes() < 20_000_000, "{}", cache.memory_bytes());
    let last = cache.get(&name("HOST-99999.tides.example"), RecordType::A, now).expect("it is there");
    assert_eq!((last.data, last.ttl), (vec![a(99_999)], 300));
}

#[test]
fn the_budget_holds_and_used_entries_stay() {
    let mut cache = Cache::new(CacheConfig { memory_max: 50_000, ..CacheConfig::default() });
    let now = Instant::now();
    cache.insert(&name("used.example"), RecordType::A, &[a(1)], 300, now);
    for index in 0..10_000 {
        cache.insert(&name(&format!("h{index}.example")), RecordType::A, &[a(index)], 300, now);
        assert!(cache.memory_bytes() <= 50_000);
        assert!(cache.get(&name("used.example"), RecordType::A, now).is_some(), "{index}");
    }
    assert!(cache.len() > 100, "{}", cache.len());
    // An entry that would push out the others is not stored.
    let long = Rdata::txt(std::iter::repeat_n(&[b'a'; 255][..], 40)).expect("it is valid");
    cache.insert(&name("long.example"), RecordType::TXT, &[long], 300, now);
    assert!(cache.get(&name("long.example"), RecordType::TXT, now).is_none());
    cache.clear();
    assert_eq!((cache.memory_bytes(), cache.is_empty()), (0, true));
}

#[test]
fn ttls_have_a_least_and_a_most() {
    let config =
        CacheConfig { ttl_min: Duration::from_secs(5), ttl_max: Duration::from_secs(60), ..CacheConfig::default() };
    let mut cache = Cache::new(config);
    let now = Instant::now();
    cache.insert(&name("short"), RecordType::A, &[a(1)], 0, now);
    cache.insert(&name("long"), RecordType::A, &[a(1)], u32::MAX, now);
    assert_eq!(cache.get(&name("short"), RecordType::A, now).map(|entry| entry.ttl), Some(5));
    assert_eq!(cache.get(&name("long"), RecordType::A, now).map(|entry| entry.ttl), Some(60));
    let mut usual = Cache::new(CacheConfig::default());
    usual.insert(&name("zero"), RecordType::A, &[a(1)], 0, now);
    assert!(usual.is_empty(), "a TTL of zero is for one use");
}

#[test]
fn replaced_entries_leave_no_memory() {
    let mut cache = Cache::new(CacheConfig::default());
    let now = Instant::now();
    cache.insert(&name("a"), RecordType::A, &[a(1), a(2)], 60, now);
    let memory = cache.memory_bytes();
    for _ in 0..100 {
        cache.insert(&name("A"), RecordType::A, &[a(3), a(4)], 60, now);
    }
    assert_eq!((cache.memory_bytes(), cache.len()), (memory, 1));
    let stale = cache.get(&name("a"), RecordType::A, now + Duration::from_secs(61)).expect("it is stale");
    assert!(stale.is_stale && stale.ttl == 30);
    assert!(cache.get(&name("a"), RecordType::A, now + Duration::from_secs(90_000)).is_none());
    assert_eq!((cache.memory_bytes(), cache.len()), (0, 0));
}
