//! `forward-auth` and `jwt` of the configuration, with services that are servers of their own.

use std::fs;

use rustix::process::Signal;

use crate::support::peer::{Peer, Reply};
use crate::support::program::{Directory, Program, run};

/// The key with which the tokens below are signed.
const JWKS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"tide","x":"UcqdZaVO--xk4ZOgqnm_Rd9zFhfJVEkyTmqFt3VXmyM","y":"9hkOl_hOvZcjnraeoxxBJGia9_VWDLbsa9cj_krsEr4"}]}"#;

/// Claims: `sub` ebb, `iss` https://login.example, `aud` tides, `roles` crew and pilot, until the year 2286.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6InRpZGUifQ.eyJzdWIiOiJlYmIiLCJleHAiOjk5OTk5OTk5OTksImlzcyI6Imh0dHBzOi8vbG9naW4uZXhhbXBsZSIsImF1ZCI6InRpZGVzIiwicm9sZXMiOlsiY3JldyIsInBpbG90Il19.TkQ_DBlyyKQBqOav_oXi36FA-lOTo3EQ0CThxl4E5wWkeQicVro7Bz2Wxh5Gls0uk6HJ1TTkQvlthZJsrj6Z0g";

/// The same issuer and audience, until the year 2011.
const EXPIRED: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6InRpZGUifQ.eyJzdWIiOiJlYmIiLCJleHAiOjEzMDA4MTkzODAsImlzcyI6Imh0dHBzOi8vbG9naW4uZXhhbXBsZSIsImF1ZCI6InRpZGVzIn0.RD3dbdQGP1Moq1ZjZ6qab7Sk5RDJMQtxoLXAfA7cXRpEMCxAZUbLrOf3Den2pUOS-miMdZnUzG7EZim_Fqq_ug";

/// `sub` ebb, signed by HS256 with [`SECRET`].
const SHARED: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJlYmIiLCJleHAiOjk5OTk5OTk5OTl9.nKJ2jooqPEWpJXRl77Qx8EVMJLNue3QuLGIVG03fMZ4";

const SECRET: &str = "a secret of at least thirty-two bytes";

struct Gateway {
    program: Program,
    directory: Directory,
}

impl Gateway {
    fn new(text: &str) -> Self {
        let directory = Directory::new();
        fs::write(directory.path("jwks.json"), JWKS).unwrap();
        fs::write(directory.path("gateway.toml"), text).unwrap();
        let program = Program::serve(&["--loops", "1", "--config", &directory.path("gateway.toml")]);
        Self { program, directory }
    }

    fn ask(&self, target: &str, fields: &str) -> Reply {
        let wire = format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
        Peer::connect(&self.program).exchange(wire)
    }

    fn url(&self) -> String {
        format!("http://{}", self.program.ip())
    }
}

