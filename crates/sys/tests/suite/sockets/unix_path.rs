//! Files that exist at the path of a Unix socket before `listen`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use socket2::{Domain, SockAddr, Type};
use tidegate_sys::{ListenOptions, Socket};

use crate::directory::Directory;

fn listen(directory: &Directory) -> std::io::Result<Socket> {
    Socket::listen(&directory.socket("path"), &ListenOptions::default())
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let directory = Directory::new();
    drop(UnixListener::bind(directory.path("path")).unwrap());
    assert!(UnixStream::connect(directory.path("path")).is_err());
    for _ in 0..3 {
        let _socket = listen(&directory).unwrap();
        UnixStream::connect(directory.path("path")).unwrap();
    }
}

#[test]
fn the_socket_file_of_a_live_listener_stays() {
    let directory = Directory::new();
    let first = UnixListener::bind(directory.path("path")).unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    first.set_nonblocking(true).unwrap();
    while first.accept().is_ok() {}
    UnixStream::connect(directory.path("path")).unwrap();
    first.accept().unwrap();
}

/// The check for a live listener must not wait for room in its backlog.
#[test]
fn a_listener_with_a_full_backlog_stays_and_does_not_block() {
    let directory = Directory::new();
    let address = SockAddr::unix(directory.path("path")).unwrap();
    let busy = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    busy.bind(&address).unwrap();
    busy.listen(0).unwrap();
    let _waits = UnixStream::connect(directory.path("path")).unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(directory.path("path").exists());
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let directory = Directory::new();
    fs::write(directory.path("path"), "precious").unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(fs::read_to_string(directory.path("path")).unwrap(), "precious");
}

#[test]
fn a_link_is_not_followed_and_not_removed() {
    let directory = Directory::new();
    drop(UnixListener::bind(directory.path("target")).unwrap());
    std::os::unix::fs::symlink(directory.path("target"), directory.path("path")).unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(directory.path("path").symlink_metadata().unwrap().is_symlink());
    assert!(directory.path("target").exists());
}

#[test]
fn a_directory_is_not_removed() {
    let directory = Directory::new();
    fs::create_dir(directory.path("path")).unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(directory.path("path").is_dir());
}

#[test]
fn a_socket_of_another_type_stays() {
    let directory = Directory::new();
    let _datagrams = UnixDatagram::bind(directory.path("path")).unwrap();
    assert_eq!(listen(&directory).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(directory.path("path").exists());
}

#[test]
fn an_unusable_path_is_an_error() {
    let directory = Directory::new();
    for name in ["missing/path", &"long".repeat(100)] {
        assert!(Socket::listen(&directory.socket(name), &ListenOptions::default()).is_err(), "{name}");
    }
}
