//! Sums and products of times that no setting makes panic: with `Duration::MAX` callers say that a time-out never comes.

use std::time::{Duration, Instant};

/// The time that comes `after` another one. One that is too far away to be expressed, as with [`Duration::MAX`], is a century
/// away.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate::codec::later;
///
/// let now = Instant::now();
/// assert_eq!(later(now, Duration::from_secs(5)), now + Duration::from_secs(5));
/// assert!(later(now, Duration::MAX) > now + Duration::from_secs(1 << 31));
/// ```
#[must_use]
#[inline]
pub fn later(from: Instant, after: Duration) -> Instant {
    from.checked_add(after).unwrap_or(from + CENTURY)
}

/// A duration times a factor that is not negative; [`Duration::MAX`] if the product is longer than that.
///
/// ```
/// use std::time::Duration;
/// use tidegate::codec::scaled;
///
/// assert_eq!(scaled(Duration::from_secs(10), 0.5), Duration::from_secs(5));
/// assert_eq!(scaled(Duration::MAX, 1.1), Duration::MAX);
/// ```
#[must_use]
pub fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// No process lasts as long.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
