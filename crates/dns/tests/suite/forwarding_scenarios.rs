//! The scenarios of Unbound's test data about a forwarder, as ours, on the simulated network. The names are those of its files.
//!
//! | scenario | test |
//! |---|---|
//! | `fwd`, `fwd_two`, `fwd_three`, `fwd_cached`, `fwd_ttlexpire` | `questions_that_are_equal_are_one_query_until_the_answer_expires` |
//! | `fwd_cname_follow` | `a_chain_of_aliases_in_one_response_is_one_query` |
//! | `fwd_error`, `fwd_error_retries` | `each_server_has_its_turn_before_an_error_and_none_after_it` |
//! | `fwd_notimpl`, `fwd_lame` | `a_server_that_does_not_serve_is_followed_by_one_that_does` |
//! | `fwd_timeout`, `fwd_udptmout` | `queries_that_are_lost_are_sent_again` |
//! | `fwd_capsid`, `fwd_capsid_strip`, `fwd_capsid_fallback` | `letters_that_a_server_changes_cost_a_query_over_a_stream` |
//! | `fwd_0ttlservfail` | `an_answer_for_no_time_is_no_answer_to_the_next_question` |
//! | `edns_upstream_cookies` | `failures::a_server_that_wants_its_cookie_first_is_asked_again_over_a_stream` |
//! | `serve_expired`, `serve_expired_client_timeout`, `serve_expired_reply_ttl` | `resolver::without_servers_a_stale_answer_comes_after_a_while_and_then_at_once` |
//! | `serve_expired_client_timeout_servfail`, `serve_expired_cached_servfail` | `failures::servers_that_fail_are_asked_for_a_stale_name_twice_a_minute` |
//!
//! Those with DNSSEC, local zones and views are about parts that a forwarder without them does not have.

use std::time::Duration;

use tidegate_dns::{Lookup, LookupError, Rdata, ResponseCode, Transport};

use crate::simulation::{Behaviour, World};
use crate::support::name;

fn a(host: u8) -> Rdata {
    Rdata::a([192, 0, 2, host].into())
}

fn world(servers: Vec<Behaviour>) -> World {
    let mut world = World::new(servers, 11);
    world.add("www.example", 60, a(1));
    world.add("ftp.example", 60, a(2));
    world
}

#[test]
fn questions_that_are_equal_are_one_query_until_the_answer_expires() {
    let mut world = world(vec![Behaviour::default()]);
    let begun: Vec<_> = ["www.example", "ftp.example", "www.example", "WWW.example"]
        .map(|host| match world.begin(host) {
            Lookup::Pending(id) => id,
            Lookup::Ready(result) => panic!("{host}: {result:?}"),
        })
        .into();
    assert!(begun[0] == begun[2] && begun[0] == begun[3] && begun[0] != begun[1]);
    let answers = [world.wait(begun[0]), world.wait(begun[1])];
    assert_eq!(answers.map(|answer| answer.expect("an answer").addresses().count()), [1, 1]);
    world.now += Duration::from_secs(59);
    world.lookup("www.example").expect("an answer");
    assert_eq!(world.queries.len(), 2);
    world.now += Duration::from_secs(1);
    world.lookup("www.example").expect("an answer");
    assert_eq!(world.queries.len(), 3);
}

#[test]
fn a_chain_of_aliases_in_one_response_is_one_query() {
    let mut world = world(vec![Behaviour::default()]);
    for (alias, target) in [("a.example", "b.other"), ("b.other", "c.third"), ("c.third", "www.example")] {
        world.add(alias, 60, Rdata::cname(&name(target)));
    }
    let answer = world.lookup("a.example").expect("an answer");
    assert_eq!((answer.records.len(), answer.canonical_name(&name("a.example"))), (4, name("www.example")));
    assert_eq!(world.queries.len(), 1);
}

#[test]
fn each_server_has_its_turn_before_an_error_and_none_after_it() {
    for code in [ResponseCode::SERVFAIL, ResponseCode::REFUSED, ResponseCode::NOTIMP, ResponseCode::FORMERR] {
        let mut world = world(vec![Behaviour { response_code: code, ..Behaviour::default() }; 3]);
        assert_eq!(world.lookup("www.example").err(), Some(LookupError::Failed), "{code}");
        let mut asked: Vec<usize> = world.queries.iter().map(|query| query.0).collect();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, [0, 1, 2], "{code}");
        let queries = world.queries.len();
        assert_eq!(world.lookup("www.example").err(), Some(LookupError::CachedFailure), "{code}");
        assert_eq!(world.queries.len(), queries, "{code}");
    }
}

#[test]
fn a_server_that_does_not_serve_is_followed_by_one_that_does() {
    for code in [ResponseCode::NOTIMP, ResponseCode::REFUSED, ResponseCode::SERVFAIL] {
        let broken = Behaviour { response_code: code, delay: Duration::from_millis(1), ..Behaviour::default() };
        let mut world = world(vec![broken, Behaviour::default()]);
        for host in ["www.example", "ftp.example"] {
            assert_eq!(world.lookup(host).expect("an answer").addresses().count(), 1, "{code} {host}");
        }
    }
}

#[test]
fn queries_that_are_lost_are_sent_again() {
    let mut world = world(vec![Behaviour { is_dead: true, ..Behaviour::default() }]);
    let Lookup::Pending(id) = world.begin("www.example") else { panic!("it is not cached") };
    let begun = world.now;
    while world.now < begun + Duration::from_secs(1) {
        world.step();
    }
    world.servers[0].is_dead = false;
    assert_eq!(world.wait(id).expect("an answer").addresses().count(), 1);
    assert!(world.now < begun + Duration::from_secs(5), "{:?}", world.now - begun);
}

#[test]
fn letters_that_a_server_changes_cost_a_query_over_a_stream() {
    let mut world = world(vec![Behaviour { lowers_case: true, ..Behaviour::default() }]);
    assert_eq!(world.lookup("www.example").expect("an answer").addresses().count(), 1);
    let over_streams = world.queries.iter().filter(|query| query.1 == Transport::Stream).count();
    assert_eq!((world.queries.len() - over_streams, over_streams), (1, 1));
}

#[test]
fn an_answer_for_no_time_is_no_answer_to_the_next_question() {
    let mut world = world(vec![Behaviour::default()]);
    world.add("now.example", 0, a(3));
    assert_eq!(world.lookup("now.example").expect("an answer").addresses().count(), 1);
    world.servers[0].response_code = ResponseCode::SERVFAIL;
    assert_eq!(world.lookup("now.example").err(), Some(LookupError::Failed));
}
