//! Rate limits whose counts several processes share, with a store of the test, on the simulated network.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::http::{Config, RateGrant, RateKey, RateLimit, RateStore, Router, SharedRateLimit, TakeTokens};
use tidegate::{Channel, Client, ConnectionRate, Limits, framing, task};
use tidegate_testkit::network::Network;

/// How the store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Error,
    Silent,
}

#[derive(Debug, Default)]
struct Counts {
    left: u32,
    mood: Option<Mood>,
    /// Each question: the client, and the tokens.
    asked: Vec<(String, u32)>,
}

/// Gives tokens after five milliseconds, as long as it has some.
#[derive(Debug, Clone, Default)]
struct TestStore(Arc<Mutex<Counts>>);

impl TestStore {
    fn with(tokens: u32) -> Self {
        let store = Self::default();
        store.0.lock().unwrap().left = tokens;
        store
    }

    fn set(&self, mood: Mood) {
        self.0.lock().unwrap().mood = Some(mood);
    }

    fn mood(&self) -> Mood {
        self.0.lock().unwrap().mood.unwrap_or(Mood::Well)
    }

    fn give(&self, tokens: u32) -> u32 {
        let mut counts = self.0.lock().unwrap();
        let given = tokens.min(counts.left);
        counts.left -= given;
        given
    }

    fn asked(&self) -> Vec<u32> {
        self.0.lock().unwrap().asked.iter().map(|(_, tokens)| *tokens).collect()
    }
}

impl RateStore for TestStore {
    fn take(&self, client: &str, rate: ConnectionRate, tokens: u32) -> TakeTokens {
        let (store, client) = (self.clone(), client.to_owned());
        Box::pin(async move {
            store.0.lock().unwrap().asked.push((client, tokens));
            task::sleep(Duration::from_millis(5)).await;
            match store.mood() {
                Mood::Well => Ok(RateGrant { tokens: store.give(tokens), wait: rate.interval }),
                Mood::Error => Err("on purpose".into()),
                Mood::Silent => std::future::pending().await,
            }
        })
    }
}

/// Asks `requests` times at once on connections of their own, and returns the statuses in order of the connections, and
/// the longest time that one took.
async fn ask(address: tidegate::Address, requests: usize, fields: &'static str) -> (Vec<u16>, Duration) {
    let began = task::now();
    let asking = (0..requests).map(|_| {
        let address = address.clone();
        task::spawn(async move {
            let mut channel: Channel<framing::Raw> = Client::at(address).connect(framing::Raw).await.expect("a server");
            let wire = format!("GET / HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{fields}\r\n");
            channel.send(wire.into_bytes().into()).expect("there is room");
            let mut seen = Vec::new();
            while let Ok(Some(bytes)) = channel.recv().await {
                seen.extend_from_slice(&bytes);
                if seen.len() >= 12 {
                    break;
                }
            }
            (String::from_utf8_lossy(&seen[9..12]).parse::<u16>().expect("a status"), task::now())
        })
    });
    let tasks: Vec<_> = asking.collect();
    let (mut statuses, mut last) = (Vec::new(), began);
    for task in tasks {
        let (status, at) = task.await.expect("no panic");
        statuses.push(status);
        last = last.max(at);
    }
    (statuses, last - began)
}

type Test = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Runs a test with a server that has this limit.
fn run(limit: SharedRateLimit, test: impl FnOnce(tidegate::Address) -> Test) {
    let network = Network::new(3);
    let router = Router::new().get("/", || "rising").wrap(limit);
    let connections = Config::new().connections(router);
    let server = network.host("10.0.0.1").node();
    let address = server.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let testing = network.host("10.0.0.2").node().spawn(test(address));
    network.run_task(Duration::from_secs(600), testing);
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|other| **other == status).count()
}

#[test]
fn requests_of_a_client_borrow_tokens_together_and_more_at_a_time() {
    let store = TestStore::with(30);
    let limit = RateLimit::new(ConnectionRate::per_second(100).burst(64)).shared("api", store.clone());
    let seen = store.clone();
    run(limit, |address| {
        Box::pin(async move {
            let (statuses, _) = ask(address.clone(), 40, "").await;
            assert_eq!((count(&statuses, 200), count(&statuses, 429)), (30, 10), "{statuses:?}");
            let asked = seen.asked();
            assert!(asked.len() <= 8 && asked.starts_with(&[1, 2, 4, 8]), "{asked:?}");
            // The store has named a time. Until then nothing is asked.
            let before = seen.asked().len();
            let (statuses, _) = ask(address, 5, "").await;
            assert_eq!((statuses, seen.asked().len()), (vec![429; 5], before));
        })
    });
}

