//! The keys of routes in the file of `run`: each with a response that shows it, and with a mistake.

use std::fs;

use tidegate_testkit::ClosedPort;

use crate::configuration::{Files, admin, ask, request};
use crate::support::origin::Origin;
use crate::support::peer::{Peer, Reply};
use crate::support::program::{Program, until};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn upstream(name: &str, origin: &Origin) -> String {
    format!("[[upstream]]\nname = \"{name}\"\nservers = [\"http://{}\"]\n", origin.address())
}

/// A program with this text behind a listener.
fn start(files: &Files, text: &str, flags: &[&str]) -> Program {
    files.write("gateway.toml", &format!("{LISTEN}{text}"));
    files.start("gateway.toml", flags)
}

fn field<'r>(reply: &'r Reply, name: &str) -> &'r str {
    reply.field(name).unwrap_or_default()
}

#[test]
fn a_path_is_rewritten_by_patterns_and_prefixes() {
    let (files, origin) = (Files::new(), Origin::echo());
    let route = r#"
        [[route]]
        path = "/shop/*"
        upstream = "app"
        strip-path = true
        rewrite = [{ pattern = "^/item/(?<id>.+)$", to = "/items?id=$id" }, { add-prefix = "/v2" }]
    "#;
    let program = start(&files, &(upstream("app", &origin) + route), &[]);
    let line = |target: &str| ask(&program, "a", target, "").text().lines().next().unwrap_or_default().to_owned();
    assert_eq!(line("/shop/item/7?q=1"), "GET /v2/items?id=7&q=1 HTTP/1.1");
    assert_eq!(line("/shop/%69tem/7%26admin=1"), "GET /v2/items?id=7%26admin%3D1 HTTP/1.1");
    assert_eq!(line("/shop/other"), "GET /v2/other HTTP/1.1");
    assert_eq!(ask(&program, "a", "/shop/item/", "").text().lines().next(), Some("GET /v2/item/ HTTP/1.1"));
}

#[test]
fn a_share_of_the_requests_is_mirrored() {
    let (files, origin, copies) = (Files::new(), Origin::echo(), Origin::echo());
    let route = "[[route]]\nupstream = \"app\"\nmirror = { upstream = \"next\", percent = 50 }\n\
         request-headers = { set = { X-Gateway = \"tide\" } }\n";
    files.write("gateway.toml", &format!("{LISTEN}{}{}{route}", upstream("app", &origin), upstream("next", &copies)));
    let command = crate::support::program::tidegate(&["run", "--loops", "1", "--config", &files.path("gateway.toml")]);
    let program = Program::start(command).unwrap();
    for number in 0..6 {
        let reply = ask(&program, "a", &format!("/{number}"), "");
        assert!(reply.status == 200 && reply.text().contains("X-Gateway: tide"), "{}", reply.text());
    }
    until("each second request to be copied", || copies.heads().len() == 3);
    assert!(copies.heads().iter().all(|head| head.contains("X-Gateway: tide")), "{:?}", copies.heads());
    assert_eq!(origin.heads().len(), 6);
}

#[test]
fn scripts_of_allowed_sites_may_read_responses_and_need_no_password_for_permission() {
    let files = Files::new();
    let text = r#"
        [[site]]
        hosts = "sea.example"
        cors = { origins = ["https://app.example"], methods = ["GET", "PUT"], headers = "Content-Type", credentials = true, max-age = 600, exposed-headers = "X-Total" }
        [[site.route]]
        path = "/tides"
        methods = ["PUT"]
        respond = { body = "kept" }
        basic-auth = { users = { ebb = "flow" } }
        [[site.route]]
        path = "/open"
        cors = { origins = "*" }
        respond = { body = "open" }
    "#;
    let program = start(&files, text, &[]);
    let origin = "Origin: https://app.example\r\n";
    let asks = format!("{origin}Access-Control-Request-Method: PUT\r\n");
    let permission = request(&program, "OPTIONS", "sea.example", "/tides", &asks);
    assert_eq!(permission.status, 204, "{}", permission.head);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "Content-Type"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(field(&permission, name), value, "{name}");
    }
    // A script reads the refusal, too.
    let put =
        |fields: &str| request(&program, "PUT", "sea.example", "/tides", &format!("Content-Length: 0\r\n{fields}"));
    let refused = put(origin);
    assert_eq!((refused.status, field(&refused, "access-control-allow-origin")), (401, "https://app.example"));
    let known = put(&format!("{origin}Authorization: Basic ZWJiOmZsb3c=\r\n"));
    assert_eq!((known.text(), field(&known, "access-control-expose-headers")), ("kept", "X-Total"));
    let other = request(&program, "OPTIONS", "sea.example", "/tides", &asks.replace("app.example", "evil.example"));
    assert_eq!((other.status, other.field("access-control-allow-origin")), (204, None));
    assert_eq!(request(&program, "OPTIONS", "sea.example", "/tides", "").status, 405);
    let open = ask(&program, "sea.example", "/open", "Origin: https://any.example\r\n");
    assert_eq!((open.text(), field(&open, "access-control-allow-origin")), ("open", "*"));
}

