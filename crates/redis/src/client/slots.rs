//! `Slots`: the slots of a cluster, and which servers have them.
//!
//! A key belongs to slot CRC16(key) mod 16,384; if the key has a part in braces, that part alone counts (the cluster
//! specification of Redis, "Key distribution model" and "Hash tags"). CLUSTER SLOTS and CLUSTER SHARDS describe the same map;
//! both are parsed here, and a reply that is no such map is an error.

use crate::owned::OwnedValue;

/// The slot of a key.
///
/// ```
/// use tidegate::redis::slot_of;
///
/// assert_eq!(slot_of(b"123456789"), 12739);
/// assert_eq!(slot_of(b"{tide}.height"), slot_of(b"tide"));
/// ```
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

/// The part of a key that decides its slot: between the first brace and the next closing one, if that is not empty.
fn tag_of(key: &[u8]) -> &[u8] {
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        memchr::memchr(b'}', rest).map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM: the polynomial 0x1021, from 0, not reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) ^ u16::from(*byte)) & 0xff])
}

const fn crc_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// Servers with the same keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) master: Box<str>,
    pub(crate) replicas: Vec<Box<str>>,
}

/// Which shard has which slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) shards: Vec<Shard>,
    /// The shard of each slot; empty if the first one has all keys.
    owners: Vec<u16>,
    /// Slots that more than one shard claims.
    pub(crate) overlaps: usize,
}

impl Slots {
    /// One shard has all keys.
    pub(crate) fn of_one(shard: Shard) -> Self {
        Self { shards: vec![shard], owners: Vec::new(), overlaps: 0 }
    }

    fn new() -> Self {
        Self { shards: Vec::new(), owners: vec![NO_SHARD; SLOTS.into()], overlaps: 0 }
    }

    /// The shard of a slot; none if the slot is a hole.
    pub(crate) fn shard(&self, slot: u16) -> Option<&Shard> {
        if self.owners.is_empty() {
            return self.shards.first();
        }
        self.owners.get(usize::from(slot)).and_then(|owner| self.shards.get(usize::from(*owner)))
    }

