//! `run` and `check-config`: one file with listeners, routes and upstreams.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;

use rustix::process::Signal;

use crate::support::peer::{Peer, Reply};
use crate::support::program::{Directory, Program, run, tidegate, until};
use crate::takeover::Load;

/// A folder with a configuration.
pub(crate) struct Files(Directory);

impl Files {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A running program with the file of that name.
    pub(crate) fn start(&self, name: &str, flags: &[&str]) -> Program {
        self.try_start(name, flags).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
    }

    /// The same, or the log of a program that did not start.
    pub(crate) fn try_start(&self, name: &str, flags: &[&str]) -> Result<Program, Vec<String>> {
        let mut command = tidegate(&["run", "--loops", "2", "--config", &self.path(name)]);
        command.args(flags);
        Program::start(command)
    }

    /// The exit code of `check-config`, its output, and its mistakes without the folder.
    pub(crate) fn check(&self, text: &str) -> (Option<i32>, Vec<String>, Vec<String>) {
        self.write("gateway.toml", text);
        let (code, lines, errors) = run(&["check-config", "--listen-by-flags", &self.path("gateway.toml")]);
        let folder = format!("tidegate: {}", self.path(""));
        let folder = folder.trim_end_matches('/').to_owned() + "/";
        (code, lines, errors.into_iter().map(|line| line.replace(&folder, "")).collect())
    }
}

/// A request for a host, on a connection of its own.
pub(crate) fn ask(program: &Program, host: &str, target: &str, fields: &str) -> Reply {
    request(program, "GET", host, target, fields)
}

pub(crate) fn request(program: &Program, method: &str, host: &str, target: &str, fields: &str) -> Reply {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n");
    Peer::connect(program).exchange(head)
}

