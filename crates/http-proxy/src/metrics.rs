//! Snapshots of the upstreams of a set, and their text for Prometheus.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_metrics::{MetricsText, UpstreamGroup, UpstreamSnapshot, UpstreamState, write_upstreams};

use super::upstreams::{Shared, Upstream, Upstreams};
use tidegate_l4::Millis;

impl Upstreams {
    /// The counts and states of the upstreams at this moment, by the name of the set: of the first
    /// [`SNAPSHOT_UPSTREAMS_MAX`](Self::SNAPSHOT_UPSTREAMS_MAX), and one row named `other` for further ones and those that
    /// have left, since the addresses of a name may change without end. Reading takes no time of the loops.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> UpstreamGroup {
        let (members, now) = (self.0.members(), self.0.millis(Instant::now()));
        let mut group = UpstreamGroup::new(name);
        group.queue = self.0.waiting.snapshot();
        let mut other = self.0.departed.snapshot(UpstreamSnapshot::OTHER);
        for (at, member) in members.iter().enumerate() {
            let snapshot = member.snapshot(&self.0, now);
            if at < Self::SNAPSHOT_UPSTREAMS_MAX { group.upstreams.push(snapshot) } else { other.merge(&snapshot) }
        }
        if other.attempts > 0 || members.len() > Self::SNAPSHOT_UPSTREAMS_MAX {
            group.upstreams.push(other);
        }
        group
    }

    /// Upstreams of a set that a [`snapshot`](Self::snapshot) has apart.
    pub const SNAPSHOT_UPSTREAMS_MAX: usize = 256;

    /// Writes the counts and states of the upstreams of some sets, each set by its name, as
    /// [`write_upstreams`] does. An attempt that is followed by another one counts as well.
    ///
    /// | reason of a failure | is |
    /// |---|---|
    /// | `connect` | no connection could be made |
    /// | `timeout` | the connection, or the head of the response, was late |
    /// | `closed` | the connection ended before the head of the response |
    /// | `refused` | the upstream has not processed the request, and said so |
    /// | `protocol` | the request or the response does not fit the protocol |
    /// | `body` | the response ended within its body |
    ///
    /// ```
    /// use tidegate::http::proxy::Upstreams;
    /// use tidegate::metrics::{Format, MetricsText};
    ///
    /// let app = Upstreams::new(["http://10.0.0.1:8080"])?;
    /// let mut text = MetricsText::new(Format::Prometheus);
    /// Upstreams::write_metrics(&[("app", &app)], &mut text);
    /// let sample = "tidegate_upstream_available{group=\"app\",upstream=\"http://10.0.0.1:8080\"} 1\n";
    /// assert!(text.finish().contains(sample));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_metrics(sets: &[(&str, &Self)], text: &mut MetricsText) {
        let groups: Vec<_> = sets.iter().map(|(name, set)| set.snapshot(name)).collect();
        write_upstreams(&groups, text);
    }
}

impl Upstream {
    fn snapshot(&self, set: &Shared, now: Millis) -> UpstreamSnapshot {
        let mut snapshot = self.counts.snapshot(&self.name);
        snapshot.state = Some(match &self.health {
            health if !health.is_last_resort() => UpstreamState::Down,
            health if !health.is_available(now) => UpstreamState::Ejected,
            health if health.share(set.ejection.slow_start, now) < 100 => UpstreamState::Starting,
            _ => UpstreamState::Up,
        });
        snapshot.in_progress = self.active.load(Relaxed).into();
        snapshot.idle_connections = self.idle_connections.sum();
        let shared = self.shared_connections.sum();
        (snapshot.http2_connections, snapshot.http3_connections) =
            if self.is_http3 { (0, shared) } else { (shared, 0) };
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tidegate_http1::Status;

    use super::*;

    #[test]
    fn upstreams_that_leave_go_on_in_one_row_and_none_takes_labels_without_bound() {
        let set = Upstreams::new(["http://10.0.0.1"]).unwrap();
        let found =
            |net: u8| (0..200).map(|last| SocketAddr::from(([10, 0, net, last], 80)).into()).collect::<Vec<_>>();
        let mut before = 0;
        for net in 1..20 {
            set.0.servers.set_addresses(&set.0, &[(0, found(net))]);
            for member in &*set.0.members() {
                member.counts.on_attempt(false);
                member.counts.on_head(Status::OK, Duration::from_millis(1));
            }
            let group = set.snapshot("app");
            assert!(group.upstreams.len() <= Upstreams::SNAPSHOT_UPSTREAMS_MAX + 1);
            let sum: u64 = group.upstreams.iter().map(|upstream| upstream.attempts).sum();
            assert_eq!(sum, before + 200, "counts only grow");
            before = sum;
        }
        let all: Vec<_> = (1..3).flat_map(found).collect();
        set.0.servers.set_addresses(&set.0, &[(0, all)]);
        let group = set.snapshot("app");
        assert_eq!(group.upstreams.len(), Upstreams::SNAPSHOT_UPSTREAMS_MAX + 1);
        let other = group.upstreams.last().unwrap();
        assert_eq!((&*other.name, other.state, other.head_time.count()), ("other", None, before));
    }
}
