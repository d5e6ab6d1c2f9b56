//! `resolv.conf` and `hosts`: usual content, and content of any kind.

use std::time::Duration;

use tidegate_dns::{Hosts, ResolvConf};
use tidegate_testkit::{Random, seeds};

use crate::support::name;

#[test]
fn four_servers_are_three_and_a_scope_needs_a_link_local_address() {
    let conf = ResolvConf::parse(
        b"nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 2001:db8::1%eth0\nnameserver ::1\nnameserver 192.0.2.4\n",
    );
    let servers: Vec<String> = conf.servers.iter().map(|server| server.address.to_string()).collect();
    assert_eq!((servers, conf.ignored), (vec!["192.0.2.1".into(), "fe80::1".into(), "::1".into()], 2));
    assert_eq!(conf.servers[1].scope.as_deref(), Some("eth0"));
}

#[test]
fn without_a_file_the_server_is_this_host() {
    let conf = ResolvConf::parse(b"");
    assert_eq!(conf, ResolvConf::default());
    assert_eq!(conf.servers[0].address.to_string(), "127.0.0.1");
}

#[test]
fn a_search_line_may_be_long_and_has_six_domains() {
    let domains: Vec<String> = (0..30).map(|index| format!("d{index:02}.example")).collect();
    let line = format!("search {}\n", domains.join(" "));
    assert!(line.len() > 300);
    let conf = ResolvConf::parse(line.as_bytes());
    assert_eq!((conf.search.len(), conf.ignored), (6, 24));
    let long = format!("search {} ok.example\n", "a".repeat(300));
    assert_eq!(ResolvConf::parse(long.as_bytes()).search, [name("ok.example")]);
    let conf = ResolvConf::parse(b"domain a.example\nsearch b.example c.example\ndomain d.example e.example\n");
    assert_eq!(conf.search, [name("d.example")]);
}

#[test]
fn options_have_bounds_and_unknown_ones_are_ignored() {
    let conf = ResolvConf::parse(
        b"options ndots:99 timeout:99 attempts:99 rotate use-vc edns0 trust-ad unknown ndots:x timeout:\n# options ndots:1\n; x\nfoo bar\n",
    );
    assert_eq!((conf.ndots, conf.timeout, conf.attempts), (15, Duration::from_secs(30), 5));
    assert!(conf.rotate && conf.use_tcp && conf.edns);
    assert_eq!(conf.ignored, 4);
    let zero = ResolvConf::parse(b"options timeout:0 attempts:0");
    assert_eq!((zero.timeout, zero.attempts), (Duration::from_secs(1), 1));
}

#[test]
fn the_search_list_completes_names_by_their_dots() {
    let conf = ResolvConf::parse(b"search a.example b.example\n");
    let candidates = |text: &str| conf.candidates(text).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(candidates("www"), ["www.a.example.", "www.b.example.", "www."]);
    assert_eq!(candidates("www.x"), ["www.x.", "www.x.a.example.", "www.x.b.example."]);
    assert_eq!(candidates("www."), ["www."]);
    assert_eq!(candidates("."), ["."]);
    assert!(candidates("a..b").is_empty() && candidates("").is_empty());
    // With a domain, the name would be too long.
    let label = "a".repeat(62);
    let long = format!("{label}.{label}.{label}.{label}");
    assert_eq!(candidates(&long), [format!("{long}.")]);
}

#[test]
fn hosts_have_names_of_both_kinds_of_addresses() {
    let hosts = Hosts::parse(
        b"192.0.2.1 a.example a\n2001:db8::1\ta\n#x\nbad line\n192.0.2.2 a..b c # d\nfe80::1%lo0 l\n\xff\n",
    );
    assert_eq!(hosts.addresses(&name("A")).map(|addresses| addresses.len()), Some(2));
    assert_eq!(hosts.name("192.0.2.1".parse().expect("an address")), Some(&name("a.example")));
    assert!(hosts.addresses(&name("d")).is_none() && hosts.addresses(&name("l")).is_some());
    assert_eq!(hosts.ignored, 3);
    assert_eq!(hosts.addresses(&name("x.LocalHost")).map(|addresses| addresses.len()), Some(2));
}

#[test]
fn no_content_makes_a_parser_panic() {
    let words: [&[u8]; 12] = [
        b"nameserver ",
        b"search ",
        b"options ",
        b"ndots:",
        b"\n",
        b" ",
        b"1.2.3.4",
        b"%",
        b"fe80::1",
        b"\\",
        b"\xff\0",
        b"a.",
    ];
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let content: Vec<u8> = (0..random.below(40)).flat_map(|_| words[random.below(words.len())].to_vec()).collect();
        let conf = ResolvConf::parse(&content);
        let _ = conf.candidates(&String::from_utf8_lossy(&content));
        let _ = Hosts::parse(&content);
    }
}