#[test]
fn one_file_has_listeners_sites_routes_and_upstreams() {
    let (files, upstream) = (Files::new(), Program::serve(&["--loops", "1"]));
    fs::create_dir(files.path("site")).unwrap();
    files.write("site/index.html", "<h1>tides</h1>");
    files.write("site/a.txt", "a");
    files.write("upstreams.toml", "[[upstream]]\nname = \"app\"\nservers = [\"http://${APP}\"]\n");
    files.write("password", "flow\n");
    files.write(
        "gateway.toml",
        r#"
        include = "upstreams.toml"

        [[listen]]
        address = "127.0.0.1:${PORT:-0}"

        [[site]]
        hosts = ["sea.example", "*.sea.example"]
        [[site.route]]
        folder = "site"
        [[site.route]]
        path = "/old"
        redirect = { to = "/new#part", status = 301 }
        [[site.route]]
        path = "/api/*"
        upstream = "app"
        strip-path = true
        response-headers = { set = { X-Gateway = "tide" } }
        [[site.route]]
        path = "/static/*"
        folder = "site"
        [[site.route]]
        path = "/private"
        respond = { body = "secret" }
        basic-auth = { users = { ebb = { file = "password" } } }

        [[route]]
        path = "/"
        methods = ["GET"]
        respond = { status = 418, body = "{}", headers = { Content-Type = "application/json" } }
        "#,
    );
    let mut command = tidegate(&["run", "--loops", "2", "--config", &files.path("gateway.toml")]);
    command.env("APP", upstream.ip().to_string());
    let program = Program::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"));
    assert_eq!(ask(&program, "sea.example", "/", "").text(), "<h1>tides</h1>");
    assert_eq!(ask(&program, "A.b.SEA.example:80", "/static/a.txt", "").text(), "a");
    let moved = ask(&program, "sea.example", "/old?v=1", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/new?v=1#part")));
    let passed = ask(&program, "sea.example", "/api/plaintext", "");
    assert_eq!((passed.text(), passed.field("x-gateway")), ("Hello, World!", Some("tide")));
    assert_eq!(ask(&program, "sea.example", "/api", "").status, 200);
    assert_eq!(ask(&program, "sea.example", "/private", "").status, 401);
    let known = ask(&program, "sea.example", "/private", "Authorization: Basic ZWJiOmZsb3c=\r\n");
    assert_eq!(known.text(), "secret");
    let fixed = ask(&program, "other.example", "/", "");
    assert_eq!((fixed.status, fixed.text(), fixed.field("content-type")), (418, "{}", Some("application/json")));
    assert_eq!(ask(&program, "other.example", "/a", "").status, 404);
    let refused = request(&program, "DELETE", "other.example", "/", "");
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn values_have_placeholders() {
    let (files, upstream) = (Files::new(), Program::serve(&["--loops", "1"]));
    files.write(
        "gateway.toml",
        &format!(
            r#"
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "app"
            servers = ["http://{}"]
            [[route]]
            path = "/plaintext"
            upstream = "app"
            response-headers = {{ set = {{ X-Client = "{{client.ip}} {{request.header.X-A}}!", X-Json = '{{"a":1}}' }} }}
            [[route]]
            path = "/old/{{id}}"
            redirect = {{ to = "https://{{request.hostname}}/new/{{request.param.id}}", status = 302 }}
            "#,
            upstream.ip()
        ),
    );
    let program = files.start("gateway.toml", &[]);
    let passed = ask(&program, "sea.example", "/plaintext", "X-A: ebb\r\n");
    assert_eq!((passed.field("x-client"), passed.field("x-json")), (Some("127.0.0.1 ebb!"), Some("{\"a\":1}")));
    let moved = ask(&program, "sea.example:80", "/old/7", "");
    assert_eq!((moved.status, moved.field("location")), (302, Some("https://sea.example/new/7")));
}

#[test]
fn a_route_decides_which_clients_may_ask_and_how_often() {
    let files = Files::new();
    let route =
        |path: &str, rest: &str| format!("[[route]]\npath = \"{path}\"\n{rest}\nrespond = {{ body = \"x\" }}\n");
    let text = [
        "[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned(),
        route("/denied", "deny = \"127.0.0.0/8\""),
        route("/far", "allow = \"192.0.2.0/24\""),
        route("/near", "allow = [\"127.0.0.0/8\", \"192.0.2.0/24\"]"),
        route("/rare", "rate = \"1/m:2\"\nrate-by = \"header:X-User\""),
        route("/safe", "security-headers = true\nconcurrency = 5"),
    ];
    files.write("gateway.toml", &text.concat());
    let program = files.start("gateway.toml", &[]);
    let status = |path: &str, fields: &str| ask(&program, "a", path, fields).status;
    assert_eq!([status("/denied", ""), status("/far", ""), status("/near", "")], [403, 403, 200]);
    let of = |user: &str| status("/rare", &format!("X-User: {user}\r\n"));
    assert_eq!([of("a"), of("a"), of("a"), of("b")], [200, 200, 429, 200]);
    let safe = ask(&program, "a", "/safe", "");
    assert_eq!((safe.status, safe.field("x-content-type-options")), (200, Some("nosniff")));
}

#[test]
fn gateways_share_a_rate_through_redis_and_have_their_own_without_it() {
    let files = Files::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shared = |path: &str, rest: &str| {
        format!(
            "[[route]]\npath = \"{path}\"\nrate = {{ limit = \"1/m:3\", shared = \"redis://127.0.0.1:{port}/\"{rest} }}\n\
             respond = {{ body = \"x\" }}\n"
        )
    };
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    files
        .write("gateway.toml", &[listen, shared("/open", ""), shared("/closed", ", on-failure = \"closed\"")].concat());
    let (one, other) = (files.start("gateway.toml", &[]), files.start("gateway.toml", &[]));
    let status = |program: &Program, path: &str| ask(program, "a", path, "").status;
    // Nothing listens there.
    assert_eq!((0..4).map(|_| status(&one, "/open")).collect::<Vec<_>>(), [200, 200, 200, 429]);
    assert_eq!(status(&one, "/closed"), 503);
    let redis = std::process::Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut redis = match redis {
        Ok(redis) => redis,
        Err(error) => return crate::support::program::skip("redis-server", &error),
    };
    // The store has a pause after each failure, and then requests pass.
    until("the store to answer", || status(&one, "/closed") == 200);
    until("the store to answer", || status(&other, "/closed") != 503);
    let mut seen = Vec::new();
    until("the tokens to be used up", || {
        seen.push(status(&one, "/closed"));
        seen.push(status(&other, "/closed"));
        seen.ends_with(&[429, 429])
    });
    assert!(seen.iter().filter(|status| **status == 200).count() <= 1, "{seen:?}");
    redis.kill().unwrap();
    redis.wait().unwrap();
}

#[test]
fn a_proxied_route_has_a_cache_compression_and_a_sticky_cookie() {
    let (files, upstream) = (Files::new(), Program::serve(&["--loops", "1"]));
    files.write(
        "gateway.toml",
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
             [[route]]\nupstream = \"app\"\ncompress = true\nsticky-cookie = \"tide\"\n\
             [[route]]\npath = \"/bytes/*\"\nupstream = \"app\"\ncache = true\n\
             basic-auth = {{ users = {{ ebb = \"flow\" }} }}\n",
            upstream.ip()
        ),
    );
    let program = files.start("gateway.toml", &[]);
    let asked = ask(&program, "a", "/json", "Accept-Encoding: gzip\r\n");
    let cookie = asked.field("set-cookie").unwrap_or_default();
    assert!(asked.status == 200 && cookie.starts_with("tide="), "{cookie}");
    // A cache is behind the password.
    assert_eq!(ask(&program, "a", "/bytes/1", "").status, 401);
    let passed = ask(&program, "a", "/bytes/1", "Authorization: Basic ZWJiOmZsb3c=\r\n");
    let status = passed.field("cache-status").unwrap_or_default();
    assert!(passed.status == 200 && status.contains("fwd="), "{status}");
    assert_eq!(ask(&program, "a", "/bytes/1", "").status, 401);
}

#[test]
fn routes_are_chosen_by_method_field_query_and_client_and_fall_through() {
    let files = Files::new();
    let route = |rest: &str, body: &str| format!("[[route]]\n{rest}\nrespond = {{ body = \"{body}\" }}\n");
    let text = [
        "[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned(),
        route("", "rest"),
        route("path = \"/api/*\"\nmethods = [\"POST\"]", "post"),
        route("path = \"/api/*\"\nheaders = { X-Canary = \"1\" }", "canary"),
        route("path = \"/api/v1\"\nquery = { debug = true, level = \"a b\" }", "debug"),
        route("path = \"/users/{id}\"\nheaders = { Cookie = false }\nclient = \"127.0.0.0/8\"", "user"),
        route("path = \"/far\"\nclient = [\"192.0.2.0/24\"]", "far"),
    ];
    files.write("gateway.toml", &text.concat());
    let program = files.start("gateway.toml", &[]);
    let get = |target: &str, fields: &str| ask(&program, "a", target, fields).text().to_owned();
    assert_eq!(get("/", ""), "rest");
    assert_eq!(get("/api/v1", ""), "rest");
    assert_eq!(request(&program, "POST", "a", "/api/v1", "Content-Length: 0\r\n").text(), "post");
    assert_eq!(request(&program, "POST", "a", "/api", "Content-Length: 0\r\n").text(), "post");
    assert_eq!(get("/api/v1/x", "X-Canary: 1\r\n"), "canary");
    assert_eq!(get("/api", "X-Canary: 2\r\n"), "rest");
    assert_eq!(get("/%61pi/v1?level=a+b&debug", ""), "debug");
    assert_eq!(get("/api/v1?level=a", "X-Canary: 1\r\n"), "canary");
    assert_eq!(get("/users/7", ""), "user");
    assert_eq!(get("/users/7", "Cookie: a=b\r\n"), "rest");
    assert_eq!(get("/users/7/8", ""), "rest");
    assert_eq!(get("/far", ""), "rest");
}

#[test]
fn http_redirects_to_https_in_one_process() {
    let files = Files::new();
    files.write(
        "gateway.toml",
        r#"
        [[listen]]
        address = ["127.0.0.1:0", "127.0.0.1:0"]
        redirect-https = 8443
        [[listen]]
        address = "127.0.0.1:0"
        protocol = "https"
        self-signed = ["sea.example"]
        versions = ["http/1.1"]
        limits = { headers = 50 }
        [[route]]
        respond = { body = "by tls" }
        "#,
    );
    let program = files.start("gateway.toml", &[]);
    let moved = ask(&program, "sea.example:80", "/a%20b?c=d", "");
    assert_eq!((moved.status, moved.field("location")), (308, Some("https://sea.example:8443/a%20b?c=d")));
    let line = program.output().into_iter().find(|line| line.contains("https://")).expect("the https listener");
    let address = line.split("https://").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let url = format!("https://{address}/");
    let output = std::process::Command::new("curl").args(["-sk", "--noproxy", "*", "--max-time", "60", &url]).output();
    match output {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "by tls"),
        Err(error) => crate::support::program::skip("curl", &error),
    }
}

