//! The reader of a ClientHello, by whose name TLS is passed on: each prefix of the bytes gives a step towards the result,
//! and a TLS server finds the same name.
//!
//! The bytes are those of a connection, from its first one.

use tidegate_l4::{ClientHello, read_client_hello};
use tidegate_tls::rustls::server::Acceptor;

/// One beginning of a connection.
pub fn client_hello(data: &[u8]) {
    let wire = &data[..data.len().min(WIRE_BYTES_MAX)];
    let whole = read_client_hello(wire, HELLO_BYTES_MAX);
    for end in 0..wire.len() {
        match read_client_hello(&wire[..end], HELLO_BYTES_MAX) {
            Ok(ClientHello::NeedMore(bytes)) => {
                assert!(bytes > end && bytes <= HELLO_BYTES_MAX, "{bytes} of {end}");
                assert!(
                    bytes <= wire.len() || !matches!(whole, Ok(ClientHello::Complete(_))),
                    "it was complete before"
                );
            }
            Ok(complete) => assert_eq!(Ok(&complete), whole.as_ref(), "bytes behind it do not matter"),
            Err(_) => assert!(whole.is_err(), "{end}: an error stays one"),
        }
    }
    // The upstream terminates TLS: it must not see another name than the one that its address was chosen by.
    if let (Ok(ClientHello::Complete(found)), Some(name)) = (whole, name_by_rustls(wire)) {
        let name = name.to_ascii_lowercase();
        assert_eq!(found.as_deref(), Some(name.strip_suffix('.').unwrap_or(&name)));
    }
}

/// The name that rustls finds, if it accepts the ClientHello.
fn name_by_rustls(mut wire: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    while !wire.is_empty() {
        acceptor.read_tls(&mut wire).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
    None
}

/// The limit of the reader.
const HELLO_BYTES_MAX: usize = 600;

const WIRE_BYTES_MAX: usize = 700;
