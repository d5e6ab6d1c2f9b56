use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::super::{ConnectionRate, Refusal};
use super::{AddressTable, Caps};

fn table(connections_max: u32, rate: Option<ConnectionRate>, addresses_max: usize) -> AddressTable {
    AddressTable::new(Caps { connections_max, rate, addresses_max })
}

fn v4(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0A00_0000 + number).into()
}

/// Entries in the shards, and addresses in the queues of idle ones.
fn entries(table: &AddressTable) -> (usize, usize) {
    let sizes = table.shards.iter().map(|shard| {
        let shard = super::lock(shard);
        (shard.by_address.len(), shard.idle.len())
    });
    sizes.fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1))
}

#[test]
fn an_address_has_as_many_connections_as_it_may_and_is_forgotten_with_the_last() {
    let (table, now) = (table(2, None, 10), Instant::now());
    assert_eq!([(); 3].map(|()| table.admit(v4(1), now)), [Ok(()), Ok(()), Err(Refusal::TooManyConnections)]);
    assert_eq!(table.admit(v4(2), now), Ok(()));
    table.release(v4(1));
    assert_eq!([(); 2].map(|()| table.admit(v4(1), now)), [Ok(()), Err(Refusal::TooManyConnections)]);
    assert_eq!((table.connections(v4(1)), table.connections(v4(2)), table.addresses()), (2, 1, 2));
    [1, 1, 2].iter().for_each(|number| table.release(v4(*number)));
    assert_eq!((table.addresses(), entries(&table)), (0, (0, 0)));
}

#[test]
fn an_address_of_ipv6_is_its_first_64_bits() {
    let (table, now) = (table(1, None, 10), Instant::now());
    let [first, same, other] = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"].map(|ip| ip.parse().unwrap());
    assert_eq!(table.admit(first, now), Ok(()));
    assert_eq!(table.admit(same, now), Err(Refusal::TooManyConnections));
    assert_eq!(table.admit(other, now), Ok(()));
    table.release(same);
    assert_eq!(table.admit(first, now), Ok(()));
}

#[test]
fn a_burst_is_admitted_at_once_and_then_one_connection_for_each_interval() {
    let rate = ConnectionRate::per_second(10).burst(3);
    let (table, start) = (table(u32::MAX, Some(rate), 10), Instant::now());
    let admit = |millis| table.admit(v4(1), start + Duration::from_millis(millis));
    assert_eq!([(); 4].map(|()| admit(0)), [Ok(()), Ok(()), Ok(()), Err(Refusal::TooFast)]);
    assert_eq!(admit(99), Err(Refusal::TooFast));
    assert_eq!([admit(100), admit(100)], [Ok(()), Err(Refusal::TooFast)]);
    assert_eq!([admit(299), admit(299)], [Ok(()), Err(Refusal::TooFast)]);
    // Refused connections did not count: two intervals later there are two places.
    assert_eq!([(); 3].map(|()| admit(499)), [Ok(()), Ok(()), Err(Refusal::TooFast)]);
    assert_eq!([(); 4].map(|()| admit(9_000)), [Ok(()), Ok(()), Ok(()), Err(Refusal::TooFast)]);
}

#[test]
fn the_rate_outlasts_the_connections() {
    let (table, start) = (table(1, Some(ConnectionRate::per_minute(1)), 10), Instant::now());
    assert_eq!(table.admit(v4(1), start), Ok(()));
    assert_eq!(table.admit(v4(1), start), Err(Refusal::TooManyConnections));
    table.release(v4(1));
    assert_eq!(table.admit(v4(1), start + Duration::from_secs(59)), Err(Refusal::TooFast));
    assert_eq!(table.admit(v4(1), start + Duration::from_secs(60)), Ok(()));
}

#[test]
fn the_table_keeps_within_its_bound_when_100_000_addresses_come_and_go() {
    let rate = ConnectionRate::per_minute(1).burst(2);
    let (table, start) = (table(2, Some(rate), 1_000), Instant::now());
    for number in 0..100_000 {
        let now = start + Duration::from_millis(number.into());
        assert_eq!(table.admit(v4(number), now), Ok(()), "an address without connections gives up its place");
        assert!(table.addresses() <= 1_000, "{} addresses", table.addresses());
        table.release(v4(number));
    }
    assert_eq!(entries(&table), (1_000, 1_000));
    // The last ones are still known, with their rates.
    let now = start + Duration::from_secs(100);
    assert_eq!([table.admit(v4(99_999), now), table.admit(v4(99_999), now)], [Ok(()), Err(Refusal::TooFast)]);
}