#[test]
fn every_mistake_is_reported_with_its_place_and_the_key_that_was_meant() {
    let files = Files::new();
    let text = r#"acess-log = "json"
slashes = "murge"
[[upstream]]
name = "app"
servers = [{ url = "http://a", wieght = 2 }, "http://b/c"]
[[upstream]]
name = "app"
servers = []
[[listen]]
address = "here"
protocol = "https"
limits = { qpack-blocked-streams = 8 }
[[route]]
hosts = ["*.a.*"]
path = "api"
upstream = "ap"
listing = true
[[route]]
root = "/"
respond = { status = 1000 }
[[route]]
upstream = "${NOT_THERE}"
"#;
    let (code, lines, errors) = files.check(text);
    assert_eq!((code, lines.len()), (Some(1), 0));
    for (place, expected) in [
        ("1:1", "did you mean `access-log`"),
        ("2:11", "did you mean \"merge\""),
        ("5:32", "did you mean `weight`"),
        ("5:46", "no path"),
        ("7:8", "second upstream"),
        ("8:11", "no servers"),
        ("10:11", "`here` is not an address"),
        ("9:1", "`certificates`, `acme`, or `self-signed`"),
        ("9:1", "`limits.qpack-blocked-streams` needs `http3 = true`"),
        ("9:1", "`limits.qpack-blocked-streams` needs `limits.qpack-max-table-capacity`"),
        ("14:10", "never matches"),
        ("15:8", "begins with a slash"),
        ("16:12", "did you mean `app`"),
        ("17:11", "`listing` is for routes with `folder`"),
        ("19:1", "did you mean `folder`"),
        ("20:22", "`status` is a number from 200 to 599, not 1000"),
        ("22:12", "NOT_THERE"),
    ] {
        let wanted = format!("gateway.toml:{place}: ");
        let is_there = errors.iter().any(|line| line.starts_with(&wanted) && line.contains(expected));
        assert!(is_there, "{wanted}{expected}: {errors:#?}");
    }
}