    /// Slots that no shard has.
    pub(crate) fn holes(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == NO_SHARD).count()
    }

    /// This server has the slot from now on.
    pub(crate) fn move_to(&mut self, slot: u16, master: &str) {
        let known = self.shards.iter().position(|shard| &*shard.master == master);
        let shard = known.unwrap_or(self.shards.len());
        if known.is_none() {
            if self.shards.len() >= SHARDS_MAX {
                return;
            }
            self.shards.push(Shard { master: master.into(), replicas: Vec::new() });
        }
        if let (Some(owner), Ok(shard)) = (self.owners.get_mut(usize::from(slot)), u16::try_from(shard)) {
            *owner = shard;
        }
    }

    /// The map in a reply to CLUSTER SLOTS. `host` is that of the server that was asked.
    pub(crate) fn from_slots(reply: &OwnedValue, host: &str) -> Result<Self, &'static str> {
        let mut slots = Self::new();
        for range in elements(reply).ok_or(MALFORMED)? {
            let [first, last, servers @ ..] = elements(range).ok_or(MALFORMED)? else { return Err(MALFORMED) };
            let mut addresses = servers.iter().take(SERVERS_MAX).filter_map(|server| {
                let [name, port, ..] = elements(server)? else { return None };
                address(text(name), integer(port)?, host)
            });
            let Some(master) = addresses.next() else { continue };
            let shard = slots.add(Shard { master, replicas: addresses.collect() })?;
            slots.claim(integer(first).ok_or(MALFORMED)?, integer(last).ok_or(MALFORMED)?, shard)?;
        }
        slots.checked()
    }

    /// The map in a reply to CLUSTER SHARDS.
    pub(crate) fn from_shards(reply: &OwnedValue, host: &str) -> Result<Self, &'static str> {
        let mut slots = Self::new();
        for group in elements(reply).ok_or(MALFORMED)? {
            let (mut master, mut replicas) = (None, Vec::new());
            let servers = field(group, "nodes").and_then(elements).ok_or(MALFORMED)?;
            for server in servers.iter().take(SERVERS_MAX) {
                let named = ["endpoint", "ip"].into_iter().filter_map(|name| field(server, name).and_then(text));
                let port = ["port", "tls-port"].into_iter().find_map(|name| field(server, name).and_then(integer));
                let name = named.into_iter().find(|name| *name != "?");
                let Some(address) = port.and_then(|port| address(name, port, host)) else { continue };
                let is_usable = field(server, "health").and_then(text).is_none_or(|health| health == "online");
                match field(server, "role").and_then(text) {
                    Some("master") if is_usable || master.is_none() => master = Some(address),
                    Some("replica") if is_usable => replicas.push(address),
                    _ => {}
                }
            }
            let Some(master) = master else { continue };
            let shard = slots.add(Shard { master, replicas })?;
            for range in field(group, "slots").and_then(elements).ok_or(MALFORMED)?.chunks(2) {
                let [first, last] = range else { return Err(MALFORMED) };
                slots.claim(integer(first).ok_or(MALFORMED)?, integer(last).ok_or(MALFORMED)?, shard)?;
            }
        }
        slots.checked()
    }

    fn add(&mut self, shard: Shard) -> Result<u16, &'static str> {
        let known = self.shards.iter().position(|known| known.master == shard.master);
        if known.is_none() && self.shards.len() >= SHARDS_MAX {
            return Err("the cluster has more shards than slots");
        }
        let index = known.unwrap_or_else(|| {
            self.shards.push(shard);
            self.shards.len() - 1
        });
        u16::try_from(index).map_err(|_| MALFORMED)
    }

    /// The first shard that claims a slot has it: a server redirects what belongs to another.
    fn claim(&mut self, first: i64, last: i64, shard: u16) -> Result<(), &'static str> {
        let range = usize::try_from(first).ok().zip(usize::try_from(last).ok());
        let (first, last) =
            range.filter(|(first, last)| first <= last).ok_or("a range of slots ends before it begins")?;
        let owners = self.owners.get_mut(first..=last).ok_or("a slot is above 16,383")?;
        for owner in owners {
            match *owner {
                NO_SHARD => *owner = shard,
                other if other == shard => {}
                _ => self.overlaps += 1,
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, &'static str> {
        if self.shards.is_empty() { Err("the cluster has no slots") } else { Ok(self) }
    }
}

/// An address of a server: a host without a name is the one that was asked.
pub(crate) fn address(name: Option<&str>, port: i64, host: &str) -> Option<Box<str>> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let name = name.filter(|name| !name.is_empty()).unwrap_or(host);
    if name == "?" || name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let is_bare_v6 = name.contains(':') && !name.starts_with('[');
    Some(if is_bare_v6 { format!("[{name}]:{port}") } else { format!("{name}:{port}") }.into())
}

/// The host of an address.
pub(crate) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

pub(crate) fn elements(value: &OwnedValue) -> Option<&[OwnedValue]> {
    if let OwnedValue::Aggregate(_, elements) = value { Some(elements) } else { None }
}

