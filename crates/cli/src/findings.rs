//! Lines behind the start-up lines: protocol versions, names of certificates, and settings that differ from the defaults.
//!
//! They are there if one of the settings differs, or if a person reads them: programs that wait for the start-up line
//! alone get no other one.

use std::fmt::Debug;
use std::io::{self, IsTerminal};
use std::time::Duration;

use tidegate::{Admission, Limits, http1};

use crate::log;
use crate::server::{ProcessOptions, default_limits_of_http1};
use crate::tls::Tls;

/// Prints the services and the limits of a server, unless the program is to be quiet. `versions` are the protocols that
/// clients may speak, if all listeners have the same.
pub(crate) fn announce<'a>(process: &ProcessOptions, versions: Option<&str>, tls: impl Iterator<Item = &'a Tls>) {
    if process.quiet {
        return;
    }
    let mut lines: Vec<_> = tls.map(|tls| certificate_line(&tls.names, tls.authority.as_deref())).collect();
    let changed = changed_settings(process);
    if !changed.is_empty() {
        lines.push(format!("tidegate: settings: {}", changed.join(", ")));
    }
    if let Some(versions) = versions.filter(|_| !lines.is_empty() || io::stdout().is_terminal()) {
        lines.insert(0, format!("tidegate: protocols: {versions}"));
    }
    if !lines.is_empty() {
        log::announce(&lines.join("\n"));
    }
}

fn certificate_line(names: &[String], authority: Option<&str>) -> String {
    let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut line = match names.len().checked_sub(NAMES_MAX) {
        _ if names.is_empty() => "tidegate: TLS: a certificate without names".to_owned(),
        Some(further @ 1..) => format!("tidegate: TLS: certificates for {shown} and {further} further names"),
        _ => format!("tidegate: TLS: certificates for {shown}"),
    };
    if let Some(authority) = authority {
        line.push_str(&format!(", issued by {authority}"));
    }
    line
}

/// The settings that differ from the defaults, each with both values.
fn changed_settings(process: &ProcessOptions) -> Vec<String> {
    let mut changed = Changed(Vec::new());
    changed.add_limits(&process.limits(), &Limits::default());
    changed.add_http1(&process.limits_of_http1(), &default_limits_of_http1());
    changed.add_admission(&process.admission(), &Admission::default());
    changed.0
}

struct Changed(Vec<String>);

impl Changed {
    fn add<T: PartialEq>(&mut self, name: &str, value: &T, default: &T, show: impl Fn(&T) -> String) {
        if value != default {
            self.0.push(format!("{name} {} (default {})", show(value), show(default)));
        }
    }

    fn add_limits(&mut self, limits: &Limits, defaults: &Limits) {
        self.add("connections", &limits.connections_max, &defaults.connections_max, ToString::to_string);
        self.add("memory", &limits.memory_max, &defaults.memory_max, |bytes| format!("{bytes} bytes"));
        self.add("write timeout", &limits.write_timeout, &defaults.write_timeout, seconds);
        self.add("write rate", &limits.write_rate_min, &defaults.write_rate_min, rate);
        let (deadlines, before) = (&limits.deadlines, &defaults.deadlines);
        self.add("silence timeout", &deadlines.idle_timeout, &before.idle_timeout, optional(seconds));
        self.add("read timeout", &deadlines.read_timeout, &before.read_timeout, optional(seconds));
        self.add("read rate", &deadlines.read_rate_min, &before.read_rate_min, rate);
        self.add("handshake timeout", &deadlines.handshake_timeout, &before.handshake_timeout, optional(seconds));
        self.add("age", &deadlines.age_max, &before.age_max, optional(seconds));
        self.add("age grace", &deadlines.age_grace, &before.age_grace, seconds);
        if limits.shaping != defaults.shaping {
            self.0.push("rates of connections are limited (default no limit)".to_owned());
        }
    }

    fn add_http1(&mut self, limits: &http1::Limits, defaults: &http1::Limits) {
        self.add("request timeout", &limits.head_timeout, &defaults.head_timeout, seconds);
        self.add("body rate", &limits.body_rate_min, &defaults.body_rate_min, rate);
        self.add("idle timeout", &limits.idle_timeout, &defaults.idle_timeout, seconds);
    }

    fn add_admission(&mut self, admission: &Admission, defaults: &Admission) {
        let networks = |networks: &Vec<_>| format!("{} networks", networks.len());
        self.add("allow", &admission.allow, &defaults.allow, networks);
        self.add("deny", &admission.deny, &defaults.deny, networks);
        self.add("exempt", &admission.exempt, &defaults.exempt, networks);
        let (most, before) = (&admission.connections_per_address_max, &defaults.connections_per_address_max);
        self.add("connections per address", most, before, optional(ToString::to_string));
        let (most, before) = (&admission.rate_per_address, &defaults.rate_per_address);
        self.add("connection rate per address", most, before, optional(debug));
    }
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn rate(bytes: &u32) -> String {
    format!("{bytes} bytes/s")
}

fn debug<T: Debug>(value: &T) -> String {
    format!("{value:?}")
}

fn optional<T>(show: impl Fn(&T) -> String) -> impl Fn(&Option<T>) -> String {
    move |value| value.as_ref().map_or_else(|| "none".to_owned(), &show)
}

/// Names of certificates in one line.
const NAMES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_differ_are_named_with_both_values() {
        let mut changed = Changed(Vec::new());
        let defaults = Limits::default();
        changed.add_limits(&defaults.clone(), &defaults);
        assert_eq!(changed.0, [""; 0]);
        let mut limits = defaults.clone();
        limits.write_timeout = Duration::from_millis(1500);
        limits.deadlines.age_max = Some(Duration::from_secs(9));
        changed.add_limits(&limits, &defaults);
        assert_eq!(changed.0, ["write timeout 1.5 s (default 60 s)", "age 9 s (default none)"]);
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<_> = (0..13).map(|number| format!("{number}.example")).collect();
        assert!(certificate_line(&names, None).ends_with("9.example and 3 further names"));
        assert_eq!(certificate_line(&names[..2], None), "tidegate: TLS: certificates for 0.example, 1.example");
        assert_eq!(certificate_line(&[], None), "tidegate: TLS: a certificate without names");
        let line = certificate_line(&names[..1], Some("https://ca.example/directory"));
        assert_eq!(line, "tidegate: TLS: certificates for 0.example, issued by https://ca.example/directory");
    }
}