#[test]
fn a_mistake_that_is_made_often_comes_with_what_to_write() {
    let files = Files::new();
    for (text, place, expected) in [
        ("[[listen]]\naddress = \"a.example:80\"\n", "2:11", "is not an address: write IP:PORT"),
        (
            "[[listen]]\naddress = \"127.0.0.1:1\"\nidle-timeout = 30\n",
            "3:1",
            "[[listen]] has no key `idle-timeout`, and its `limits` has: write `limits = { idle-timeout = ... }`",
        ),
        ("[listen]\naddress = \"127.0.0.1:1\"\n", "1:1", "a list of tables, not a table: write `[[listen]]`"),
        (
            "[[upstream]]\nname = \"a\"\nservers = [\"127.0.0.1:9001\"]\n",
            "3:12",
            "unix+h2c:PATH; write `http://127.0.0.1:9001`",
        ),
        ("[[route]]\nredirect = \"/a\"\n", "2:12", "not \"/a\": write `redirect = { to = ... }`"),
        ("[[route]]\nrespond = 404\n", "2:11", "not 404: write `respond = { status = ... }`"),
        ("[[route]]\nrespnd = { body = \"a\" }\n", "2:1", "did you mean `respond`"),
        ("[[route]]\nhosts = \"https://sea.example:8443/\"\nrespond = {}\n", "2:9", "; write `sea.example`"),
        ("[[route]]\npath = \"/a/%2E./b\"\nrespond = {}\n", "2:8", "never matches: clients remove"),
        ("[[route]]\nrespond = { status = 204, body = \"a\" }\n", "1:1", "a response with 204 has no body"),
    ] {
        let (code, _, errors) = files.check(text);
        assert_eq!(code, Some(1), "{text}: {errors:?}");
        // One mistake is not reported twice.
        assert!(!errors.iter().any(|line| line.contains("the route has no")), "{text}: {errors:#?}");
        let place = format!("gateway.toml:{place}: ");
        let is_there = errors.iter().any(|line| line.starts_with(&place) && line.contains(expected));
        assert!(is_there, "{text}{place}{expected}: {errors:#?}");
    }
}

