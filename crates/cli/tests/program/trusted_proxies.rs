//! The client behind proxies in front: each place of the gateway that names one, counts for one or chooses by one follows the
//! key `trusted`.

use std::collections::BTreeSet;

use crate::configuration::{Files, ask};
use crate::support::origin::Origin;
use crate::support::peer::Peer;
use crate::support::program::{Program, tidegate};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn upstream(name: &str, origins: &[&Origin]) -> String {
    let servers: Vec<_> = origins.iter().map(|origin| format!("\"http://{}\"", origin.address())).collect();
    format!("[[upstream]]\nname = \"{name}\"\nservers = [{}]\nbalance = \"consistent-hash\"\n", servers.join(", "))
}

fn start(files: &Files, text: &str) -> Program {
    files.write("gateway.toml", text);
    files.start("gateway.toml", &[])
}

/// The field by which a proxy names a client.
fn named(client: &str) -> String {
    format!("X-Forwarded-For: {client}\r\n")
}

#[test]
fn the_access_log_has_the_client_and_the_peer_each_by_its_name() {
    let files = Files::new();
    let text = format!(
        "access-log = \"<{{client.ip}} {{client.port}} {{peer.ip}} {{request.path}} {{response.status}}>\"\n\
         trusted = \"127.0.0.1\"\n{LISTEN}\
         [[route]]\nhosts = \"sea.example\"\npath = \"/file\"\nrespond = {{}}\n\
         [[route]]\nhosts = \"sea.example\"\npath = \"/none\"\ntrusted = \"192.0.2.1\"\nrespond = {{}}\n\
         [[route]]\nhosts = \"sea.example\"\npath = \"/more\"\ntrusted = [\"127.0.0.1\", \"198.51.100.2\"]\nrespond = {{}}\n"
    );
    let program = start(&files, &text);
    let fields = named("198.51.100.1, 198.51.100.2");
    for (path, expected) in [
        ("/file", "<198.51.100.2 - 127.0.0.1 /file 200>"),
        ("/more", "<198.51.100.1 - 127.0.0.1 /more 200>"),
        ("/lost", "<198.51.100.2 - 127.0.0.1 /lost 404>"),
    ] {
        ask(&program, "sea.example", path, &fields);
        program.until_logged(expected, 1);
    }
    ask(&program, "other.example", "/nobody", &fields);
    program.until_logged("<198.51.100.2 - 127.0.0.1 /nobody 421>", 1);
    ask(&program, "sea.example", "/file", &named("unknown"));
    program.until_logged("<- - 127.0.0.1 /file 200>", 1);
    // Without a proxy in front the client is the peer, with its port.
    let mut peer = Peer::connect(&program);
    peer.exchange(format!("GET /none HTTP/1.1\r\nHost: sea.example\r\n{fields}Connection: close\r\n\r\n"));
    let line = program.until_logged("/none 200>", 1).remove(0);
    let parts: Vec<_> = line.trim_start_matches('<').split(' ').collect();
    assert!(parts[0] == "127.0.0.1" && parts[2] == "127.0.0.1" && parts[1].parse::<u16>().is_ok(), "{line}");
    // The fields of a request that the codec refuses are not known, and its peer is a proxy.
    Peer::connect(&program).exchange("GET /bad HTTP/1.1\r\nHost sea\r\n\r\n");
    program.until_logged("<- - 127.0.0.1 - 400>", 1);
    // Another peer is no proxy.
    let head = format!("GET /file HTTP/1.1\r\nHost: sea.example\r\n{fields}Connection: close\r\n\r\n");
    Peer::from("127.0.0.2:0".parse().unwrap(), &program).exchange(head);
    program.until_logged("<127.0.0.2 ", 1);
}

#[test]
fn json_lines_have_the_client_beside_the_peer() {
    let files = Files::new();
    let routes = "[[route]]\npath = \"/own\"\ntrusted = \"192.0.2.1\"\nrespond = {}\n[[route]]\nrespond = {}\n";
    let program = start(&files, &format!("access-log = \"json\"\ntrusted = \"127.0.0.1\"\n{LISTEN}{routes}"));
    ask(&program, "a", "/far", &named("198.51.100.1"));
    let line = program.until_logged("\"target\":\"/far\"", 1).remove(0);
    assert!(line.contains("\"peer\":\"127.0.0.1\",\"client\":\"198.51.100.1\","), "{line}");
    ask(&program, "a", "/own", &named("198.51.100.1"));
    let line = program.until_logged("\"target\":\"/own\"", 1).remove(0);
    assert!(line.contains("\"peer\":\"127.0.0.1\",\"method\""), "{line}");
    Peer::connect(&program).exchange("GET /bad HTTP/1.1\r\nHost sea\r\n\r\n");
    let line = program.until_logged("\"refused\"", 1).remove(0);
    assert!(line.contains("\"peer\":\"127.0.0.1\",\"client\":\"-\""), "{line}");
}

