//! Headers byte by byte, independent of the builder.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_proxy_protocol::{Networks, Policy};

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A header of version 2 with this command, family and block.
pub(crate) fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = (block.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, block].concat()
}

/// TCP over IPv4 from 192.0.2.1:50000 to 198.51.100.1:443, with TLVs.
pub(crate) fn v4(tlvs: &[Vec<u8>]) -> Vec<u8> {
    let addresses = [192, 0, 2, 1, 198, 51, 100, 1, 0xC3, 0x50, 0x01, 0xBB];
    v2(0x21, 0x11, &[&addresses[..], &tlvs.concat()].concat())
}

pub(crate) fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
}

/// A TLV that claims to be longer than it is.
pub(crate) fn overlong(kind: u8, claimed: u16, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &claimed.to_be_bytes(), value].concat()
}

pub(crate) fn required() -> Arc<Policy> {
    Arc::new(Policy::required(Networks::local()))
}

pub(crate) fn optional() -> Arc<Policy> {
    Arc::new(Policy::optional(Networks::local()))
}