#[test]
fn the_body_of_a_request_may_be_longer_than_4_gib() {
    let files = Files::new();
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\nlimits = { body-bytes = 50000000000 }\n\
                [[route]]\nbody-bytes = 50000000000\nrespond = {}\n";
    let (code, _, errors) = files.check(text);
    assert_eq!((code, errors), (Some(0), Vec::new()));
    let program = files.start("gateway.toml", &[]);
    for (length, status) in [("45000000000", 200), ("50000000001", 413)] {
        let fields = format!("Content-Length: {length}\r\n");
        assert_eq!(request(&program, "POST", "a", "/", &fields).status, status, "{length}");
    }
}

#[test]
fn mistakes_between_routes_and_of_syntax_are_found() {
    let files = Files::new();
    let respond = "respond = { body = \"a\" }\n";
    for (text, place, expected) in [
        (String::new(), "gateway.toml: ", "no [[route]]"),
        (format!("[[route]]\n{respond}[[route]]\n{respond}"), "3:1", "second route"),
        (format!("[[route]]\npath = \"/a%62\"\n{respond}[[route]]\npath = \"/ab\"\n{respond}"), "4:1", "second route"),
        (format!("[[route]]\npath = \"/{{a}}\"\n{respond}[[route]]\npath = \"/{{b}}\"\n{respond}"), "5:8", "/{b}"),
        (format!("[[route]]\npath = \"/a/*\"\n{respond}[[route]]\npath = \"/a/{{*b}}\"\n{respond}"), "5:8", "/{*b}"),
        ("[[route]\n".into(), "1:9", "unclosed"),
        ("[[route]]\nrespond = {}\nredirect = { to = \"/\" }\n".into(), "3:12", "one of"),
        ("[[route]]\nhosts = [\"a\"]\n".into(), "1:1", "no `upstream`"),
        ("[[route]]\nredirect = { to = \"//$host\" }\n".into(), "2:19", "`$host` would be sent"),
        ("[[route]]\nredirect = { to = \"//{request.hots}/\" }\n".into(), "2:19", "did you mean `{request.host}`"),
        ("[[route]]\nrate = { limit = \"1/s\" }\nrespond = {}\n".into(), "2:8", "rate has no `shared`"),
        (
            "[[route]]\nrate = { limit = \"1/s\", shared = \"http://me:secret@a\" }\nrespond = {}\n".into(),
            "2:34",
            "`shared` is not redis://",
        ),
        ("[[route]]\nrate-by = \"user\"\nrespond = {}\n".into(), "2:11", "is not client, header:NAME"),
        ("[[route]]\ncache = true\nrespond = {}\n".into(), "2:9", "`cache` is for routes with `upstream`"),
        ("[[route]]\nredirect = { to = \"//{request.host}/$uri\" }\n".into(), "2:19", "`$uri` would be sent"),
        ("[[route]]\nallow = []\nrespond = {}\n".into(), "2:9", "`allow` is an empty list"),
        ("[[route]]\npath = \"/%7Bid%7D\"\nrespond = {}\n".into(), "2:8", "an encoded brace"),
        ("[[route]]\nbasic-auth = { users = { a = \"\" } }\nrespond = {}\n".into(), "2:30", "password of `a` is empty"),
        ("[[route]]\nbasic-auth = { users = { a = 12345 } }\nrespond = {}\n".into(), "2:30", "not a number"),
        ("[[route]]\nfolder = \"/nowhere\"\n".into(), "2:10", "not a directory"),
        ("[[route]]\npath = \"/a\"\nfolder = \"/\"\n".into(), "2:8", "ends with `/*`"),
        (
            "[[listen]]\naddress = \"127.0.0.1:1\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n".into(),
            "4:11",
            "second listener",
        ),
        ("[[listen]]\naddress = \"127.0.0.1:1\"\nredirect-https = true\n".into(), "1:1", "needs an https listener"),
        ("[[listen]]\naddress = \"127.0.0.1:1\"\nself-signed = true\n".into(), "1:1", "need `protocol"),
        ("a = 1.5\nb = 2020-01-01\nlisten = 3\n".into(), "3:10", "`listen` is a list of tables, not 3"),
        ("include = \"none.toml\"\n".into(), "1:11", "none.toml"),
        ("include = \"gateway.toml\"\n".into(), "1:11", "includes itself"),
    ] {
        let (code, _, errors) = files.check(&text);
        assert_eq!(code, Some(1), "{text}: {errors:?}");
        let place = if place.ends_with(' ') { place.to_owned() } else { format!("gateway.toml:{place}: ") };
        assert!(
            errors.iter().any(|line| line.starts_with(&place) && line.contains(expected)),
            "{text}{place}{expected}: {errors:#?}"
        );
    }
    files.write("gateway.toml", "");
    let (code, _, errors) = run(&["check-config", &files.path("none.toml")]);
    assert!(code == Some(1) && errors[0].contains("none.toml"), "{errors:?}");
}