#[test]
fn fields_redirects_and_pages_name_the_client() {
    let (files, origin) = (Files::new(), Origin::echo());
    let text = format!(
        "trusted = \"127.0.0.1\"\n{LISTEN}{}\
         [[route]]\npath = \"/moved\"\nredirect = {{ to = \"/for/{{client.ip}}/by/{{peer.ip}}\", status = 302 }}\n\
         [[route]]\nupstream = \"app\"\nrequest-headers = {{ set = {{ X-Client = \"{{client.ip}} {{peer.ip}}\" }} }}\n\
         response-headers = {{ set = {{ X-For = \"{{client.ip}} {{peer.ip}}\" }} }}\n",
        upstream("app", &[&origin])
    );
    let program = start(&files, &text);
    let fields = named("198.51.100.1");
    let reply = ask(&program, "a", "/", &fields);
    assert_eq!(reply.field("x-for"), Some("198.51.100.1 127.0.0.1"));
    assert!(reply.text().contains("X-Client: 198.51.100.1 127.0.0.1\r\n"), "{}", reply.text());
    // Each proxy names its own peer to the next one.
    assert!(reply.text().contains("X-Forwarded-For: 198.51.100.1, 127.0.0.1\r\n"), "{}", reply.text());
    let moved = ask(&program, "a", "/moved", &fields);
    assert_eq!(moved.field("location"), Some("/for/198.51.100.1/by/127.0.0.1"));
}

#[test]
fn rates_by_address_are_those_of_the_client() {
    let (files, origin) = (Files::new(), Origin::echo());
    let text = format!(
        "trusted = \"127.0.0.1\"\n{LISTEN}{}\
         [[route]]\npath = \"/passed\"\nupstream = \"app\"\nrate-per-address = \"1/m\"\n\
         [[route]]\npath = \"/own\"\nrate = \"1/m\"\nrespond = {{}}\n",
        upstream("app", &[&origin])
    );
    let program = start(&files, &text);
    for path in ["/passed", "/own"] {
        let status = |client: &str| ask(&program, "a", path, &named(client)).status;
        let statuses = ["198.51.100.1", "198.51.100.1", "198.51.100.2", "198.51.100.2"].map(status);
        assert_eq!(statuses, [200, 429, 200, 429], "{path}");
    }
}

#[test]
fn a_client_has_one_server_wherever_it_comes_through() {
    let (files, first, second) = (Files::new(), Origin::echo(), Origin::echo());
    let route = "[[route]]\nupstream = \"app\"\nhash-key = \"client\"\n";
    let program =
        start(&files, &format!("trusted = \"127.0.0.0/8\"\n{LISTEN}{}{route}", upstream("app", &[&first, &second])));
    let clients: Vec<_> = (1..=32).map(|number| format!("198.51.100.{number}")).collect();
    for client in &clients {
        ask(&program, "a", "/", &named(client));
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}Connection: close\r\n\r\n", named(client));
        Peer::from("127.0.0.2:0".parse().unwrap(), &program).exchange(head);
    }
    let clients_of = |origin: &Origin| -> BTreeSet<String> {
        let value = |head: &String| head.split("X-Forwarded-For: ").nth(1)?.split(',').next().map(str::to_owned);
        origin.heads().iter().filter_map(value).collect()
    };
    let (of_first, of_second) = (clients_of(&first), clients_of(&second));
    assert!(!of_first.is_empty() && !of_second.is_empty(), "{of_first:?} {of_second:?}");
    assert_eq!(of_first.intersection(&of_second).count(), 0, "{of_first:?} {of_second:?}");
}

#[test]
fn a_proxy_header_names_the_client_to_the_upstream() {
    let files = Files::new();
    files.write(
        "behind.toml",
        "access-log = \"<{peer.ip} {request.path}>\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nproxy-protocol = \"required\"\n\
         [[route]]\nrespond = {}\n",
    );
    let path = files.path("behind.toml");
    let command = tidegate(&["run", "--loops", "1", "--config", &path]);
    let behind = Program::start(command).unwrap();
    let text = format!(
        "trusted = \"127.0.0.1\"\n{LISTEN}[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\nsend-proxy = true\n\
         [[route]]\nupstream = \"app\"\n",
        behind.ip()
    );
    let program = start(&files, &text);
    assert_eq!(ask(&program, "a", "/named", &named("198.51.100.1")).status, 200);
    behind.until_logged("<198.51.100.1 /named>", 1);
    assert_eq!(ask(&program, "a", "/direct", "").status, 200);
    behind.until_logged("<127.0.0.1 /direct>", 1);
}
