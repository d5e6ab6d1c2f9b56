//! Sessions and pages against the example `cache_server`, through sockets.

use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::redis::Client;
use tidegate::{Backend, EventLoop};

use crate::{IDLE, ask, cookie_of, start, start_cache};

/// Two processes of the service, and their store.
struct Web {
    cache: Option<ServerHandle>,
    servers: [Option<ServerHandle>; 2],
}

impl Web {
    fn new(idle: Duration) -> Self {
        let cache = start_cache().expect("the cache starts");
        let url = format!("redis://{}/", cache.address());
        let servers = [(); 2].map(|()| Some(start("127.0.0.1:0", &url, idle).expect("the service starts")));
        Self { cache: Some(cache), servers }
    }

    fn ask(&self, server: usize, method: &str, path: &str, cookie: &str, body: &str) -> String {
        let server = self.servers[server].as_ref().expect("it runs");
        ask(server, method, path, cookie, body).expect("a response")
    }

    fn login(&self, cookie: &str, name: &str) -> String {
        let response = self.ask(0, "POST", "/login", cookie, &format!("name={name}"));
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.contains("; HttpOnly; SameSite=Lax"), "{response}");
        cookie_of(&response).expect("a cookie").to_owned()
    }

    fn me(&self, server: usize, cookie: &str) -> String {
        let response = self.ask(server, "GET", "/me", cookie, "");
        format!("{} {}", &response[9..12], response.rsplit("\r\n\r\n").next().unwrap_or_default().trim())
    }

    /// A command to the store.
    fn command(&self, words: &'static [&'static str]) -> i64 {
        let target = self.cache.as_ref().expect("it runs").address().to_string();
        let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
        let asking = async move {
            let client = Client::to(&target).expect("an address").timeout(Duration::from_secs(60)).start();
            client.cmd(words[0]).args(&words[1..]).fetch::<i64>().await.expect("a number")
        };
        event_loop.block_on(asking).expect("the loop runs")
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let [one, other] = &mut self.servers;
        for server in [one.take(), other.take(), self.cache.take()].into_iter().flatten() {
            server.drain(Duration::ZERO);
        }
    }
}

#[test]
fn a_session_is_that_of_all_processes_and_gets_another_id_at_the_login() {
    let web = Web::new(IDLE);
    let first = web.login("", "Maren");
    assert_eq!([web.me(0, &first), web.me(1, &first)], ["200 Maren", "200 Maren"]);
    let second = web.login(&first, "Jan");
    assert_ne!(first, second);
    assert!(web.me(1, &first).starts_with("401"), "an id that another client has seen before the login is worthless");
    assert_eq!(web.me(1, &second), "200 Jan");
    let bye = web.ask(1, "POST", "/logout", &second, "");
    assert!(bye.contains("sid=; ") && bye.contains("; Max-Age=0"), "{bye}");
    assert!(web.me(0, &second).starts_with("401"));
    assert_eq!(web.command(&["DBSIZE"]), 0);
}

#[test]
fn ids_that_the_service_has_not_made_are_no_sessions() {
    let web = Web::new(IDLE);
    let chosen = format!("sid={}", "0".repeat(32));
    for cookie in [&*chosen, "sid=", "sid=x", "sid=../../a", "other=1"] {
        assert!(web.me(0, cookie).starts_with("401"), "{cookie}");
        assert_ne!(web.login(cookie, "Maren"), cookie);
    }
    assert!(web.me(0, &chosen).starts_with("401"));
}

#[test]
fn a_session_lasts_as_long_as_it_is_used_and_its_size_is_bounded() {
    let web = Web::new(Duration::from_secs(1000));
    let cookie = web.login("", "Maren");
    let long = format!("name={}", "x".repeat(5000));
    assert!(web.ask(0, "POST", "/login", &cookie, &long).starts_with("HTTP/1.1 4"));
    let long = format!("name={}", "x".repeat(1000));
    assert!(web.ask(0, "POST", "/login", &cookie, &long).starts_with("HTTP/1.1 200"), "and it is rotated");
    let cookie = web.login("", "Maren");
    let key: &'static str = format!("session:{}", cookie.trim_start_matches("sid=")).leak();
    let words = |words: [&'static str; 3]| -> &'static [&'static str] { Vec::from(words).leak() };
    assert_eq!(web.command(words(["EXPIRE", key, "10"])), 1);
    assert_eq!(web.me(1, &cookie), "200 Maren");
    assert!(web.command(&Vec::from(["TTL", key]).leak()[..]) > 900, "each request begins the time anew");
    assert_eq!(web.command(words(["EXPIRE", key, "0"])), 1);
    assert!(web.me(1, &cookie).starts_with("401"), "the user has been away");
}

#[test]
fn a_page_that_one_process_has_made_is_sent_by_the_other_until_it_is_purged() {
    let web = Web::new(IDLE);
    let page = |server| web.ask(server, "GET", "/tides", "", "");
    assert!(page(0).contains("X-Cache: miss"));
    // The response does not wait until the page is stored.
    while web.command(&["EXISTS", "page:/tides"]) == 0 {}
    for server in [0, 1] {
        let seen = page(server);
        assert!(seen.contains("X-Cache: hit") && seen.contains("computed 1 times"), "{seen}");
    }
    assert!(web.ask(0, "POST", "/purge", "", "").starts_with("HTTP/1.1 204"));
    assert!(page(1).contains("X-Cache: miss"));
}

#[test]
fn without_redis_pages_are_made_and_sessions_are_unavailable() {
    let mut web = Web::new(IDLE);
    let cookie = web.login("", "Maren");
    web.cache.take().expect("it runs").drain(Duration::ZERO);
    assert!(web.me(0, &cookie).starts_with("503"), "not the page of an anonymous user");
    assert!(web.me(0, "").starts_with("401"));
    let login = web.ask(0, "POST", "/login", "", "name=Jan");
    assert!(login.starts_with("HTTP/1.1 503") && cookie_of(&login).is_none(), "{login}");
    for _ in 0..2 {
        assert!(web.ask(1, "GET", "/tides", "", "").contains("X-Cache: miss"));
    }
}
