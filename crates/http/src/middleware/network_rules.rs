//! `NetworkRules`: which clients a route is for, by their networks.

use http::StatusCode;
use tidegate_proxy_protocol::Networks;

use super::Middleware;
use crate::client_address::{ClientAddress, TrustedProxies};
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// Allows and denies requests by the network of their client: the first rule that has it decides. Denied ones get a 403.
///
/// A client that no rule has is allowed, or denied with [`deny_others`](Self::deny_others). A client whose address a trusted
/// proxy does not name is denied in any case, if there is a rule.
///
/// ```
/// use tidegate::http::{NetworkRules, Router};
///
/// let rules = NetworkRules::new().deny("10.1.0.0/16".parse()?).allow("10.0.0.0/8, ::1".parse()?).deny_others();
/// let router = Router::new().get("/", || "inside").with(rules);
/// # drop(router);
/// # Ok::<(), tidegate::proxy_protocol::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct NetworkRules {
    rules: Vec<(Networks, bool)>,
    denies_others: bool,
    trusted: TrustedProxies,
}

impl NetworkRules {
    /// No rules: each client is allowed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows clients in these networks, unless an earlier rule denies them.
    #[must_use]
    pub fn allow(mut self, networks: Networks) -> Self {
        self.rules.push((networks, true));
        self
    }

    /// Denies clients in these networks, unless an earlier rule allows them.
    #[must_use]
    pub fn deny(mut self, networks: Networks) -> Self {
        self.rules.push((networks, false));
        self
    }

    /// Denies clients that no rule has.
    #[must_use]
    pub fn deny_others(mut self) -> Self {
        self.denies_others = true;
        self
    }

    /// The client is the one that these proxies name.
    #[must_use]
    pub fn trusted(mut self, trusted: TrustedProxies) -> Self {
        self.trusted = trusted;
        self
    }

    /// Whether a client may make requests.
    #[must_use]
    pub fn allows(&self, client: ClientAddress) -> bool {
        if client == ClientAddress::Unknown {
            return self.rules.is_empty() && !self.denies_others;
        }
        let rule = self.rules.iter().find(|(networks, _)| client.is_in(networks));
        rule.map_or(!self.denies_others, |(_, allows)| *allows)
    }
}

impl Middleware for NetworkRules {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if self.allows(self.trusted.client_of(request)) { Ok(()) } else { Err(StatusCode::FORBIDDEN.into_response()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientAddress {
        ClientAddress::Ip(text.parse().unwrap())
    }

    #[test]
    fn the_first_rule_that_has_a_client_decides() {
        let rules = NetworkRules::new().deny("10.1.0.0/16".parse().unwrap()).allow("10.0.0.0/8".parse().unwrap());
        for (rules, address, is_allowed) in [
            (rules.clone(), "10.1.2.3", false),
            (rules.clone(), "10.2.2.3", true),
            (rules.clone(), "192.0.2.1", true),
            (rules.clone().deny_others(), "10.2.2.3", true),
            (rules.clone().deny_others(), "192.0.2.1", false),
            (rules.clone(), "::ffff:10.2.2.3", true),
            (rules.deny_others(), "2001:db8::1", false),
        ] {
            assert_eq!(rules.allows(client(address)), is_allowed, "{address}");
        }
    }

    #[test]
    fn a_client_that_is_not_known_is_denied_by_any_rule() {
        let all = Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
        assert!(!NetworkRules::new().allow(all.clone()).allows(ClientAddress::Unknown));
        assert!(!NetworkRules::new().deny(all.clone()).allows(ClientAddress::Unknown));
        assert!(!NetworkRules::new().deny_others().allows(ClientAddress::Unknown));
        assert!(NetworkRules::new().allows(ClientAddress::Unknown));
        assert!(NetworkRules::new().allow(all).deny_others().allows(ClientAddress::Unix));
    }
}