#[test]
fn files_are_bounded_in_size_depth_and_number() {
    let files = Files::new();
    let (code, _, errors) = files.check(&"# a comment, which is long\n".repeat(400_000));
    assert!(code == Some(1) && errors[0].contains("larger than 8 MiB"), "{errors:?}");
    // Each includes the next one.
    for number in 0..12 {
        files.write(&format!("{number}.toml"), &format!("include = [\"{}.toml\"]\n", number + 1));
    }
    let (code, _, errors) = files.check("include = \"0.toml\"\n");
    assert!(code == Some(1) && errors.iter().any(|line| line.contains("8 levels")), "{errors:?}");
    // A file of mistakes is reported in part.
    let (code, _, errors) = files.check(&"[[rout]]\na = 1\n".repeat(10_000));
    assert!(code == Some(1) && errors.len() <= 201, "{}", errors.len());
    let many: String = (0..1_000).map(|number| format!("[[route]]\nx{number} = 1\n")).collect();
    let (code, _, errors) = files.check(&many);
    assert!(code == Some(1) && errors.len() == 201, "{}", errors.len());
    // Deep nesting ends in a mistake.
    let (code, _, errors) = files.check(&format!("listen = {}", "[".repeat(100_000)));
    assert!(code == Some(1) && !errors.is_empty());
}

#[test]
fn warnings_refuse_nothing() {
    let files = Files::new();
    let text = r#"
[[upstream]]
name = "spare"
servers = ["http://192.0.2.1"]
[[route]]
hosts = ["*.sea.example"]
respond = { body = "a" }
[[route]]
hosts = ["a.sea.example"]
methods = ["GET"]
respond = { body = "b" }
[[route]]
hosts = ["a.sea.example"]
methods = ["GET"]
respond = { body = "c" }
"#;
    let (code, lines, errors) = files.check(text);
    assert_eq!((code, lines.len()), (Some(0), 1), "{errors:?}");
    assert!(lines[0].contains("0 listeners, 1 upstreams, 3 routes"), "{lines:?}");
    for (place, expected) in
        [("3:8", "no route uses"), ("9:10", "none of the routes of `*.sea.example`"), ("12:1", "nothing reaches")]
    {
        let wanted = format!("gateway.toml:{place}: ");
        assert!(
            errors.iter().any(|line| line.contains(&wanted) && line.contains(expected) && line.contains("warning")),
            "{wanted}: {errors:?}"
        );
    }
}

#[test]
fn the_schema_is_json_and_knows_each_table() {
    let (code, lines, errors) = run(&["run", "--schema"]);
    assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
    let schema: serde_json::Value = serde_json::from_str(&lines.join("\n")).expect("it is JSON");
    let tables = schema["$defs"].as_object().expect("tables");
    for table in ["listen", "upstream", "route", "site", "health-check", "redirect", "respond", "basic-auth"] {
        assert!(tables.get(table).is_some_and(|table| table["properties"].is_object()), "{table}: {:?}", tables.keys());
    }
    assert_eq!(schema["properties"]["access-log"]["default"], "off");
    let (code, _, errors) = run(&["run"]);
    assert!(code == Some(2) && errors[0].contains("--config"), "{errors:?}");
}

#[test]
fn a_file_without_listeners_does_not_run() {
    let files = Files::new();
    files.write("gateway.toml", "[[route]]\nrespond = {}\n");
    let (code, _, errors) = run(&["run", "--config", &files.path("gateway.toml")]);
    assert!(code == Some(2) && errors[0].contains("no [[listen]]"), "{errors:?}");
    let program = Program::serve(&["--config", &files.path("gateway.toml")]);
    assert_eq!(ask(&program, "a", "/", "").status, 200);
    program.signal(Signal::TERM);
}