#[test]
fn a_client_that_asks_seldom_borrows_one_token_at_a_time() {
    let store = TestStore::with(100);
    let limit = RateLimit::new(ConnectionRate::per_minute(60).burst(64)).shared("api", store.clone());
    run(limit, |address| {
        Box::pin(async move {
            for _ in 0..5 {
                assert_eq!(ask(address.clone(), 1, "").await.0, [200]);
                task::sleep(Duration::from_secs(2)).await;
            }
        })
    });
    assert_eq!(store.asked(), [1; 5]);
}

#[test]
fn a_store_that_fails_or_is_silent_leaves_the_local_limit_and_has_a_pause() {
    for (mood, longest) in [(Mood::Error, 5), (Mood::Silent, 20)] {
        let store = TestStore::with(1_000);
        store.set(mood);
        let limit = RateLimit::new(ConnectionRate::per_minute(1).burst(3)).shared("api", store.clone());
        run(limit, move |address| {
            Box::pin(async move {
                let (statuses, took) = ask(address.clone(), 5, "").await;
                assert_eq!((count(&statuses, 200), count(&statuses, 429)), (3, 2), "{mood:?}: {statuses:?}");
                assert!(
                    took >= Duration::from_millis(longest) && took < Duration::from_millis(longest + 15),
                    "{took:?}"
                );
                // Nothing waits for a store that has just failed.
                assert_eq!((ask(address.clone(), 1, "").await.0, store.asked().len()), (vec![429], 1));
                task::sleep(Duration::from_secs(2)).await;
                store.set(Mood::Well);
                assert_eq!((ask(address, 1, "").await.0, store.asked().len()), (vec![200], 2));
            })
        });
    }
}

#[test]
fn a_limit_that_fails_closed_refuses_while_the_store_fails() {
    let store = TestStore::with(1_000);
    store.set(Mood::Silent);
    let limit = RateLimit::new(ConnectionRate::per_second(100)).shared("api", store);
    run(limit.fail_closed().deadline(Duration::from_millis(7)), |address| {
        Box::pin(async move {
            let (statuses, took) = ask(address, 3, "").await;
            assert_eq!(statuses, [503; 3]);
            assert!(took < Duration::from_millis(20), "{took:?}");
        })
    });
}

#[test]
fn the_store_sees_no_value_of_a_request_and_tells_limits_apart() {
    let names = Rc::new(RefCell::new(Vec::new()));
    for (name, rate, key, fields) in [
        ("api", 1, RateKey::Bearer, "Authorization: Bearer secret\r\n"),
        ("api", 1, RateKey::Bearer, "Authorization: bearer secret\r\n"),
        ("api", 1, RateKey::Bearer, "Authorization: Bearer other\r\n"),
        ("api", 1, RateKey::Header("X-Key".into()), "X-Key: secret\r\n"),
        ("api", 2, RateKey::Bearer, "Authorization: Bearer secret\r\n"),
        ("a name: with *", 1, RateKey::Bearer, "Authorization: Bearer secret\r\n"),
        ("api", 1, RateKey::Client, ""),
    ] {
        let store = TestStore::with(100);
        let limit = RateLimit::new(ConnectionRate::per_second(rate)).key(key).shared(name, store.clone());
        run(limit, move |address| {
            Box::pin(async move {
                assert_eq!(ask(address, 1, fields).await.0, [200]);
            })
        });
        let asked = store.0.lock().unwrap().asked.clone();
        assert!(!asked[0].0.contains("secret") && asked[0].0.len() <= 128, "{asked:?}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/+=-".contains(&byte);
        assert!(asked[0].0.bytes().all(is_plain), "{asked:?}");
        names.borrow_mut().push(asked[0].0.clone());
    }
    let names = names.borrow();
    assert_eq!(names[0], names[1]);
    for (number, name) in names.iter().enumerate().skip(1) {
        assert!(!names[number + 1..].contains(name), "{name}");
    }
    assert_eq!(names[6], "api:1000000000-1:a000002", "processes agree about an address");
}
