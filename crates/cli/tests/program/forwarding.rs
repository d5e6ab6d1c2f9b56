//! Listeners below HTTP: `tcp`, `tls-passthrough` and `udp`, with openssl and blocking sockets as clients.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread;

use rustix::process::Signal;

use tidegate_testkit::ClosedPort;

use crate::configuration::{Files, admin};
use crate::support::program::{PATIENCE, Program, ending_with_the_test, skip};

/// The addresses of a scheme in the start-up lines, those of later lines last.
fn addresses(program: &Program, scheme: &str) -> Vec<SocketAddr> {
    let address = |line: &String| line.split(&format!("listening on {scheme}")).nth(1)?.split(' ').next()?.parse().ok();
    program.output().iter().filter_map(address).collect()
}

/// A server that answers each connection with its name and the bytes of the client, once they have ended.
fn echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // A check resets its connection.
                if stream.read_to_end(&mut bytes).is_ok() {
                    let _ = stream.write_all(&[name.as_bytes(), &bytes].concat());
                }
            });
        }
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn finish(mut stream: &TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

fn udp_echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[name.as_bytes(), &buffer[..length]].concat(), source);
        }
    });
    address
}

fn udp_client(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn ask(socket: &UdpSocket, text: &str) -> String {
    socket.send(text.as_bytes()).unwrap();
    let mut buffer = [0; 2_048];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

fn tcp_file(address: &str, upstream: SocketAddr) -> String {
    format!(
        "[[listen]]\naddress = \"{address}\"\nprotocol = \"tcp\"\nupstream = \"db\"\n\
         [[upstream]]\nname = \"db\"\nservers = [\"tcp://{upstream}\"]\n"
    )
}

#[test]
fn connections_go_to_each_server_in_turn_and_past_one_that_refuses() {
    let (files, one, two) = (Files::new(), echo("one:"), echo("two:"));
    let port = ClosedPort::tcp();
    let closed = port.address();
    files.write(
        "gateway.toml",
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"tcp\"\nupstream = \"db\"\n\
             [[upstream]]\nname = \"db\"\nservers = [\"tcp://{one}\", \"tcp://{closed}\", \"tcp://{two}\"]\n\
             health-check = {{ interval = 1 }}\n"
        ),
    );
    let program = files.start("gateway.toml", &[]);
    let front = addresses(&program, "tcp://")[0];
    let mut answers: Vec<_> = (0..6).map(|_| finish(&connect(front), "tide")).collect();
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers, ["one:tide", "two:tide"]);
}

#[test]
fn a_reload_changes_the_upstream_of_new_connections_and_keeps_the_others() {
    let (files, one, two) = (Files::new(), echo("one:"), echo("two:"));
    files.write("gateway.toml", &tcp_file("127.0.0.1:0", one));
    let program = files.start("gateway.toml", &[]);
    let front = addresses(&program, "tcp://")[0];
    let mut old = connect(front);
    old.write_all(b"a").unwrap();
    // It has its upstream once the other side has a connection, which an answer to a later one shows.
    assert_eq!(finish(&connect(front), "b"), "one:b");
    files.write("gateway.toml", &tcp_file("127.0.0.1:0", two));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(finish(&connect(front), "c"), "two:c");
    assert_eq!(finish(&old, "d"), "one:ad");
    // A file with a mistake changes nothing.
    files.write("gateway.toml", "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"tcp\"\n");
    program.signal(Signal::HUP);
    program.until_logged("configuration not reloaded", 1);
    assert_eq!(finish(&connect(front), "e"), "two:e");
}