/// An upstream that says which user a request is of.
fn upstream() -> Gateway {
    let user = |name: &str| {
        format!("[[route]]\nheaders = {{ X-User = \"{name}\" }}\nrespond = {{ body = \"user {name}\" }}\n")
    };
    let nobody = "[[route]]\nheaders = { X-User = false }\nrespond = { body = \"nobody\" }\n";
    Gateway::new(&format!("{}{}{nobody}[[route]]\nrespond = {{ body = \"another\" }}\n", user("ebb"), user("admin")))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_service_decides_and_names_the_user() {
    let service = Gateway::new(
        "[[route]]\npath = \"/verify\"\nheaders = { Authorization = \"ebb\", X-Forwarded-Uri = \"/log?q\" }\n\
         respond = { headers = { X-User = \"ebb\" } }\n\
         [[route]]\npath = \"/verify\"\nheaders = { Authorization = \"guest\" }\nrespond = {}\n\
         [[route]]\npath = \"/verify\"\nheaders = { Authorization = \"broken\" }\nrespond = { status = 500 }\n\
         [[route]]\nredirect = { to = \"https://login.example/\", status = 302 }\n",
    );
    let upstream = upstream();
    let gateway = Gateway::new(&format!(
        "[[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n\
         [[site]]\nhosts = [\"test\"]\nforward-auth = {{ url = \"{}/verify\", copy = [\"X-User\"] }}\n\
         [[site.route]]\nupstream = \"app\"\n[[site.route]]\npath = \"/static\"\nrespond = {{ body = \"static\" }}\n",
        upstream.url(),
        service.url()
    ));
    let forged = "X-User: admin\r\nX_User: admin\r\n";
    assert_eq!(gateway.ask("/log?q", &format!("Authorization: ebb\r\n{forged}")).text(), "user ebb");
    assert_eq!(gateway.ask("/log", &format!("Authorization: guest\r\n{forged}")).text(), "nobody");
    let refused = gateway.ask("/log", forged);
    assert_eq!((refused.status, refused.field("location")), (302, Some("https://login.example/")));
    assert_eq!(gateway.ask("/static", "").status, 302);
    assert_eq!(gateway.ask("/static", "Authorization: guest\r\n").text(), "static");
    assert_eq!(gateway.ask("/log", "Authorization: broken\r\n").status, 503);
    drop(service);
    assert_eq!(gateway.ask("/log", "Authorization: guest\r\n").status, 503);
}

#[test]
fn a_token_names_the_user() {
    let (keys, upstream) = (Gateway::new("[[route]]\nrespond = { body = { file = \"jwks.json\" } }\n"), upstream());
    let rule = "issuer = \"https://login.example\", audience = \"tides\", required-claims = { roles = \"pilot\" }, \
                claim-fields = { X-User = \"sub\" }";
    let gateway = Gateway::new(&format!(
        "[[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n\
         [[route]]\nupstream = \"app\"\njwt = {{ keys-file = \"jwks.json\", {rule} }}\n\
         [[route]]\npath = \"/url\"\nupstream = \"app\"\njwt = {{ keys-url = \"{}/keys\", {rule} }}\n\
         [[route]]\npath = \"/secret\"\nupstream = \"app\"\n\
         jwt = {{ secret = \"{SECRET}\", algorithms = \"HS256\", token = \"cookie:session\" }}\n\
         [[route]]\npath = \"/others\"\nupstream = \"app\"\njwt = {{ keys-file = \"jwks.json\", audience = \"others\" }}\n",
        upstream.url(),
        keys.url()
    ));
    let forged = "X-User: admin\r\n";
    for path in ["/", "/url", "/url"] {
        assert_eq!(gateway.ask(path, &format!("{forged}{}", bearer(TOKEN))).text(), "user ebb", "{path}");
        let expired = gateway.ask(path, &bearer(EXPIRED));
        let challenge = expired.field("www-authenticate").unwrap_or_default();
        assert!(expired.status == 401 && challenge.contains("has expired"), "{challenge}");
    }
    assert_eq!(gateway.ask("/", forged).field("www-authenticate"), Some("Bearer realm=\"restricted\""));
    assert_eq!(gateway.ask("/", &bearer(SHARED)).status, 401);
    assert_eq!(gateway.ask("/others", &bearer(TOKEN)).status, 401);
    assert_eq!(gateway.ask("/secret", &format!("Cookie: session={SHARED}\r\n")).text(), "nobody");

    // The keys outlive a reload, and the server that they came from.
    drop(keys);
    let path = gateway.directory.path("gateway.toml");
    fs::write(&path, format!("slashes = \"keep\"\n{}", fs::read_to_string(&path).unwrap())).unwrap();
    gateway.program.signal(Signal::HUP);
    gateway.program.until_logged("configuration reloaded", 1);
    assert_eq!(gateway.ask("/url", &bearer(TOKEN)).text(), "user ebb");
}

#[test]
fn a_cache_that_users_share_is_a_warning() {
    let directory = Directory::new();
    let path = directory.path("gateway.toml");
    let upstream = "[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:1\"]\n";
    let rule = "forward-auth = { url = \"http://127.0.0.1:1/\" }";
    fs::write(&path, format!("{upstream}[[site]]\n{rule}\n[[site.route]]\nupstream = \"app\"\ncache = true\n"))
        .unwrap();
    let (code, _, errors) = run(&["check-config", "--listen-by-flags", &path]);
    assert_eq!(code, Some(0), "{errors:?}");
    assert!(errors.iter().any(|line| line.contains("warning") && line.contains("share its `cache`")), "{errors:?}");
}

#[test]
fn each_mistake_of_a_rule_has_its_place() {
    let directory = Directory::new();
    fs::write(directory.path("jwks.json"), JWKS).unwrap();
    fs::write(directory.path("empty.json"), "{\"keys\":[]}").unwrap();
    for (rule, column, expected) in [
        ("forward-auth = {}", 16, "no `url`"),
        ("forward-auth = { url = \"sea/verify\" }", 24, "no URL with a host"),
        ("forward-auth = { url = \"ftp://sea/\" }", 24, "neither http nor https"),
        ("forward-auth = { url = \"http://sea/\", copy = \"X-*\" }", 46, "not the name of a field"),
        ("forward-auth = { url = \"http://sea/\", copy = \"Host\" }", 46, "cannot be copied"),
        ("forward-auth = { url = \"http://sea/\", ca = \"jwks.json\" }", 44, "URL of https"),
        ("forward-auth = { address = \"http://sea/\" }", 18, "did you mean `url`"),
        ("jwt = {}", 7, "exactly one of"),
        ("jwt = { keys-file = \"jwks.json\", secret = \"x\" }", 7, "exactly one of"),
        ("jwt = { keys-file = \"none.json\" }", 21, "none.json"),
        ("jwt = { keys-file = \"empty.json\" }", 21, "none of its keys"),
        ("jwt = { keys-url = \"sea\" }", 20, "no URL with a host"),
        ("jwt = { secret = \"short\", algorithms = \"HS256\" }", 18, "fewer than 32 bytes"),
        ("jwt = { secret = \"a secret of at least thirty-two bytes\" }", 18, "needs `algorithms`"),
        ("jwt = { keys-file = \"jwks.json\", algorithms = \"none\" }", 47, "`none` is no algorithm"),
        ("jwt = { keys-file = \"jwks.json\", token = \"header\" }", 42, "is not bearer"),
        ("jwt = { keys-file = \"jwks.json\", claim-fields = { \"a b\" = \"sub\" } }", 51, "not the name of a field"),
        ("jwt = { keys-file = \"jwks.json\", required-claims = { sub = false } }", 60, "a value, or `true`"),
        ("jwt = { jwks-uri = \"http://sea/\" }", 9, "did you mean `keys-url`"),
    ] {
        let path = directory.path("gateway.toml");
        fs::write(&path, format!("[[route]]\n{rule}\nrespond = {{}}\n")).unwrap();
        let (code, _, errors) = run(&["check-config", &path]);
        let wanted = format!("gateway.toml:2:{column}: ");
        let is_there = errors.iter().any(|line| line.contains(&wanted) && line.contains(expected));
        assert!(code == Some(1) && is_there, "{rule}: {wanted}{expected}: {errors:?}");
    }
}
