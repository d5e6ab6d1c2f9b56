//! `RateLimiter`: bounds the responses in datagrams to one network, against amplification by forged sources.
//!
//! Each network has a bucket for each kind of response, in a hash table of fixed size. Networks with the same hash share a
//! bucket, so a flood of forged networks takes no memory. The hash key is random.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Instant;

use foldhash::quality::RandomState;

/// Limits of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Responses a second to one network, of each kind; 100.
    pub responses_per_second: u32,
    /// Responses that may come at once; 200.
    pub burst: u32,
    /// Of so many responses above the limit one is sent truncated, so that a client whose address others forge gets its answer
    /// over TCP; 2. Zero drops all of them.
    pub slip: u32,
    /// Bits of an IPv4 network; 24.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 network; 56.
    pub ipv6_prefix: u8,
    /// Buckets, of 16 bytes each; 65,536.
    pub buckets: usize,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { responses_per_second: 100, burst: 200, slip: 2, ipv4_prefix: 24, ipv6_prefix: 56, buckets: 65_536 }
    }
}

/// The kind of a response. Kinds have buckets of their own, so that a flood of one leaves the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseKind {
    /// With records.
    Positive,
    /// Without records of the type, or without the name.
    Negative,
    /// An error.
    Error,
}

/// The decision about a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateDecision {
    /// It is sent.
    Send,
    /// It is sent without its records, truncated.
    Truncate,
    /// It is not sent.
    Drop,
}

/// Bounds the responses in datagrams.
///
/// ```
/// use std::time::Instant;
/// use tidegate::dns::server::{RateDecision, RateLimiter, RateLimits, ResponseKind};
///
/// let mut limiter = RateLimiter::new(RateLimits { burst: 1, ..RateLimits::default() });
/// let (peer, now) = ("192.0.2.1".parse().unwrap(), Instant::now());
/// assert_eq!(limiter.check(peer, ResponseKind::Positive, now), RateDecision::Send);
/// assert_ne!(limiter.check(peer, ResponseKind::Positive, now), RateDecision::Send);
/// ```
#[derive(Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    hasher: RandomState,
    begun: Option<Instant>,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Thousandths of responses that are left.
    left: u32,
    /// Milliseconds since the limiter began.
    at: u32,
    refused: u32,
    is_used: bool,
}

impl RateLimiter {
    /// A limiter. Its table takes memory with the first response.
    #[must_use]
    pub fn new(limits: RateLimits) -> Self {
        Self { limits, hasher: RandomState::default(), begun: None, buckets: Vec::new() }
    }

    /// Decides about a response to a peer, and counts it.
    pub fn check(&mut self, peer: IpAddr, kind: ResponseKind, now: Instant) -> RateDecision {
        let begun = *self.begun.get_or_insert(now);
        let limits = self.limits;
        let full = limits.burst.max(1).saturating_mul(1_000);
        if self.buckets.is_empty() {
            let empty = Bucket { left: 0, at: 0, refused: 0, is_used: false };
            self.buckets = vec![empty; limits.buckets.max(1)];
        }
        let place = self.hasher.hash_one((network(peer, &limits), kind)) as usize % self.buckets.len();
        let bucket = &mut self.buckets[place];
        let at = now.saturating_duration_since(begun).as_millis() as u32;
        let elapsed = at.wrapping_sub(bucket.at);
        // N responses a second are N thousandths a millisecond.
        let gained = u64::from(elapsed) * u64::from(limits.responses_per_second);
        let left = if bucket.is_used { u64::from(bucket.left) + gained } else { u64::from(full) };
        let left = left.min(u64::from(full)) as u32;
        *bucket = Bucket { left, at, is_used: true, ..*bucket };
        if left >= 1_000 {
            bucket.left -= 1_000;
            return RateDecision::Send;
        }
        bucket.refused = bucket.refused.wrapping_add(1);
        if limits.slip > 0 && bucket.refused.is_multiple_of(limits.slip) {
            RateDecision::Truncate
        } else {
            RateDecision::Drop
        }
    }
}

fn network(peer: IpAddr, limits: &RateLimits) -> (bool, u128) {
    match peer.to_canonical() {
        IpAddr::V4(address) => {
            let bits = u32::from(limits.ipv4_prefix.min(32));
            (false, u128::from(address.to_bits()).checked_shr(32 - bits).unwrap_or(0))
        }
        IpAddr::V6(address) => {
            let bits = u32::from(limits.ipv6_prefix.min(128));
            (true, address.to_bits().checked_shr(128 - bits).unwrap_or(0))
        }
    }
}
