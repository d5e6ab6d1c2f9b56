//! Addresses as text.

use std::net::SocketAddr;

use tidegate_sys::{Address, BadAddress};

#[test]
fn addresses_parse_and_display_alike() {
    for text in [
        "127.0.0.1:8080",
        "0.0.0.0:0",
        "255.255.255.255:65535",
        "[::]:0",
        "[::1]:80",
        "[2001:db8::7]:443",
        "[fe80::1%3]:80",
        "unix:/run/app.sock",
        "unix:relative/app.sock",
        "unix:/with:colons:80",
        "unix:/with space",
        "unix:@app",
        "unix:@with/slash and space",
        "unix:./@app",
    ] {
        let address: Address = text.parse().unwrap();
        assert_eq!(address.to_string(), text);
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

#[test]
fn only_ip_addresses_have_an_ip() {
    let ip: SocketAddr = "[::1]:80".parse().unwrap();
    assert_eq!(Address::from(ip).ip(), Some(ip));
    assert_eq!("localhost:99".parse::<Address>().unwrap().ip(), Some(SocketAddr::from(([127, 0, 0, 1], 99))));
    assert_eq!("unix:@a".parse::<Address>().unwrap().ip(), None);
    assert_eq!("unix:/a".parse::<Address>().unwrap().ip(), None);
}

#[test]
fn other_texts_are_refused() {
    let texts = [
        "localhost",
        "localhost:",
        "localhost:65536",
        "localhost:-1",
        "::1:80",
        "[::1]",
        "[::1]:",
        "1.2.3:80",
        " 127.0.0.1:80",
        "127.0.0.1:80 ",
        "UNIX:/a",
        "unix:",
        "unix:@",
        "unix:/a\0b",
        "/a",
        "http://127.0.0.1:80",
    ];
    for text in texts {
        assert_eq!(text.parse::<Address>(), Err(BadAddress), "{text}");
    }
}

#[test]
fn an_unnamed_socket_displays_as_unnamed() {
    assert_eq!(Address::Unix("".into()).to_string(), "unix:(unnamed)");
}