#[test]
fn a_table_full_of_addresses_with_connections_refuses_others_and_serves_its_own() {
    for rate in [None, Some(ConnectionRate::per_second(100))] {
        let (table, now) = (table(2, rate, 1_000), Instant::now());
        let admitted = (0..100_000).filter(|&number| table.admit(v4(number), now) == Ok(())).count();
        assert_eq!((admitted, table.addresses(), entries(&table).0), (1_000, 1_000, 1_000));
        assert_eq!(table.admit(v4(5_000), now), Err(Refusal::TooManyAddresses));
        assert_eq!(table.admit(v4(5), now), Ok(()));
        table.release(v4(7));
        assert_eq!(table.admit(v4(5_000), now), Ok(()), "the place of another shard serves as well");
        assert_eq!(table.admit(v4(5_001), now), Err(Refusal::TooManyAddresses));
        assert_eq!((table.connections(v4(7)), table.connections(v4(5_000))), (0, 1));
    }
}

#[test]
fn addresses_whose_rate_is_whole_again_are_forgotten_as_others_come() {
    let (table, start) = (table(u32::MAX, Some(ConnectionRate::per_second(1)), 100_000), Instant::now());
    for number in 0..10_000 {
        table.admit(v4(number), start).expect("there is room");
        table.release(v4(number));
    }
    assert_eq!(table.addresses(), 10_000);
    for number in 10_000..20_000 {
        table.admit(v4(number), start + Duration::from_secs(2)).expect("there is room");
    }
    assert_eq!(entries(&table), (10_000, 0));
    (10_000..20_000).for_each(|number| table.release(v4(number)));
    let capacity = || table.shards.iter().map(|shard| super::lock(shard).by_address.capacity()).sum::<usize>();
    let full = capacity();
    table.admit(v4(0), start + Duration::from_secs(4)).expect("there is room");
    for number in 20_000..26_000 {
        table.admit(v4(number), start + Duration::from_secs(9)).expect("there is room");
        table.release(v4(number));
    }
    assert!(capacity() < full, "a table that empties gives memory back");
}

#[test]
fn random_connections_count_as_in_a_model() {
    let (table, now) = (table(3, Some(ConnectionRate::per_second(1).burst(u32::MAX)), 64), Instant::now());
    let (mut model, mut state) = (HashMap::<u32, u32>::new(), 7_u64);
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (state >> 33) as u32 % 100;
        let count = model.entry(number).or_default();
        if state >> 63 == 0 && *count > 0 {
            table.release(v4(number));
            *count -= 1;
        } else {
            let admitted = table.admit(v4(number), now);
            *count += u32::from(admitted.is_ok());
            let others = model.values().filter(|count| **count > 0).count();
            match admitted {
                Ok(()) => assert!(others <= 64),
                Err(Refusal::TooManyConnections) => assert_eq!(model[&number], 3),
                Err(refusal) => assert_eq!((refusal, others), (Refusal::TooManyAddresses, 64)),
            }
        }
        assert_eq!(table.connections(v4(number)), model[&number]);
        let (known, queued) = entries(&table);
        assert!(known == table.addresses() && queued <= known && known <= 64);
    }
}

#[test]
fn threads_count_together() {
    let (table, now) = (table(5, Some(ConnectionRate::per_second(1).burst(u32::MAX)), 4), Instant::now());
    let admitted = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (table, admitted) = (&table, &admitted);
            scope.spawn(move || {
                for round in 0..5_000_u32 {
                    let address = v4((round + thread) % 6);
                    if table.admit(address, now).is_ok() {
                        assert!(table.connections(address) <= 5);
                        assert!(table.addresses() <= 4);
                        admitted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        table.release(address);
                    }
                }
            });
        }
    });
    assert!(admitted.into_inner() > 0);
    assert!((0..6).all(|number| table.connections(v4(number)) == 0));
    assert_eq!(entries(&table).0, table.addresses());
}
