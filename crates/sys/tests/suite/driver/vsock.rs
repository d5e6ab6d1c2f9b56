//! Streams between a virtual machine and its host (AF_VSOCK), over the loopback of one machine (module `vsock_loopback`).

use std::io::ErrorKind;

use tidegate_sys::{Address, ListenOptions, Operation, Side, Socket, SocketOptions};

use crate::driver::harness::{Harness, Report};
use crate::driver::which::Which;

/// This machine.
const LOCAL: u32 = 1;

/// A listener at a free port, if this machine has vsock.
fn listener() -> Option<Socket> {
    let any = Address::Vsock { cid: Address::VSOCK_CID_ANY, port: Address::VSOCK_PORT_ANY };
    match Socket::listen(&any, &ListenOptions::default()) {
        Ok(socket) => Some(socket),
        Err(error) => {
            println!("skipped: there is no vsock here: {error}");
            None
        }
    }
}

fn port(socket: &Socket) -> u32 {
    match socket.address(Side::Local).unwrap() {
        Address::Vsock { cid: Address::VSOCK_CID_ANY, port } if port != Address::VSOCK_PORT_ANY => port,
        other => panic!("{other}"),
    }
}

pub(crate) fn a_vsock_listener_has_its_port(_: Which) {
    let Some(first) = listener() else { return };
    let address = Address::Vsock { cid: Address::VSOCK_CID_ANY, port: port(&first) };
    let taken = Socket::listen(&address, &ListenOptions::default()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

pub(crate) fn vsock_streams_connect_and_carry_bytes(driver: Which) {
    let Some(socket) = listener() else { return };
    let to = Address::Vsock { cid: LOCAL, port: port(&socket) };
    let mut harness = Harness::on(driver);
    let listening = harness.token();
    harness.submit(listening, Operation::Listen(socket));
    let client = harness.token();
    harness.submit(client, Operation::Connect { address: &to, local: None, options: &SocketOptions::default() });
    // Without a loopback the kernel refuses at once, or ends the attempt after two seconds (SO_VM_SOCKETS_CONNECT_TIMEOUT).
    harness.until(|harness| (!harness.reports(client).is_empty()).then_some(()));
    match harness.reports(client) {
        [Report::Connected(Ok(()))] => {}
        other => return println!("skipped: there is no vsock loopback here: {other:?}"),
    }
    let (_, accepted) = harness.until_accepted();
    assert!(matches!(accepted.peer, Address::Vsock { cid: LOCAL, .. }), "{}", accepted.peer);
    assert_eq!(harness.driver.address(client, Side::Peer).unwrap(), to);
    let server = harness.token();
    harness.submit(server, Operation::Adopt(accepted.socket));
    harness.receive(server, true);
    let mut queue = tidegate_buffer::Outbound::new(&harness.pool);
    queue.write(b"over vsock");
    queue.flush();
    harness.send_all(client, &mut queue, usize::MAX).unwrap();
    assert_eq!(harness.until_received(server, 10), b"over vsock");
}