#[test]
fn a_listener_below_http_stands_beside_one_of_http() {
    let (files, one) = (Files::new(), echo("one:"));
    let http = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { body = \"tide\" }\n";
    files.write("gateway.toml", &(tcp_file("127.0.0.1:0", one) + http));
    let program = files.start("gateway.toml", &[]);
    assert_eq!(finish(&connect(addresses(&program, "tcp://")[0]), "a"), "one:a");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(finish(&connect(addresses(&program, "http://")[0]), request).ends_with("tide"));
}

#[test]
fn an_upstream_gets_the_address_of_the_client_in_a_header() {
    let (files, one) = (Files::new(), echo(""));
    files.write("gateway.toml", &(tcp_file("127.0.0.1:0", one) + "send-proxy = true\n"));
    let program = files.start("gateway.toml", &[]);
    let front = addresses(&program, "tcp://")[0];
    let mut stream = connect(front);
    let source = stream.local_addr().unwrap();
    stream.write_all(b"tide").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    expected.extend(source.port().to_be_bytes());
    expected.extend(front.port().to_be_bytes());
    expected.extend(b"tide");
    assert_eq!(bytes, expected);
}

#[test]
fn flows_of_datagrams_come_back_and_change_their_upstream_with_a_reload() {
    let (files, one, two) = (Files::new(), udp_echo("one:"), udp_echo("two:"));
    let file = |upstream: SocketAddr| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"udp\"\nupstream = \"dns\"\nlimits = {{ flows = 8 }}\n\
             [[upstream]]\nname = \"dns\"\nservers = [\"udp://{upstream}\"]\n"
        )
    };
    files.write("gateway.toml", &file(one));
    let mut program = files.start("gateway.toml", &["--admin", "127.0.0.1:0"]);
    let front = addresses(&program, "udp://")[0];
    let old = udp_client(front);
    assert_eq!(ask(&old, "a"), "one:a");
    files.write("gateway.toml", &file(two));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(ask(&udp_client(front), "b"), "two:b");
    assert_eq!(ask(&old, "c"), "one:c");
    // More clients than flows: each is served.
    let clients: Vec<_> = (0..40).map(|_| udp_client(front)).collect();
    clients.iter().for_each(|client| assert_eq!(ask(client, "d"), "two:d"));
    let at = admin(&program);
    let metrics = finish(&connect(at), &format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"));
    let flows = "{listener=\"udp://127.0.0.1:0\"";
    // A loop that has no flow gets one beyond the limit.
    let number = |start: String| {
        let rest = metrics.split(&start).nth(1).unwrap_or_else(|| panic!("{start}: {metrics}"));
        rest.lines().next().and_then(|line| line.trim().parse::<u64>().ok()).unwrap()
    };
    assert!((8..=9).contains(&number(format!("tidegate_l4_flows{flows}}}"))), "{metrics}");
    assert!(
        (33..=34).contains(&number(format!("tidegate_l4_flows_ended_total{flows},reason=\"displaced\"}}"))),
        "{metrics}"
    );
    assert!(metrics.contains("tidegate_datagrams_received_total{loop=\"0\"}"), "{metrics}");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

/// The output of `openssl s_client` with a server name, after a request; `None` where it is not installed.
fn s_client(front: SocketAddr, name: Option<&str>) -> Option<String> {
    let mut command = ending_with_the_test("openssl");
    command.args(["s_client", "-connect", &front.to_string(), "-ign_eof"]);
    match name {
        Some(name) => command.args(["-servername", name]),
        None => command.arg("-noservername"),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            skip("openssl", &error);
            return None;
        }
    };
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let _ = child.stdin.take().unwrap().write_all(request);
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn tls_goes_to_the_upstream_of_its_server_name_and_ends_there() {
    let files = Files::new();
    let server = |name: &str| {
        let file = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nself-signed = [\"{name}\"]\n\
             [[route]]\nrespond = {{ body = \"this is {name}\" }}\n"
        );
        files.write("server.toml", &file);
        files.start("server.toml", &[])
    };
    let (ebb, others) = (server("ebb.example"), server("flow.example"));
    let at = |program: &Program| addresses(program, "https://")[0];
    let file = |more: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"tls-passthrough\"\n{more}\
             sni = {{ \"ebb.example\" = \"ebb\", \"*.flow.example\" = \"flow\" }}\n\
             [[upstream]]\nname = \"ebb\"\nservers = [\"tcp://{}\"]\n\
             [[upstream]]\nname = \"flow\"\nservers = [\"tcp://{}\"]\n",
            at(&ebb),
            at(&others)
        )
    };
    files.write("gateway.toml", &file(""));
    let program = files.start("gateway.toml", &[]);
    let front = addresses(&program, "tls://")[0];
    let Some(output) = s_client(front, Some("ebb.example")) else { return };
    assert!(output.contains("this is ebb.example"), "{output}");
    let output = s_client(front, Some("a.b.FLOW.example")).unwrap();
    assert!(output.contains("this is flow.example"), "{output}");
    for name in [Some("other.example"), None] {
        let output = s_client(front, name).unwrap();
        assert!(output.contains("unrecognized name") && !output.contains("this is"), "{output}");
    }
    // A ClientHello that is longer than the listener permits has no upstream.
    files.write("short.toml", &file("limits = { hello-bytes = 64 }\n"));
    let short = files.start("short.toml", &[]);
    let output = s_client(addresses(&short, "tls://")[0], Some("ebb.example")).unwrap();
    assert!(!output.contains("this is"), "{output}");
    // Bytes that are no TLS.
    let mut stream = connect(front);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert_eq!(bytes, b"");
    files.write("gateway.toml", &file("upstream = \"flow\"\n"));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    for name in [Some("other.example"), None] {
        let output = s_client(front, name).unwrap();
        assert!(output.contains("this is flow.example"), "{output}");
    }
}