#[test]
fn each_request_has_a_number_that_its_upstream_response_and_log_name() {
    let (files, origin) = (Files::new(), Origin::echo());
    let text = "access-log = \"{request.id} {request.target}\"\nrequest-id = { header = \"X-Correlation-Id\", accept = \"127.0.0.2\" }\n";
    let route = "[[route]]\nupstream = \"app\"\nresponse-headers = { set = { X-Same = \"{request.id}\" } }\n";
    files.write("gateway.toml", &format!("{text}{LISTEN}{}{route}", upstream("app", &origin)));
    let program = files.start("gateway.toml", &[]);
    let reply = ask(&program, "a", "/one", "X-Correlation-Id: forged\r\n");
    let id = field(&reply, "x-correlation-id").to_owned();
    assert_eq!((id.len(), field(&reply, "x-same")), (32, &*id));
    assert!(reply.text().contains(&format!("X-Correlation-Id: {id}\r\n")) && !reply.text().contains("forged"));
    program.until_logged(&format!("{id} /one"), 1);
    let head = "GET /two HTTP/1.1\r\nHost: a\r\nX-Correlation-Id: kept-7\r\nConnection: close\r\n\r\n";
    let reply = Peer::from("127.0.0.2:0".parse().unwrap(), &program).exchange(head);
    assert_eq!(field(&reply, "x-correlation-id"), "kept-7");
    program.until_logged("kept-7 /two", 1);
}

#[test]
fn a_route_bounds_bodies_and_the_time_for_a_response() {
    let (files, origin) = (Files::new(), Origin::echo());
    // A listener that accepts nothing: its backlog takes the connection.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    files.write("late.html", "<p>late</p>");
    let text = format!(
        "{}[[upstream]]\nname = \"silent\"\nservers = [\"http://{}\"]\n\
         [[route]]\npath = \"/up\"\nupstream = \"app\"\nbody-bytes = 4\nerror-pages = {{ 4xx = \"late.html\" }}\n\
         [[route]]\npath = \"/own\"\nrespond = {{ body = \"own\" }}\nbody-bytes = 4\n\
         [[route]]\npath = \"/slow\"\nupstream = \"silent\"\ntimeout = 1\n\
         [[route]]\npath = \"/late\"\nupstream = \"silent\"\nresponse-timeout = 1\nerror-pages = {{ 504 = \"late.html\" }}\n",
        upstream("app", &origin),
        silent.local_addr().unwrap()
    );
    let program = start(&files, &text, &[]);
    let post = |target: &str, body: &str| {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        Peer::connect(&program).exchange(head)
    };
    assert_eq!([post("/up", "four").status, post("/own", "four").status], [200, 200]);
    let long = post("/up", "fiver");
    assert_eq!((long.status, long.text()), (413, "<p>late</p>"));
    assert_eq!(post("/own", "fiver").status, 413);
    assert_eq!(ask(&program, "a", "/slow", "").status, 503);
    let late = ask(&program, "a", "/late", "");
    assert_eq!((late.status, late.text()), (504, "<p>late</p>"));
}

/// `flow`, as `htpasswd -nbB -C 4 ebb flow` makes it.
const BCRYPT_OF_FLOW: &str = "$2b$04$hFqqjJtkBGZQKeSiSyjQ3etF8dY3otUfeC.D.zA.DTbaUzKcEb3HG";

#[test]
fn passwords_are_hashes_of_the_file_or_of_a_file_of_htpasswd() {
    let files = Files::new();
    files.write("users", &format!("# users\nneap:{BCRYPT_OF_FLOW}\n"));
    let text = format!(
        "[[route]]\nrespond = {{ body = \"in\" }}\n\
         basic-auth = {{ realm = \"harbour\", users = {{ ebb = \"{BCRYPT_OF_FLOW}\" }}, file = \"users\", guesses = \"1/m:4\" }}\n"
    );
    let program = start(&files, &text, &[]);
    let status = |pair: &str| ask(&program, "a", "/", &format!("Authorization: Basic {pair}\r\n")).status;
    let nobody = ask(&program, "a", "/", "");
    assert_eq!((nobody.status, field(&nobody, "www-authenticate").contains("harbour")), (401, true));
    // ebb:flow, neap:flow, ebb:ebb
    assert_eq!([status("ZWJiOmZsb3c="), status("bmVhcDpmbG93"), status("ZWJiOmViYg==")], [200, 200, 401]);
    assert_eq!([status("ZWJiOmViYg=="), status("ZWJiOmViYg==")], [401, 429], "four guesses");
    assert_eq!(status("ZWJiOmZsb3c="), 429, "a right pair is not told from a wrong one");
}

