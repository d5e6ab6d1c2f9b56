//! Sockets in the abstract namespace of Linux: they have a name and no file.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use tidegate_sys::{Address, ListenOptions, Side, Socket};

/// A name that no other process of this machine uses.
fn name(of: &str) -> String {
    format!("tidegate-{of}-{}", std::process::id())
}

fn listen(name: &str) -> std::io::Result<Socket> {
    let address: Address = format!("unix:@{name}").parse().unwrap();
    Socket::listen(&address, &ListenOptions::default())
}

fn connect(name: &str) -> std::io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap())
}

#[test]
fn a_listener_has_the_abstract_name_and_no_file() {
    let name = name("listen");
    let socket = listen(&name).unwrap();
    assert_eq!(socket.address(Side::Local).unwrap().to_string(), format!("unix:@{name}"));
    assert!(!std::path::Path::new(&format!("@{name}")).exists());
    let Socket::Descriptor(descriptor) = socket else { panic!("it is not simulated") };
    let listener = UnixListener::from(descriptor);
    listener.set_nonblocking(false).unwrap();
    let mut client = connect(&name).unwrap();
    listener.accept().unwrap().0.write_all(b"ebb").unwrap();
    let mut text = [0; 3];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"ebb");
}

#[test]
fn a_name_is_in_use_until_its_listener_is_closed() {
    let name = name("use");
    let first = listen(&name).unwrap();
    assert_eq!(listen(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    assert_eq!(connect(&name).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(listen(&name).unwrap());
}

/// The system calls would choose a name, truncate the path, or have no room.
#[test]
fn a_name_that_the_kernel_would_change_is_an_error() {
    for address in
        [Address::Abstract(Vec::new()), Address::Unix("/tmp/a\0b".into()), Address::Abstract(vec![b'x'; 200])]
    {
        let error = Socket::listen(&address, &ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{address}");
    }
}