/// One port with a web server, SSH and others; a reload changes the rules on connections that come later.
#[test]
fn first_bytes_choose_the_upstream_of_a_tcp_connection() {
    let files = Files::new();
    let servers = [("web", echo("web:")), ("shell", echo("shell:")), ("others", echo("others:"))];
    let file = |rules: &str| {
        let upstream = |(name, address)| format!("[[upstream]]\nname = \"{name}\"\nservers = [\"tcp://{address}\"]\n");
        let upstreams: String = servers.map(upstream).concat();
        let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"tcp\"\nupstream = \"others\"\n";
        format!("{listen}first-bytes = [{rules}]\n{upstreams}")
    };
    let shell = "{ starts-with = \"SSH-\", upstream = \"shell\" }";
    let web = "{ protocol = \"http/1.1\", upstream = \"web\" }";
    files.write("gateway.toml", &file(&format!("{shell}, {web}")));
    let program = files.start("gateway.toml", &[]);
    let front = addresses(&program, "tcp://")[0];
    let ask = |bytes: &str| finish(&connect(front), bytes);
    for (bytes, server) in [
        ("SSH-2.0-tide\r\n", "shell:"),
        ("GET / HTTP/1.1\r\n\r\n", "web:"),
        ("SSX", "others:"),
        ("SS", "others:"),
        ("\u{16}\u{3}\u{1}", "others:"),
    ] {
        assert_eq!(ask(bytes), format!("{server}{bytes}"));
    }
    let all = "{ starts-with = \"S\", upstream = \"web\" }";
    files.write("gateway.toml", &file(&format!("{all}, {shell}")));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 1);
    assert_eq!(ask("SSH-2.0-tide\r\n"), "web:SSH-2.0-tide\r\n");
    assert_eq!(ask("GET / HTTP/1.1\r\n\r\n"), "others:GET / HTTP/1.1\r\n\r\n");
    files.write("gateway.toml", &file(""));
    program.signal(Signal::HUP);
    program.until_logged("configuration reloaded", 2);
    assert_eq!(ask("SSH-2.0-tide\r\n"), "others:SSH-2.0-tide\r\n");
}