#[test]
fn a_cache_keeps_responses_in_a_folder_until_they_are_purged() {
    let files = Files::new();
    let origin = Origin::start(|_| {
        "200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntide".into()
    });
    let text = format!(
        "{}[[route]]\npath = \"/blog/*\"\nupstream = \"app\"\ncache = {{ folder = \"kept\", memory-bytes = 2097152, disk-bytes = 4194304 }}\n",
        upstream("app", &origin)
    );
    let program = start(&files, &text, &["--admin", "127.0.0.1:0"]);
    let status = |target: &str| field(&ask(&program, "sea.example", target, ""), "cache-status").to_owned();
    assert!(status("/blog/1").contains("fwd=uri-miss") && status("/blog/1").contains("hit"));
    assert_eq!(origin.heads().len(), 1);
    assert!(fs::read_dir(files.path("kept")).is_ok());
    let at = admin(&program);
    let purge = |query: &str| {
        let head = format!(
            "POST /cache/purge?{query} HTTP/1.1\r\nHost: {at}\r\nOrigin: http://{at}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let reply = Peer::to(&at.into()).exchange(head);
        (reply.status, reply.text().to_owned())
    };
    assert_eq!(purge("url=http://sea.example/blog/1"), (200, "{\"removed\":1}".into()));
    assert!(status("/blog/1").contains("fwd=uri-miss"));
    let metrics =
        Peer::to(&at.into()).exchange(format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"));
    assert!(metrics.text().contains("tidegate_cache_stored_total{cache=\"/blog/*\"} 2"), "{}", metrics.text());
    // Without a cache there is nothing to purge.
    files.write("gateway.toml", &format!("{LISTEN}[[route]]\nrespond = {{}}\n"));
    program.signal(rustix::process::Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(purge("all=true").0, 404);
}

#[test]
fn clients_stay_at_a_server_by_a_cookie_of_the_gateway_or_of_the_application() {
    let files = Files::new();
    let (one, two) = (Origin::echo(), Origin::echo());
    let servers = format!("servers = [\"http://{}\", \"http://{}\"]\n", one.address(), two.address());
    let text = format!(
        "[[upstream]]\nname = \"app\"\n{servers}[[upstream]]\nname = \"hashed\"\n{servers}balance = \"consistent-hash\"\n\
         [[route]]\nupstream = \"app\"\nsticky-cookie = {{ name = \"tide\", secret = \"a long secret of the file\", path = \"/app\", \
         domain = \"sea.example\", max-age = 60, cross-site = true }}\n\
         response-headers = {{ set = {{ X-Server = \"{{upstream.address}}\" }} }}\n\
         [[route]]\npath = \"/hashed/*\"\nupstream = \"hashed\"\nhash-key = \"cookie:sid\"\n\
         response-headers = {{ set = {{ X-Server = \"{{upstream.address}}\" }} }}\n"
    );
    let program = start(&files, &text, &[]);
    let first = ask(&program, "sea.example", "/", "");
    let (cookie, server) = (field(&first, "set-cookie").to_owned(), field(&first, "x-server").to_owned());
    assert!(
        cookie.ends_with("; Path=/app; HttpOnly; SameSite=None; Secure; Domain=sea.example; Max-Age=60"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap().to_owned();
    for _ in 0..6 {
        let again = ask(&program, "sea.example", "/", &format!("Cookie: {pair}\r\n"));
        assert_eq!((field(&again, "x-server"), again.field("set-cookie")), (&*server, None));
    }
    let of =
        |sid: &str| field(&ask(&program, "a", "/hashed/", &format!("Cookie: sid={sid}\r\n")), "x-server").to_owned();
    for sid in ["a", "b", "c"] {
        let server = of(sid);
        assert!((0..4).all(|_| of(sid) == server), "{sid}");
    }
}

#[test]
fn error_pages_replace_errors_of_the_gateway_and_of_upstreams_if_they_shall() {
    let files = Files::new();
    let origin = Origin::start(|_| "404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntheir".into());
    let gone = ClosedPort::tcp();
    files.write("error.html", "<p>ours</p>");
    files.write("error.json", "{\"error\": true}");
    let route = |path: &str, upstream: &str, rest: &str| {
        format!("[[route]]\npath = \"{path}\"\nupstream = \"{upstream}\"\n{rest}\n")
    };
    let text = [
        upstream("app", &origin),
        format!("[[upstream]]\nname = \"gone\"\nservers = [\"http://{}\"]\n", gone.address()),
        route("/theirs", "app", "error-pages = { 404 = \"error.html\" }"),
        route("/ours", "app", "error-pages = { 4xx = \"error.html\" }\nintercept-errors = true"),
        route("/down", "gone", "error-pages = { 502 = \"error.html\", 503 = \"error.html\" }"),
        route("/json", "gone", "error-pages = { 5xx = \"error.json\" }"),
    ];
    let program = start(&files, &text.concat(), &[]);
    let get = |target: &str| {
        let reply = ask(&program, "a", target, "");
        (reply.status, reply.text().to_owned(), field(&reply, "content-type").to_owned())
    };
    assert_eq!(get("/theirs").1, "their");
    assert_eq!(get("/ours").1, "<p>ours</p>");
    let (status, text, kind) = get("/down");
    assert!(
        matches!(status, 502 | 503) && text == "<p>ours</p>" && kind.starts_with("text/html"),
        "{status} {text} {kind}"
    );
    let (_, text, kind) = get("/json");
    assert_eq!((&*text, &*kind), ("{\"error\": true}", "application/json"));
}

#[test]
fn the_client_behind_trusted_proxies_decides_which_route_it_gets() {
    let files = Files::new();
    let text = r#"
        [[route]]
        client = "198.51.100.0/24"
        trusted = "127.0.0.1"
        respond = { body = "near" }
        [[route]]
        respond = { body = "far" }
    "#;
    let program = start(&files, text, &[]);
    assert_eq!(ask(&program, "a", "/", "").text(), "far");
    assert_eq!(ask(&program, "a", "/", "X-Forwarded-For: 198.51.100.7\r\n").text(), "near");
    assert_eq!(ask(&program, "a", "/", "X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n").text(), "far");
}

#[test]
fn a_mistake_in_a_key_names_the_key_and_what_is_right() {
    let files = Files::new();
    let app = "[[upstream]]\nname = \"app\"\nservers = [\"http://192.0.2.1\"]\n";
    let of_app = |rest: &str| format!("{app}[[route]]\nupstream = \"app\"\n{rest}\n");
    files.write("clear", "ebb:flow\n");
    for (text, expected) in [
        (of_app("mirror = { upstream = \"ap\" }"), "did you mean `app`"),
        (of_app("mirror = { upstream = \"app\", percent = 101 }"), "a number from 0 to 100, not 101"),
        (of_app("mirror = {}"), "mirror has no `upstream`"),
        (of_app("rewrite = { pattern = \"(\", to = \"/\" }"), "unclosed group"),
        (of_app("rewrite = { pattern = \"(a)\", to = \"/$2\" }"), "no group `2`"),
        (of_app("rewrite = { pattern = \"a\" }"), "`pattern` and `to`, or `add-prefix`"),
        (of_app("rewrite = { add-prefix = \"v2\" }"), "a prefix begins with a slash"),
        (of_app("rewrite = { regex = \"a\" }"), "did you mean `pattern`"),
        (of_app("cors = { origins = \"*\", credentials = true }"), "credentials exclude `*` in `origin`"),
        (of_app("cors = { origins = \"https://sea.example/\" }"), "is no origin"),
        (of_app("cors = {}"), "cors has no `origins`"),
        (of_app("body-bytes = -1"), "`body-bytes` is a number from 0"),
        (of_app("timeout = 0"), "`timeout` is seconds, from 1"),
        (of_app("cache = { memory = 1 }"), "did you mean `memory-bytes`"),
        (of_app("cache = { disk-bytes = 4194304 }"), "`disk-bytes` needs a `folder`"),
        (of_app("cache = true\nsticky-cookie = \"a\""), "`cache` or `sticky-cookie`"),
        (
            of_app("cache = true\nresponse-headers = { set = { X-A = \"{client.ip}\" } }"),
            "a stored response would have that of another client",
        ),
        (of_app("sticky-cookie = { name = \"a b\" }"), "`a b`"),
        (of_app("sticky-cookie = { name = \"a\", secret = \"short\" }"), "at least 16 bytes"),
        (of_app("sticky-cookie = { secret = \"a long secret of the file\" }"), "sticky-cookie has no `name`"),
        (of_app("error-pages = { 6xx = \"a.html\" }"), "`6xx` is not the status of an error"),
        (of_app("request-headers = { set = { X-Tls = \"{tls.versoin}\" } }"), "did you mean `{tls.version}`"),
        (of_app("request-headers = { set = { X-Tls = \"{tls.client.name}\" } }"), "`{tls.client.name}`"),
        (of_app("basic-auth = { users = { ebb = \"$2y$05$short\" } }"), "hash of argon2 or bcrypt"),
        (of_app("basic-auth = { file = \"clear\" }"), "line 1 has no hash"),
        (of_app("basic-auth = { realm = \"a\" }"), "there are no users"),
        (
            of_app(&format!("basic-auth = {{ users = {{ a = \"{BCRYPT_OF_FLOW}\", b = \"clear\" }} }}")),
            "some are in the clear",
        ),
        (
            format!(
                "{app}[[route]]\nupstream = \"app\"\ncache = {{ folder = \"kept\" }}\n\
                 [[route]]\npath = \"/a\"\nupstream = \"app\"\ncache = {{ folder = \"kept\" }}\n"
            ),
            "another cache keeps its responses",
        ),
        ("request-id = { header = \"Host\" }\n[[route]]\nrespond = {}\n".into(), "`Host`"),
        ("request-id = { accept = \"some\" }\n[[route]]\nrespond = {}\n".into(), "`some` is not a network"),
        (
            "[[route]]\nrespond = {}\nintercept-errors = true\n".into(),
            "`intercept-errors` is for routes with `upstream`",
        ),
        ("access-log = \"{tls.sny}\"\n[[route]]\nrespond = {}\n".into(), "did you mean {tls.sni}?"),
    ] {
        let (code, _, errors) = files.check(&text);
        assert!(code == Some(1) && errors.iter().any(|line| line.contains(expected)), "{text}{expected}: {errors:#?}");
    }
}

#[test]
fn fields_redirects_and_logs_name_the_tls_connection_and_the_certificate_of_the_client() {
    let (files, certificates, origin) =
        (Files::new(), crate::tls::Files::new(&["sea.example", "client.example"]), Origin::echo());
    let text = format!(
        "access-log = \"tls {{tls.version}} {{tls.cipher}} {{tls.sni}} {{tls.client.subject}} {{tls.client.san}}\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nclient-ca = \"{ca}\"\n\
         certificates = [{{ cert = \"{chain}\", key = \"{key}\" }}]\n{app}\
         [[route]]\nupstream = \"app\"\nrequest-headers = {{ set = {{ X-Tls = \"{{tls.version}}|{{tls.sni}}|{{tls.client.subject}}|{{tls.client.san}}\" }} }}\n\
         [[route]]\npath = \"/who\"\nredirect = {{ to = \"/as/{{tls.client.subject}}\", status = 302 }}\n",
        ca = certificates.path("ca.pem"),
        chain = certificates.path("sea.example.pem"),
        key = certificates.path("sea.example.key"),
        app = upstream("app", &origin),
    );
    files.write("gateway.toml", &text);
    let program = files.start("gateway.toml", &[]);
    let line = program.output().into_iter().find(|line| line.contains("https://")).expect("the https listener");
    let address = line.split("https://").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let resolve = format!("sea.example:{port}:127.0.0.1");
    let (cert, key) = (certificates.path("client.example.pem"), certificates.path("client.example.key"));
    let ca = certificates.path("ca.pem");
    let subject = "CN=client.example";
    for version in ["--http1.1", "--http2"] {
        let ask = |target: &str, more: &[&str]| {
            let url = format!("https://sea.example:{port}{target}");
            let arguments = [version, "--cacert", &ca, "--resolve", &resolve, "--cert", &cert, "--key", &key, &url];
            crate::tls::curl(&[&arguments, more].concat())
        };
        let Some(head) = ask("/", &[]) else { return };
        let expected = format!("X-Tls: TLSv1.3|sea.example|{subject}|DNS:client.example");
        assert!(head.contains(&expected), "{version}: {head}");
        let moved = ask("/who", &["--output", "/dev/null", "--write-out", "%header{location}"]).unwrap();
        assert!(moved.contains("/as/CN") && moved.contains("client.example"), "{version}: {moved}");
    }
    let lines = program.until_logged("tls TLSv1.3 TLS_", 4);
    assert!(lines[0].ends_with(&format!("sea.example {subject} DNS:client.example")), "{}", lines[0]);
}