pub(crate) fn text(value: &OwnedValue) -> Option<&str> {
    match value {
        OwnedValue::Bulk(bytes) | OwnedValue::Simple(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

pub(crate) fn integer(value: &OwnedValue) -> Option<i64> {
    if let OwnedValue::Integer(number) = value { Some(*number) } else { text(value)?.parse().ok() }
}

/// The value behind a name: in a map, or in an array of names and values in turn.
pub(crate) fn field<'a>(value: &'a OwnedValue, name: &str) -> Option<&'a OwnedValue> {
    elements(value)?.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
}

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;
/// Each has at least one slot.
const SHARDS_MAX: usize = SLOTS as usize;
/// Servers of one shard that are looked at.
const SERVERS_MAX: usize = 64;
/// A name of the domain name system is not longer.
const NAME_BYTES_MAX: usize = 255;
const NO_SHARD: u16 = u16::MAX;
const CRC_TABLE: [u16; 256] = crc_table();
const MALFORMED: &str = "the reply is no map of slots";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::AggregateKind;

    fn array(values: Vec<OwnedValue>) -> OwnedValue {
        OwnedValue::Aggregate(AggregateKind::Array, values)
    }

    fn server(name: &'static str, port: i64) -> OwnedValue {
        array(vec![OwnedValue::Bulk(name.into()), OwnedValue::Integer(port), OwnedValue::Bulk("id".into())])
    }

    fn range(first: i64, last: i64, servers: Vec<OwnedValue>) -> OwnedValue {
        array([vec![OwnedValue::Integer(first), OwnedValue::Integer(last)], servers].concat())
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b""), 0);
        assert_eq!(slot_of(b"foo"), 12182);
        for (key, tag) in
            [("{user1000}.following", "user1000"), ("foo{{bar}}zap", "{bar"), ("foo{bar}{zap}", "bar"), ("a{b", "a{b")]
        {
            assert_eq!(slot_of(key.as_bytes()), crc16(tag.as_bytes()) % SLOTS, "{key}");
        }
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS, "an empty tag is none");
    }

    #[test]
    fn holes_and_overlaps_are_counted_and_the_first_claim_counts() {
        let reply = array(vec![
            range(0, 99, vec![server("10.0.0.1", 7000), server("10.0.0.2", 7001)]),
            range(90, 199, vec![server("", 7002)]),
            range(16_383, 16_383, vec![server("::1", 7000)]),
        ]);
        let slots = Slots::from_slots(&reply, "10.0.0.9").expect("a map");
        assert_eq!((slots.overlaps, slots.holes()), (10, 16_384 - 201));
        let master = |slot| slots.shard(slot).map(|shard| &*shard.master);
        assert_eq!(
            (master(0), master(99), master(100)),
            (Some("10.0.0.1:7000"), Some("10.0.0.1:7000"), Some("10.0.0.9:7002"))
        );
        assert_eq!((master(200), master(16_383)), (None, Some("[::1]:7000")));
        assert_eq!(slots.shards[0].replicas, ["10.0.0.2:7001".into()]);
    }

    #[test]
    fn maps_that_lie_are_errors() {
        let lies = [
            OwnedValue::Null,
            array(vec![]),
            array(vec![OwnedValue::Integer(1)]),
            array(vec![range(0, 16_384, vec![server("a", 1)])]),
            array(vec![range(-1, 3, vec![server("a", 1)])]),
            array(vec![range(5, 3, vec![server("a", 1)])]),
            array(vec![range(0, i64::MAX, vec![server("a", 1)])]),
            array(vec![range(0, 3, vec![server("a", 0)])]),
            array(vec![range(0, 3, vec![server("?", 1)])]),
            array(vec![range(0, 3, vec![OwnedValue::Null])]),
        ];
        for lie in lies {
            assert!(Slots::from_slots(&lie, "h").is_err(), "{lie:?}");
            assert!(Slots::from_shards(&lie, "h").is_err(), "{lie:?}");
        }
    }

    #[test]
    fn shards_are_read_as_well() {
        let bulk = |text: &'static str| OwnedValue::Bulk(text.into());
        let server = |port, role, health| {
            let pairs =
                vec![bulk("port"), OwnedValue::Integer(port), bulk("endpoint"), bulk("h"), bulk("role"), bulk(role)];
            array([pairs, vec![bulk("health"), bulk(health)]].concat())
        };
        let servers = vec![server(1, "master", "fail"), server(2, "master", "online"), server(3, "replica", "online")];
        let ranges = [0, 9, 20, 29].map(OwnedValue::Integer).to_vec();
        let reply = array(vec![array(vec![bulk("slots"), array(ranges), bulk("nodes"), array(servers)])]);
        let slots = Slots::from_shards(&reply, "x").expect("a map");
        assert_eq!(slots.shards, [Shard { master: "h:2".into(), replicas: vec!["h:3".into()] }]);
        assert!(slots.shard(9).is_some() && slots.shard(10).is_none() && slots.shard(29).is_some());
    }

    #[test]
    fn a_slot_moves_to_a_server_that_is_new() {
        let mut slots = Slots::from_slots(&array(vec![range(0, 9, vec![server("a", 1)])]), "h").expect("a map");
        slots.move_to(3, "b:2");
        slots.move_to(60_000, "c:3");
        assert_eq!(slots.shard(3).map(|shard| &*shard.master), Some("b:2"));
        assert_eq!(slots.shard(4).map(|shard| &*shard.master), Some("a:1"));
    }
}