/// A name server has both addresses in one listener; the socket of `[::]` leaves IPv4 to the other.
#[test]
fn a_udp_listener_may_have_both_unspecified_addresses_with_one_port_or_ipv6_alone() {
    let files = Files::new();
    let server = udp_echo("dns:");
    let Ok(probe) = UdpSocket::bind("[::]:0") else { return };
    // Another process may take the port meanwhile.
    let started = (0..100).find_map(|_| {
        let port = UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port();
        let file = |addresses: &str| {
            format!(
                "[[listen]]\naddress = [{addresses}]\nprotocol = \"udp\"\nupstream = \"dns\"\n\
                 [[upstream]]\nname = \"dns\"\nservers = [\"udp://{server}\"]\n"
            )
        };
        files.write("both.toml", &file(&format!("\"[::]:{port}\", \"0.0.0.0:{port}\"")));
        let both = files.try_start("both.toml", &[]).ok()?;
        files.write("six.toml", &file("\"[::]:0\"").replace("protocol", "ipv6-only = true\nprotocol"));
        Some((both, port, files.start("six.toml", &[])))
    });
    let (_both, port, six) = started.expect("both addresses are free");
    assert_eq!(ask(&udp_client(SocketAddr::from(([127, 0, 0, 1], port))), "ebb"), "dns:ebb");
    let client = UdpSocket::bind("[::1]:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port))).unwrap();
    assert_eq!(ask(&client, "flow"), "dns:flow");
    let six = addresses(&six, "udp://")[0].port();
    let v4 = UdpSocket::bind(("0.0.0.0", six));
    assert!(v4.is_ok(), "{v4:?}: the port of IPv4 is left to others");
    drop(probe);
}

/// Asserts that `check-config` prints a mistake with this place and text.
#[track_caller]
fn assert_mistake(files: &Files, text: &str, place: &str, expected: &str) {
    let (code, _, errors) = files.check(text);
    assert_eq!(code, Some(1), "{text}{errors:?}");
    let is_it = |line: &String| line.starts_with(&format!("gateway.toml:{place}: ")) && line.contains(expected);
    assert!(errors.iter().any(is_it), "{text}{errors:#?}");
}

const FIRST: &str = "first-bytes = [{ starts-with = \"S\", upstream = \"t\" }]";

#[test]
fn each_mistake_of_a_listener_below_http_says_how_to_remove_it() {
    let files = Files::new();
    let tcp = "[[upstream]]\nname = \"t\"\nservers = [\"tcp://a:1\"]\n";
    let udp = "[[upstream]]\nname = \"u\"\nservers = [\"udp://a:1\"]\n";
    let web = "[[upstream]]\nname = \"w\"\nservers = [\"http://a\"]\n";
    let listen = |protocol: &str, more: &str| {
        format!("[[listen]]\naddress = \":0\"\nprotocol = \"{protocol}\"\n{more}\n").replace(":0", "127.0.0.1:0")
    };
    for (text, place, expected) in [
        (listen("tpc", ""), "3:12", "did you mean \"tcp\"?"),
        (listen("tcp", ""), "1:1", "has no `upstream`: name an [[upstream]]"),
        (listen("tcp", "upstream = \"x\"") + tcp, "4:12", "there is no [[upstream]] with the name `x`"),
        (listen("tcp", "upstream = \"u\"") + udp, "4:12", "are `udp://`, and a `tcp` listener needs `tcp://`"),
        (listen("udp", "upstream = \"t\"") + tcp, "4:12", "are `tcp://`, and a `udp` listener needs `udp://`"),
        (listen("tls-passthrough", "upstream = \"w\"") + web, "4:12", "are of HTTP, and a `tls-passthrough` listener"),
        (listen("tls-passthrough", ""), "1:1", "`sni`, with an upstream for each name, or `upstream`"),
        (listen("tls-passthrough", "sni = { \"a.*\" = \"t\" }") + tcp, "4:9", "neither the name of a host nor"),
        (listen("tls-passthrough", "sni = { a = \"t\", A = \"t\" }") + tcp, "4:18", "`A`: it stands twice"),
        (listen("tcp", "upstream = \"t\"\nsni = { a = \"t\" }") + tcp, "1:1", "`sni` is for `tls-passthrough`"),
        (listen("tcp", "upstream = \"t\"\nself-signed = true") + tcp, "1:1", "`self-signed` is for `http` or `https`"),
        (
            listen("tcp", "upstream = \"t\"\nacme = { names = [\"a\"], directory = \"https://a\", folder = \"a\" }")
                + tcp,
            "1:1",
            "`acme` is for `http` or `https`",
        ),
        (listen("tcp", "upstream = \"t\"\nlimits = { flows = 1 }") + tcp, "1:1", "`limits.flows` is for `udp`"),
        (listen("tcp", "upstream = \"t\"\nlimits = { hello-bytes = 1 }") + tcp, "1:1", "`limits.hello-bytes` is for"),
        (
            listen("udp", "upstream = \"u\"\nproxy-protocol = \"required\"") + udp,
            "1:1",
            "`proxy-protocol` is for `tcp`",
        ),
        (listen("udp", "upstream = \"u\"").replace("127.0.0.1:0", "unix:/a") + udp, "2:11", "no address of UDP"),
        (listen("http", "upstream = \"w\"") + web, "1:1", "a [[route]] names the upstream"),
        (format!("{tcp}[[route]]\nupstream = \"t\"\n"), "5:12", "are `tcp://`, and a route needs of HTTP"),
        (tcp.replace("tcp://a:1", "tcp://a"), "3:12", "it ends with a port"),
        (
            tcp.replace("\"tcp://a:1\"", "\"tcp://a:1\", \"udp://a:1\""),
            "2:8",
            "all of HTTP, all `tcp://` or all `udp://`",
        ),
        (format!("{tcp}ca = \"/dev/null\"\n"), "2:8", "has no `ca`: remove it"),
        (format!("{tcp}health-check = {{ path = \"/\" }}\n"), "2:8", "has no `health-check.path`: remove it"),
        (format!("{tcp}limits = {{ body-timeout = 1 }}\n"), "2:8", "has no `limits` beyond `connect-timeout`"),
        (format!("{udp}send-proxy = true\n"), "2:8", "of `udp://` servers has no `send-proxy`"),
    ] {
        assert_mistake(&files, &text, place, expected);
    }
    let both = listen("tcp", "upstream = \"t\"") + &listen("udp", "upstream = \"u\"") + tcp + udp;
    let (code, lines, errors) = files.check(&both.replace("127.0.0.1:0", "127.0.0.1:53"));
    assert_eq!((code, errors), (Some(0), Vec::<String>::new()), "TCP and UDP have ports of their own");
    assert!(lines[0].contains("2 listeners, 2 upstreams, 0 routes"), "{lines:?}");
}

#[test]
fn each_mistake_of_a_rule_for_first_bytes_says_how_to_remove_it() {
    let files = Files::new();
    let tcp = "[[upstream]]\nname = \"t\"\nservers = [\"tcp://a:1\"]\n";
    let udp = "[[upstream]]\nname = \"u\"\nservers = [\"udp://a:1\"]\n";
    let listen = |protocol: &str, more: &str| {
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"{protocol}\"\n{more}\n")
    };
    for (text, place, expected) in [
        (listen("udp", &format!("upstream = \"u\"\n{FIRST}")) + udp + tcp, "1:1", "`first-bytes` is for `tcp`"),
        (listen("http", FIRST) + tcp, "1:1", "`sni` and `first-bytes` need"),
        (
            listen("tcp", &format!("upstream = \"t\"\n{}", FIRST.replace("= \"t\"", "= \"x\""))) + tcp,
            "5:48",
            "with the name `x`",
        ),
        (listen("tcp", &FIRST.replace("S", "")) + tcp, "4:32", "`starts-with` has 1 to 256 bytes"),
        (listen("tcp", &FIRST.replace("starts-with", "protocol")) + tcp, "4:29", "\"tls\""),
        (listen("tcp", &FIRST.replace("starts-with = \"S\",", "")) + tcp, "4:16", "has one of `protocol` and"),
        (listen("tcp", &FIRST.replace("{", "{ protocol = \"tls\",")) + tcp, "4:16", "exclude each other"),
    ] {
        assert_mistake(&files, &text, place, expected);
    }
}
