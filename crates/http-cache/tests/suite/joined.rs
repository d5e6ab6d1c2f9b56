//! Requests for one key: one goes to the origin, and the others wait.

use std::time::Duration;

use tidegate::http::cache::{Cache, CacheLimits};
use tidegate::http::{Body, Config, Response, Router};
use tidegate_testkit::Embedded;

use crate::support::{Answer, Sea, pipe};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n";

/// Further clients, on loops of their own.
fn clients(sea: &Sea, count: usize) -> Vec<Embedded<()>> {
    (0..count).map(|_| pipe(&sea.cache, &sea.origin)).collect()
}

/// The answers of clients once their leader has its response.
fn answers(clients: &mut [Embedded<()>]) -> Vec<Answer> {
    let answers = clients.iter_mut().map(|client| {
        client.run();
        Answer::parse(&client.take_written())
    });
    answers.collect()
}

fn slow(builder: tidegate::http::cache::CacheBuilder) -> Sea {
    let sea = Sea::with(builder);
    sea.origin.delay.set(Duration::from_secs(2));
    sea
}

#[test]
fn requests_that_wait_get_the_response_of_one() {
    let mut sea = slow(Cache::builder());
    sea.script(200, "Cache-Control: max-age=3600", "body");
    let mut clients = clients(&sea, 10);
    sea.pipe.receive(GET);
    clients.iter_mut().for_each(|client| client.receive(GET));
    assert_eq!(sea.requests(), 1);
    sea.advance(2);
    assert!(sea.pipe.take_written().ends_with(b"body"));
    for answer in answers(&mut clients) {
        assert_eq!((&*answer.body, answer.field("cache-status")), ("body", Some("Tidegate; fwd=uri-miss; collapsed")));
    }
    assert_eq!((sea.requests(), sea.cache.counts().joined), (1, 10));
}

#[test]
fn requests_that_ask_for_a_validation_get_that_of_one() {
    let mut sea = slow(Cache::builder());
    sea.script(200, "Cache-Control: max-age=3600\nETag: \"a\"", "body");
    let mut clients = clients(&sea, 3);
    sea.pipe.receive(GET);
    clients
        .iter_mut()
        .for_each(|client| client.receive(b"GET / HTTP/1.1\r\nHost: sea\r\nCache-Control: no-cache\r\n\r\n"));
    sea.advance(2);
    assert!(answers(&mut clients).iter().all(|answer| answer.body == "body"));
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_response_that_needs_validation_is_that_of_one_client_alone() {
    for control in ["no-cache", "max-age=0"] {
        let mut sea = slow(Cache::builder());
        (0..9).for_each(|number| {
            sea.script(200, &format!("Cache-Control: {control}\nETag: \"{number}\""), &format!("page {number}"));
        });
        let mut clients = clients(&sea, 3);
        sea.pipe.receive(GET);
        clients.iter_mut().for_each(|client| client.receive(GET));
        for _ in 0..8 {
            sea.advance(2);
            clients.iter_mut().for_each(Embedded::run);
            clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(2)));
        }
        assert!(sea.pipe.take_written().ends_with(b"page 0"), "{control}");
        let pages: std::collections::BTreeSet<_> =
            answers(&mut clients).into_iter().map(|answer| answer.body.to_string()).collect();
        assert!(pages.len() == 3 && !pages.contains("page 0"), "{control}: {pages:?}");
    }
}

#[test]
fn a_response_that_is_not_storable_has_the_others_go_on_by_themselves() {
    let mut sea = slow(Cache::builder());
    (0..9).for_each(|_| sea.script(200, "Cache-Control: private", "mine"));
    let mut clients = clients(&sea, 4);
    sea.pipe.receive(GET);
    clients.iter_mut().for_each(|client| client.receive(GET));
    sea.advance(2);
    clients.iter_mut().for_each(Embedded::run);
    clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(2)));
    assert!(answers(&mut clients).iter().all(|answer| answer.body == "mine"));
    assert_eq!(sea.requests(), 5);
    // Now none waits for another one.
    sea.pipe.receive(GET);
    clients[0].receive(GET);
    assert_eq!(sea.requests(), 7);
}

#[test]
fn a_leader_that_leaves_stops_no_other() {
    let mut sea = slow(Cache::builder());
    sea.script(200, "Cache-Control: max-age=3600", "body");
    let mut clients = clients(&sea, 3);
    sea.pipe.receive(GET);
    clients.iter_mut().for_each(|client| client.receive(GET));
    sea.pipe.reset();
    clients.iter_mut().for_each(Embedded::run);
    assert_eq!(sea.requests(), 2);
    clients[0].advance(Duration::from_secs(2));
    assert!(answers(&mut clients).iter().all(|answer| answer.body == "body"));
}

#[test]
fn waiting_ends_in_time_and_has_a_bound() {
    let limits = CacheLimits { waiting_max: 1, waiting_timeout: Duration::from_secs(1), ..CacheLimits::default() };
    let mut sea = slow(Cache::builder().limits(limits));
    sea.origin.delay.set(Duration::from_secs(60));
    (0..3).for_each(|_| sea.script(200, "Cache-Control: max-age=3600", "body"));
    let mut clients = clients(&sea, 2);
    sea.pipe.receive(GET);
    clients[0].receive(GET);
    assert_eq!(sea.requests(), 1);
    clients[1].receive(GET);
    assert_eq!(sea.requests(), 2);
    clients[0].advance(Duration::from_secs(1));
    assert_eq!(sea.requests(), 3);
}

