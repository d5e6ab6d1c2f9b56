//! `RouteInfo`: the routes of a router as a list.

use std::fmt;

use http::Method;
use tidegate_http1 as http1;

use super::path_route::PathRoute;
use super::{OTHER_PATHS, Table};
use crate::condition::Condition;

/// One function of a router: where it is, and for which requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The host in lower case, or `*.` and a domain; `None` for the hosts that have no router of their own.
    pub host: Option<String>,
    /// The pattern, with the prefixes of nested routers; `*` for a fallback.
    pub path: String,
    /// The method; `None` for all methods that have no function of their own at this path.
    pub method: Option<Method>,
    /// The conditions that a request has to meet, all of them.
    pub conditions: Vec<Condition>,
}

impl fmt::Display for RouteInfo {
    /// Such as `GET /tides/{harbour}`; `ANY` without a method, then the host, then the conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, host) = (self.method.as_ref().map_or("ANY", Method::as_str), self.host.as_deref());
        write!(f, "{method} {}{}", host.unwrap_or_default(), self.path)?;
        for (number, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition:?}", if number == 0 { " if " } else { ", " })?;
        }
        Ok(())
    }
}

impl Table {
    /// Adds the routes of this table to a list.
    pub(crate) fn list(&self, host: Option<&str>, routes: &mut Vec<RouteInfo>) {
        let info = |path: &str, method: Option<Method>, conditions: &[Condition]| RouteInfo {
            host: host.map(str::to_owned),
            path: path.to_owned(),
            method,
            conditions: conditions.to_vec(),
        };
        for route in self.conditional.iter().flat_map(|conditional| conditional.routes()) {
            let choices = route.choices.iter();
            routes.extend(choices.map(|choice| info(route.pattern.text(), None, &choice.conditions)));
        }
        for route in &self.routes {
            routes.extend(route.listed_methods().map(|method| info(route.pattern.text(), method, &[])));
        }
        for choice in self.conditional.iter().flat_map(|conditional| &conditional.fallbacks) {
            routes.push(info(OTHER_PATHS, None, &choice.conditions));
        }
        if self.fallback.is_some() {
            routes.push(info(OTHER_PATHS, None, &[]));
        }
        let domains = self.domains.iter().map(|(domain, table)| (format!("*.{domain}"), table));
        let mut hosts: Vec<_> = self.hosts.iter().map(|(name, table)| (name.clone(), table)).chain(domains).collect();
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
        hosts.into_iter().for_each(|(name, table)| table.list(Some(&name), routes));
    }
}

impl PathRoute {
    /// The methods that have a function, and `None` if all others have one.
    fn listed_methods(&self) -> impl Iterator<Item = Option<Method>> {
        let registered = self.methods.iter().map(|(method, _)| method_of(*method));
        let extensions = self.extensions.iter().map(|(name, _)| Method::from_bytes(name.as_bytes()).ok());
        registered.chain(extensions).filter(Option::is_some).chain(self.any.iter().map(|_| None))
    }
}

fn method_of(method: http1::Method) -> Option<Method> {
    Method::from_bytes(method.name()?.as_bytes()).ok()
}
