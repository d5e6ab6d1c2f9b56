//! The figures of UDP proxies, as text for Prometheus.

use tidegate_metrics::{Kind, MetricsText};

use super::counts::UdpProxyCounts;

/// A label beside the name of the proxy, and a value.
type LabelledCount = (Option<[&'static str; 2]>, u64);

impl UdpProxyCounts {
    /// Writes the figures of some proxies, each by its name: the gauge `tidegate_udp_proxy_tunnels`, and the counters
    /// `tidegate_udp_proxy_opened_total`, `tidegate_udp_proxy_refused_total` by reason, `tidegate_udp_proxy_ended_total` by
    /// reason, `tidegate_udp_proxy_datagrams_total` and `tidegate_udp_proxy_bytes_total` by direction, and
    /// `tidegate_udp_proxy_dropped_total`.
    ///
    /// ```
    /// use tidegate::http::{UdpProxy, UdpProxyCounts, UdpProxyRules};
    /// use tidegate::metrics::{Format, MetricsText};
    ///
    /// let proxy = UdpProxy::new(UdpProxyRules::default());
    /// let mut text = MetricsText::new(Format::Prometheus);
    /// UdpProxyCounts::write_metrics(&[("udp", proxy.counts())], &mut text);
    /// assert!(text.finish().contains("tidegate_udp_proxy_refused_total{proxy=\"udp\",reason=\"target\"} 0\n"));
    /// ```
    pub fn write_metrics(proxies: &[(&str, Self)], text: &mut MetricsText) {
        let mut family = |name: &str, kind, help: &str, samples: &dyn Fn(&Self) -> Vec<LabelledCount>| {
            text.family(name, kind, help);
            for (proxy, counts) in proxies {
                for (label, value) in samples(counts) {
                    match label {
                        Some([label, of]) => text.sample(&[("proxy", proxy), (label, of)], value),
                        None => text.sample(&[("proxy", proxy)], value),
                    }
                }
            }
        };
        let by = |label, values: &[(&'static str, u64)]| {
            values.iter().map(|(of, value)| (Some([label, *of]), *value)).collect::<Vec<_>>()
        };
        let gauge = Kind::Gauge;
        family("tidegate_udp_proxy_tunnels", gauge, "UDP tunnels that are open.", &|counts| {
            vec![(None, counts.tunnels)]
        });
        let counter = Kind::Counter;
        family("tidegate_udp_proxy_opened", counter, "UDP tunnels that were opened.", &|counts| {
            vec![(None, counts.begun)]
        });
        family("tidegate_udp_proxy_refused", counter, "Requests for UDP tunnels that were refused.", &|counts| {
            let reasons = [
                ("client", counts.refused_clients),
                ("target", counts.refused_targets),
                ("full", counts.refused_full),
                ("name", counts.refused_names),
                ("socket", counts.refused_sockets),
            ];
            by("reason", &reasons)
        });
        family("tidegate_udp_proxy_ended", counter, "UDP tunnels that the proxy has ended.", &|counts| {
            by("reason", &[("idle", counts.expired), ("unreachable", counts.unreachable)])
        });
        family("tidegate_udp_proxy_datagrams", counter, "Datagrams that were passed on.", &|counts| {
            by("direction", &[("to_target", counts.sent), ("to_client", counts.received)])
        });
        family("tidegate_udp_proxy_bytes", counter, "Bytes of UDP payloads that were passed on.", &|counts| {
            by("direction", &[("to_target", counts.sent_bytes), ("to_client", counts.received_bytes)])
        });
        family("tidegate_udp_proxy_dropped", counter, "Datagrams that were dropped.", &|counts| {
            vec![(None, counts.dropped)]
        });
    }
}
