//! Reloads of `run`: their thread, the state that they keep; and warnings about the file.

use std::fs;
use std::io::Write as _;

use rustix::process::Signal;

use crate::configuration::{Files, ask, listeners};
use crate::support::origin::Origin;
use crate::support::peer::{Peer, Reply};
use crate::support::program::{Program, run};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn reload(files: &Files, program: &Program, text: &str, count: usize) {
    files.write("gateway.toml", text);
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", count);
}

/// A secret that is a FIFO stands for a name server that does not answer.
#[test]
fn a_reload_that_waits_holds_up_no_other_signal() {
    let files = Files::new();
    let text = |body: &str| format!("{LISTEN}[[route]]\nrespond = {{ body = {body} }}\n");
    files.write("gateway.toml", &text("\"one\""));
    let mut program = files.start("gateway.toml", &[]);
    let pipe = files.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    files.write("gateway.toml", &text("{ file = \"pipe\" }"));
    program.signal(Signal::HUP);
    // It can be opened once the reload reads it.
    let secret = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    program.signal(Signal::HUP);
    program.signal(Signal::HUP);
    assert_eq!(ask(&program, "a", "/", "").text(), "one");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    drop(secret);
}

/// Signals during a reload have one more follow, which sees the file as it is then.
#[test]
fn signals_during_a_reload_are_one_further_reload() {
    let files = Files::new();
    let text = |body: &str| format!("{LISTEN}[[route]]\nrespond = {{ body = {body} }}\n");
    files.write("gateway.toml", &text("\"one\""));
    let program = files.start("gateway.toml", &[]);
    let pipe = files.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    files.write("gateway.toml", &text("{ file = \"pipe\" }"));
    program.signal(Signal::HUP);
    let mut secret = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    files.write("gateway.toml", &text("\"three\""));
    program.signal(Signal::HUP);
    // The signal was handled before this one, whose counts are printed.
    program.count("accepted");
    secret.write_all(b"two").unwrap();
    drop(secret);
    program.until_logged("configuration reloaded", 2);
    assert_eq!(ask(&program, "a", "/", "").text(), "three");
}

#[test]
fn the_administrative_server_on_a_unix_socket_outlives_a_change_of_listeners() {
    let files = Files::new();
    let text = |headers: u32, body: &str| {
        format!("{LISTEN}limits = {{ headers = {headers} }}\n[[route]]\nrespond = {{ body = \"{body}\" }}\n")
    };
    files.write("gateway.toml", &text(50, "one"));
    let socket = files.path("admin.sock");
    let program = files.start("gateway.toml", &["--admin", &format!("unix:{socket}"), "--admin-reload"]);
    let at = socket2::SockAddr::unix(&socket).unwrap();
    let admin = |method: &str, target: &str| {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        Peer::to(&at).exchange(head)
    };
    let mut before = Peer::to(&at);
    assert_eq!(before.get("/ready").text(), "ready\n");
    reload(&files, &program, &text(3, "two"), 1);
    program.until_logged("the replaced server has ended", 1);
    assert_eq!(ask(&program, "a", "/", "").text(), "two");
    assert_eq!(admin("GET", "/ready").text(), "ready\n", "the new server");
    assert_eq!(before.get("/ready").text(), "ready\n", "the same connection");
    files.write("gateway.toml", &text(4, "three"));
    let reply = admin("POST", "/reload");
    assert_eq!((reply.status, reply.text()), (200, "1 listeners, 1 routes\n"));
    program.until_logged("the replaced server has ended", 2);
    assert_eq!(ask(&program, "a", "/", "").text(), "three");
    assert!(!program.log().iter().any(|line| line.contains("ERROR")), "{:?}", program.log());
}

