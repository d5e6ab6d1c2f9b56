//! The flags of `serve` that decide which peers may connect.

use clap::Args;
use tidegate::{Admission, ConnectionRate, IpNet};

/// Which peers may connect. A connection that is refused is reset.
#[derive(Debug, Args)]
pub(crate) struct AdmissionOptions {
    /// Network whose peers may connect, may be repeated: an address or CIDR, as 10.0.0.0/8 or 2001:db8::/32; Unix
    /// sockets are not affected [default: all]
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    allow: Vec<IpNet>,
    /// Network whose peers may not connect, may be repeated; takes precedence over --allow
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    deny: Vec<IpNet>,
    /// Network to which the two limits per address do not apply, may be repeated: load balancers, health checks
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    exempt: Vec<IpNet>,
    /// Maximum concurrent connections of one IPv4 address or one IPv6 /64; further ones are reset [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_address: Option<u32>,
    /// Maximum rate of new connections of one IPv4 address or one IPv6 /64, as N/s or N/m, with :BURST for how many may
    /// come at once; 10/s:50 [default: no limit; BURST is N]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    connection_rate_per_address: Option<ConnectionRate>,
}

impl AdmissionOptions {
    pub(crate) fn admission(&self) -> Admission {
        Admission {
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            exempt: self.exempt.clone(),
            connections_per_address_max: self.max_connections_per_address,
            rate_per_address: self.connection_rate_per_address,
            ..Admission::default()
        }
    }
}

pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address).ok_or_else(|| "not an IP address or a network, such as 10.0.0.0/8".into())
}

pub(crate) fn parse_rate(text: &str) -> Result<ConnectionRate, String> {
    let parsed = || {
        let (rate, burst) = match text.split_once(':') {
            Some((rate, burst)) => (rate, Some(burst.parse::<u32>().ok().filter(|burst| *burst > 0)?)),
            None => (text, None),
        };
        let (count, unit) = rate.split_once('/')?;
        let count = count.parse::<u32>().ok().filter(|count| *count > 0)?;
        let rate = match unit {
            "s" => ConnectionRate::per_second(count),
            "m" => ConnectionRate::per_minute(count),
            _ => return None,
        };
        Some(burst.map_or(rate, |burst| rate.burst(burst)))
    };
    parsed().ok_or_else(|| "not a rate, such as 10/s, 30/m or 10/s:50".into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate::ConnectionRate;

    use super::{parse_network, parse_rate};

    #[test]
    fn a_network_is_an_address_or_has_a_prefix() {
        for (text, network) in
            [("10.0.0.0/8", "10.0.0.0/8"), ("10.1.2.3", "10.1.2.3/32"), ("::1", "::1/128"), ("fd00::/8", "fd00::/8")]
        {
            assert_eq!(parse_network(text).map(|network| network.to_string()).as_deref(), Ok(network));
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.0/", "fd00::/129"] {
            assert!(parse_network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_has_a_unit_and_may_have_a_burst() {
        let rate = |millis, burst| ConnectionRate { interval: Duration::from_millis(millis), burst };
        for (text, expected) in [("10/s", rate(100, 10)), ("10/s:50", rate(100, 50)), ("30/m:1", rate(2_000, 1))] {
            assert_eq!(parse_rate(text), Ok(expected));
        }
        for text in ["", "10", "10/h", "0/s", "10/s:0", "10/s:", "-1/s", "10/s:5:6", "99999999999/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