#[test]
fn a_client_that_reads_slowly_holds_up_no_other() {
    let body = "b".repeat(1_000_000);
    let cache = Cache::new();
    let long = body.clone();
    let router = || {
        let long = long.clone();
        Router::new().fallback(cache.wrap(async move || {
            let long = long.clone();
            let pieces = Body::produce(async move |writer| {
                for piece in long.as_bytes().chunks(10_000) {
                    writer.write(piece.to_vec()).await?;
                }
                Ok(())
            });
            Response::new().body(pieces.with_length(1_000_000)).header("Cache-Control", "max-age=60").expect("a field")
        }))
    };
    let open = || {
        let (codec, handler) = Config::new().connections(router())();
        Embedded::new(codec, handler)
    };
    let (mut slow, mut first, mut second) = (open(), open(), open());
    slow.limit_peer_reads(1000);
    slow.receive(GET);
    first.receive(GET);
    assert!(first.take_written().is_empty());
    first.advance(Duration::from_secs(5));
    assert!(first.take_written().ends_with(body.as_bytes()));
    second.receive(GET);
    assert!(second.take_written().ends_with(body.as_bytes()));
    assert_eq!((cache.counts().misses, cache.counts().hits), (2, 1));
}

#[test]
fn requests_of_other_variants_get_their_own() {
    let mut sea = slow(Cache::builder());
    (0..3).for_each(|number| sea.script(200, "Cache-Control: max-age=3600\nVary: Foo", &number.to_string()));
    let mut clients = clients(&sea, 2);
    sea.pipe.receive(GET);
    for (client, value) in clients.iter_mut().zip(["1", "1"]) {
        client.receive(format!("GET / HTTP/1.1\r\nHost: sea\r\nFoo: {value}\r\n\r\n").as_bytes());
    }
    sea.advance(2);
    clients.iter_mut().for_each(Embedded::run);
    clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(2)));
    assert!(answers(&mut clients).iter().all(|answer| answer.body == "1"));
    assert_eq!(sea.requests(), 2);
}

#[test]
fn a_refusal_of_one_client_leaves_the_stored_response_and_the_joining() {
    for refusal in [400, 401, 403, 429, 500] {
        let mut sea = Sea::new();
        sea.script(200, "Cache-Control: max-age=3600", "body");
        assert_eq!(sea.get("").body, "body");
        sea.script(refusal, "Cache-Control: no-store", "refused");
        assert_eq!(sea.get("Cache-Control: no-cache").body, "refused");
        assert_eq!((&*sea.get("").body, sea.requests()), ("body", 2), "{refusal}");
        // Once it is stale, requests still wait for each other.
        sea.advance(4000);
        sea.origin.delay.set(Duration::from_secs(2));
        sea.script(200, "Cache-Control: max-age=3600", "new");
        let mut clients = clients(&sea, 3);
        clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(4000)));
        sea.pipe.receive(GET);
        clients.iter_mut().for_each(|client| client.receive(GET));
        assert_eq!(sea.requests(), 3, "{refusal}");
        sea.advance(2);
        assert!(answers(&mut clients).iter().all(|answer| answer.body == "new"), "{refusal}");
    }
}

#[test]
fn a_refusal_of_the_first_client_does_not_keep_the_next_response_from_the_cache() {
    for (status, is_stored) in [(403, true), (429, true), (404, false), (200, false)] {
        let mut sea = Sea::new();
        sea.script(status, "Cache-Control: no-store", "first");
        sea.script(200, "Cache-Control: max-age=3600", "body");
        sea.script(200, "Cache-Control: max-age=3600", "body");
        assert_eq!(sea.get("").body, "first");
        assert_eq!((sea.get("").body, sea.get("").body), ("body".into(), "body".into()));
        assert_eq!(sea.requests() == 2, is_stored, "{status}");
    }
}

#[test]
fn one_of_those_that_wait_leads_after_a_refusal() {
    let mut sea = slow(Cache::builder());
    sea.script(200, "Cache-Control: max-age=60", "old");
    sea.pipe.receive(GET);
    sea.advance(2);
    assert!(sea.pipe.take_written().ends_with(b"old"));
    sea.advance(100);
    sea.script(403, "", "refused");
    sea.script(200, "Cache-Control: max-age=3600", "new");
    let mut clients = clients(&sea, 5);
    clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(102)));
    sea.pipe.receive(GET);
    clients.iter_mut().for_each(|client| client.receive(GET));
    sea.advance(2);
    clients.iter_mut().for_each(Embedded::run);
    assert_eq!(sea.requests(), 3);
    clients.iter_mut().for_each(|client| client.advance(Duration::from_secs(2)));
    assert!(answers(&mut clients).iter().all(|answer| answer.body == "new"));
    assert_eq!(sea.requests(), 3);
}