#[test]
fn requests_for_no_host_redirects_and_bytes_that_are_not_utf_8_are_logged() {
    let files = Files::new();
    let text = "access-log = \"json\"\nrequest-id = true\n\
                [[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nredirect-https = 8443\n\
                [[route]]\nhosts = \"sea.example\"\nrespond = { body = \"sea\" }\n";
    files.write("gateway.toml", text);
    let program = files.start("gateway.toml", &[]);
    let addresses = listeners(&program, 2);
    let at = |number: usize| addresses[number].parse::<std::net::SocketAddr>().unwrap();
    let ask_at = |number: usize, host: &str, target: &[u8]| -> Reply {
        let head =
            [b"GET ", target, format!(" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()].concat();
        Peer::to(&at(number).into()).exchange(head)
    };
    let other = ask_at(0, "other.example", b"/nobody");
    assert!(other.status == 421 && other.field("x-request-id").is_some(), "{}", other.head);
    program.until_logged("\"target\":\"/nobody\"", 1);
    let moved = ask_at(1, "sea.example", b"/moved");
    assert_eq!((moved.status, moved.field("location")), (308, Some("https://sea.example:8443/moved")));
    program.until_logged("\"target\":\"/moved\"", 1);
    ask_at(0, "sea.example", b"/a\xffb?c=\xfe");
    program.until_logged("\"target\":\"/a%FFb?c=%FE\"", 1);
    // A reload has the other listener log in another format, too.
    reload(&files, &program, &text.replace("\"json\"", "\"<{request.path}>\""), 1);
    ask_at(1, "sea.example", b"/again");
    program.until_logged("</again>", 1);
}

#[test]
fn a_file_without_listeners_is_one_for_flags_alone() {
    let files = Files::new();
    files.write("gateway.toml", "[[route]]\nrespond = {}\n");
    let path = files.path("gateway.toml");
    let (code, lines, errors) = run(&["check-config", &path]);
    assert_eq!((code, lines.len()), (Some(1), 0));
    assert!(errors[0].contains("no [[listen]]") && errors[0].contains("--listen-by-flags"), "{errors:?}");
    let (code, _, errors) = run(&["run", "--config", &path]);
    assert!(code == Some(2) && errors[0].contains("no [[listen]]"), "{errors:?}");
    assert_eq!(run(&["check-config", "--listen-by-flags", &path]).0, Some(0));
}

#[test]
fn a_check_leaves_the_folders_of_caches_alone() {
    let files = Files::new();
    let text = |folder: &str| {
        format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:1\"]\n[[route]]\nupstream = \"app\"\n\
             cache = {{ folder = \"{folder}\" }}\n"
        )
    };
    files.write("gateway.toml", &text("cache"));
    let path = files.path("gateway.toml");
    assert_eq!(run(&["check-config", "--listen-by-flags", &path]).0, Some(0));
    assert!(!std::path::Path::new(&files.path("cache")).exists());
    files.write("gateway.toml", &text("gateway.toml"));
    let (code, _, errors) = run(&["check-config", "--listen-by-flags", &path]);
    assert!(code == Some(1) && errors[0].contains("it is no folder"), "{errors:?}");
}

#[test]
fn a_reload_keeps_counts_and_stored_responses_of_routes_that_stay() {
    let files = Files::new();
    let origin = Origin::start(|_| {
        "200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntide".into()
    });
    let text = |headers: u32, body: &str, rate: &str, cache: &str| {
        format!(
            "{LISTEN}limits = {{ headers = {headers} }}\n[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
             [[route]]\npath = \"/rare\"\nrate = \"{rate}\"\nrespond = {{ body = \"{body}\" }}\n\
             [[route]]\npath = \"/kept\"\nupstream = \"app\"\ncache = {cache}\n\
             [[route]]\npath = \"/stays\"\nupstream = \"app\"\nsticky-cookie = \"tide\"\n",
            origin.address()
        )
    };
    files.write("gateway.toml", &text(50, "one", "1/m:2", "true"));
    let program = files.start("gateway.toml", &[]);
    let rare = || ask(&program, "a", "/rare", "").status;
    let kept = || ask(&program, "a", "/kept", "").field("cache-status").unwrap_or_default().to_owned();
    let cookie = ask(&program, "a", "/stays", "").field("set-cookie").map(str::to_owned);
    assert!(cookie.is_some() && kept().contains("fwd=") && kept().contains("hit"));
    assert_eq!([rare(), rare()], [200, 200]);
    // Another response, then another listener, which starts another server: the counts are those of the route.
    reload(&files, &program, &text(50, "two", "1/m:2", "true"), 1);
    assert_eq!((rare(), kept().contains("hit")), (429, true));
    reload(&files, &program, &text(40, "two", "1/m:2", "true"), 2);
    assert_eq!((rare(), kept().contains("hit")), (429, true));
    assert_eq!(ask(&program, "a", "/stays", "").field("set-cookie").map(str::to_owned), cookie);
    // Other settings begin anew.
    reload(&files, &program, &text(40, "two", "1/m:3", "{ entry-bytes = 2048 }"), 3);
    assert_eq!((rare(), kept().contains("fwd=")), (200, true));
}

#[test]
fn parts_that_nothing_reaches_are_warnings() {
    let (files, certificates) = (Files::new(), crate::tls::Files::new(&["sea.example", "lost.example"]));
    let certificate = |name: &str| {
        format!(
            "{{ cert = \"{}\", key = \"{}\" }}",
            certificates.path(&format!("{name}.pem")),
            certificates.path(&format!("{name}.key"))
        )
    };
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\nprotocol = \"https\"\ncertificates = [{}, {}]\n\
         [[route]]\nhosts = [\"sea.example\", \"harbour.example\"]\nmethods = [\"GET\", \"PUT\"]\nrespond = {{}}\n\
         [[route]]\nhosts = \"sea.example\"\nmethods = \"PUT\"\nheaders = {{ X-A = true }}\nrespond = {{}}\n\
         [[route]]\nhosts = \"sea.example\"\nmethods = \"POST\"\nrespond = {{}}\n",
        certificate("sea.example"),
        certificate("lost.example")
    );
    let (code, _, errors) = files.check(&text);
    assert_eq!((code, errors.len()), (Some(0), 3), "{errors:#?}");
    for expected in [
        "the certificate is for no host of a route, but for lost.example",
        "no certificate has the name `harbour.example`",
        "gateway.toml:9:1: nothing reaches this route",
    ] {
        assert!(errors.iter().any(|line| line.contains(expected)), "{expected}: {errors:#?}");
    }
    let text = "[[listen]]\naddress = \"127.0.0.1:1\"\nredirect-https = 443\n[[route]]\nrespond = {}\n";
    let (code, _, errors) = files.check(text);
    assert!(code == Some(0) && errors[0].contains("each listener redirects"), "{errors:?}");
    let missing = text.replace(
        "redirect-https = 443",
        "protocol = \"https\"\ncertificates = [{ cert = \"none.pem\", key = \"none.key\" }]",
    );
    let (code, _, errors) = files.check(&missing);
    assert!(code == Some(1) && errors[0].starts_with("gateway.toml:4:17: cannot read"), "{errors:?}");
}
