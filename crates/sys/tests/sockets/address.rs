//! Addresses as text.

use std::net::SocketAddr;

use tidegate_sys::{Address, BadAddress};

#[test]
fn an_address_is_written_as_it_is_read() {
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
fn only_an_ip_address_has_one() {
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
fn a_socket_without_a_name_says_so() {
    assert_eq!(Address::Unix("".into()).to_string(), "unix:(unnamed)");
}