/// The listeners in the output, in order, once there are so many: the line of a reload in the log may come before them.
pub(crate) fn listeners(program: &Program, count: usize) -> Vec<String> {
    let address = |line: &String| Some(line.split("http://").nth(1)?.split(' ').next()?.to_owned());
    let found = || -> Vec<_> {
        program.output().iter().filter(|line| line.contains("listening on")).filter_map(address).collect()
    };
    until(&format!("{count} listeners in the output"), || found().len() >= count);
    found()
}

/// The address of the administrative server.
pub(crate) fn admin(program: &Program) -> SocketAddr {
    let address = |line: &String| Some(line.split("admin at http://").nth(1)?.split(' ').next()?.to_owned());
    until("the line of the administrative server", || program.output().iter().any(|line| address(line).is_some()));
    program.output().iter().find_map(address).expect("it was there").parse().unwrap()
}

pub(crate) fn reload_request(admin: SocketAddr) -> String {
    format!("POST /reload HTTP/1.1\r\nHost: {admin}\r\nOrigin: http://{admin}\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn a_reload_takes_the_whole_file_or_nothing() {
    let files = Files::new();
    let text = |body: &str, listen: &str| {
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{listen}[[route]]\nrespond = {{ body = \"{body}\" }}\n")
    };
    files.write("gateway.toml", &text("one", ""));
    let program = files.start("gateway.toml", &[]);
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.get("/").text(), "one");
    files.write("gateway.toml", &text("two", ""));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(peer.get("/").text(), "two", "the same connection");

    files.write("gateway.toml", &text("three", "lissen = 1\nlimts = {}\n"));
    program.signal(Signal::HUP);
    let lines = program.until_logged("not reloaded", 1);
    assert!(lines[0].contains("gateway.toml:3:1") && lines[0].contains("gateway.toml:4:1"), "{lines:?}");
    assert_eq!(peer.get("/").text(), "two");

    // An address that is taken changes nothing either.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = format!("[[listen]]\naddress = \"{}\"\n", taken.local_addr().unwrap());
    files.write("gateway.toml", &text("three", &second));
    program.signal(Signal::HUP);
    program.until_logged("not reloaded", 2);
    assert_eq!(peer.get("/").text(), "two");
    assert_eq!(ask(&program, "a", "/", "").text(), "two");
}

#[test]
fn a_changed_listener_is_opened_before_the_old_server_drains() {
    let files = Files::new();
    let text = |body: &str, rest: &str| {
        let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
        format!("{listen}{rest}[[route]]\nrespond = {{ body = \"{body}\" }}\n")
    };
    files.write("gateway.toml", &text("one", ""));
    let mut program = files.start("gateway.toml", &["--admin", "127.0.0.1:0", "--admin-reload"]);
    let first = listeners(&program, 1);
    assert_eq!(ask(&program, "a", "/", "").text(), "one");
    // A limit of the listener changes, and there is another one.
    files.write("gateway.toml", &text("two", "limits = { headers = 3 }\n[[listen]]\naddress = \"127.0.0.1:0\"\n"));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    let now = listeners(&program, first.len() + 2);
    assert_eq!(now.len(), first.len() + 2, "{now:?}");
    assert_eq!(now[first.len()], first[0], "the address stays");
    program.until_logged("the replaced server has ended", 1);
    assert_eq!(ask(&program, "a", "/", "").text(), "two");
    assert_eq!(ask(&program, "a", "/", "A: 1\r\nB: 2\r\nC: 3\r\n").status, 431);
    let second = Peer::to(&now[now.len() - 1].parse::<SocketAddr>().unwrap().into()).get("/").text().to_owned();
    assert_eq!(second, "two");
    // The administrative server is that of the new server, at the same address.
    let admin = admin(&program);
    let mut at_admin = Peer::to(&admin.into());
    let reload = reload_request(admin);
    let reply = at_admin.exchange(&reload);
    assert_eq!((reply.status, reply.text()), (200, "2 listeners, 1 routes\n"));
    files.write("gateway.toml", "[[rout]]\n");
    let reply = Peer::to(&admin.into()).exchange(&reload);
    assert!(reply.status == 422 && reply.text().contains("did you mean `route`"), "{}", reply.text());
    // One that changes the listeners ends the administrative server that has answered it.
    files.write("gateway.toml", &text("three", ""));
    let reply = Peer::to(&admin.into()).exchange(&reload);
    assert_eq!((reply.status, reply.text()), (200, "1 listeners, 1 routes\n"));
    program.until_logged("the replaced server has ended", 2);
    assert_eq!(ask(&program, "a", "/", "").text(), "three");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

#[test]
fn the_administrative_server_reloads_only_if_it_may() {
    let files = Files::new();
    files.write("gateway.toml", "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {}\n");
    let program = files.start("gateway.toml", &["--admin", "127.0.0.1:0"]);
    let admin = admin(&program);
    let reply = Peer::to(&admin.into()).exchange(reload_request(admin));
    assert_eq!(reply.status, 404);
}

/// With certificates, a folder and secrets in the places of the real ones.
#[test]
fn the_files_of_deploy_are_accepted() {
    let files = Files::new();
    let made = rcgen::generate_simple_self_signed(["sea.example".to_owned(), "www.sea.example".to_owned()]).unwrap();
    files.write("chain.pem", &made.cert.pem());
    files.write("key.pem", &made.signing_key.serialize_pem());
    files.write("users", "admin:$2b$04$hFqqjJtkBGZQKeSiSyjQ3etF8dY3otUfeC.D.zA.DTbaUzKcEb3HG\n");
    files.write("cookie", "a secret of sixteen bytes or more\n");
    files.write("sorry.html", "<p>later</p>");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/config");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let mut command = tidegate(&["check-config"]);
        let (place, cache) = (files.path(""), files.path("cache"));
        command.arg(&path).envs([
            ("TLS", &place),
            ("SITE", &place),
            ("SECRETS", &place),
            ("PAGES", &place),
            ("CACHE", &cache),
        ]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{}: {errors}", path.display());
        count += 1;
    }
    assert_eq!(count, 6);
}

/// A secret that is a FIFO holds up the reload that reads it.
#[test]
fn a_reload_during_a_reload_is_refused_or_waits() {
    let files = Files::new();
    let text =
        |body: &str| format!("[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ body = {body} }}\n");
    files.write("gateway.toml", &text("\"one\""));
    let program = files.start("gateway.toml", &["--admin", "127.0.0.1:0", "--admin-reload"]);
    let (admin, pipe) = (admin(&program), files.path("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    files.write("gateway.toml", &text("{ file = \"pipe\" }"));
    let mut first = Peer::to(&admin.into());
    first.send(reload_request(admin));
    // It can be opened once the reload reads it.
    let mut secret = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let second = Peer::to(&admin.into()).exchange(reload_request(admin));
    assert_eq!(second.status, 409, "{}", second.text());
    assert_eq!(ask(&program, "a", "/", "").text(), "one");
    files.write("gateway.toml", &text("\"three\""));
    program.signal(Signal::HUP);
    secret.write_all(b"two").unwrap();
    drop(secret);
    assert_eq!(first.reply().status, 200);
    program.until_logged("configuration reloaded", 2);
    assert_eq!(ask(&program, "a", "/", "").text(), "three", "the signal has waited");
}

#[test]
fn reloads_under_load_lose_no_request() {
    let files = Files::new();
    let text = |number: usize, headers: usize, address: &str| {
        let listen = format!("[[listen]]\naddress = \"{address}\"\nlimits = {{ headers = {headers} }}\n");
        let others: String =
            (0..200).map(|other| format!("[[route]]\npath = \"/{other}\"\nrespond = {{}}\n")).collect();
        format!(
            "{listen}[[route]]\nrespond = {{ body = \"Hello, World!\", headers = {{ X-Number = \"{number}\" }} }}\n{others}"
        )
    };
    files.write("gateway.toml", &text(0, 100, "127.0.0.1:0"));
    let mut program = files.start("gateway.toml", &[]);
    let address = program.ip().to_string();
    let Some(load) = Load::start(&program, 32, 1) else { return };
    until("wrk to begin", || program.ticks() > 5);
    for number in 1..=12 {
        // Each third reload changes the listener, so another server starts.
        files.write("gateway.toml", &text(number, 100 + number / 3, &address));
        program.signal(Signal::HUP);
        program.until_logged("configuration reloaded", number);
        // The server before may accept a connection until its loops have heard that they drain.
        until("the new configuration to respond", || {
            ask(&program, "a", "/", "").field("x-number") == Some(&*number.to_string())
        });
    }
    let result = load.end();
    for error in ["connect", "read", "write", "timeout", "status"] {
        assert!(result.contains(&format!("\"{error}\": 0")), "{result}");
    }
    assert!(!result.contains("\"requests\": 0"), "{result}");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}
