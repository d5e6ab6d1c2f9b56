//! `Trace`: a hash of all completions that drivers returned, in order.

use std::io;

use tidegate_sys::{Address, Completion, Token};

/// Two runs with the same hash were the same: the same completions at the same times, with the same bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    hash: u64,
}

impl Trace {
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a completion of a driver and its time.
    pub(super) fn note(&mut self, nanos: u64, driver: usize, token: Token, completion: &Completion) {
        self.mix(nanos);
        self.mix(driver as u64);
        self.mix(u64::from(token.generation) << 32 | u64::from(token.slot));
        match completion {
            Completion::Accepted(Ok(accepted)) => {
                self.mix(1);
                self.address(&accepted.peer);
            }
            Completion::Accepted(Err(error)) => self.error(2, error),
            Completion::Connected(Ok(())) => self.mix(3),
            Completion::Connected(Err(error)) => self.error(4, error),
            Completion::Received(bytes) => {
                self.mix(5);
                self.bytes(bytes);
            }
            Completion::Ended => self.mix(6),
            Completion::HungUp => self.mix(12),
            Completion::Sent(Ok(count)) => {
                self.mix(7);
                self.mix(*count as u64);
            }
            Completion::Sent(Err(error)) => self.error(8, error),
            Completion::Failed(error) => self.error(9, error),
            Completion::Closed => self.mix(10),
            Completion::Woken => self.mix(11),
            Completion::Datagrams(batch) => {
                self.mix(13);
                for datagram in batch {
                    self.address(&datagram.peer());
                    self.bytes(&datagram.payload);
                }
            }
            Completion::Transmitted(transmission) => {
                self.mix(14);
                self.mix(transmission.sent);
                self.mix(transmission.lost);
            }
            Completion::DatagramErrors(errors) => {
                self.mix(15);
                for error in errors {
                    self.bytes(format!("{error:?}").as_bytes());
                }
            }
        }
    }

    fn address(&mut self, address: &Address) {
        match address {
            Address::Ip(address) => {
                self.mix(u64::from(address.port()));
                match address.ip() {
                    std::net::IpAddr::V4(ip) => self.bytes(&ip.octets()),
                    std::net::IpAddr::V6(ip) => self.bytes(&ip.octets()),
                }
            }
            Address::Unix(path) => self.bytes(path.as_os_str().as_encoded_bytes()),
            Address::Abstract(name) => {
                self.mix(0);
                self.bytes(name);
            }
            Address::Vsock { cid, port } => {
                self.mix(1);
                self.mix(u64::from(*cid) << 32 | u64::from(*port));
            }
        }
    }

    fn error(&mut self, which: u64, error: &io::Error) {
        self.mix(which);
        self.bytes(format!("{:?}", error.kind()).as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    const fn mix(&mut self, word: u64) {
        // Each step is invertible, so no difference is lost.
        self.hash = (self.hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.hash ^= self.hash >> 29;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_and_received_bytes_change_the_hash() {
        let address = |port| Address::Ip(([10, 0, 0, 1], port).into());
        let paths = ["/a", "/b"].map(|path| Address::Unix(path.into()));
        let hash = |note: &dyn Fn(&mut Trace)| {
            let mut trace = Trace::default();
            note(&mut trace);
            trace.hash()
        };
        assert_ne!(hash(&|trace| trace.address(&address(1))), hash(&|trace| trace.address(&address(2))));
        assert_ne!(hash(&|trace| trace.address(&paths[0])), hash(&|trace| trace.address(&paths[1])));
        for length in 1..40 {
            for place in 0..length {
                let (same, mut other) = (vec![7; length], vec![7; length]);
                other[place] = 8;
                assert_ne!(hash(&|trace| trace.bytes(&same)), hash(&|trace| trace.bytes(&other)));
            }
        }
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].map(io::Error::from);
        assert_ne!(hash(&|trace| trace.error(4, &kinds[0])), hash(&|trace| trace.error(4, &kinds[1])));
    }
}
