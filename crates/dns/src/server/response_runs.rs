//! Runs of responses: those of one batch and one length to one client leave as one run, which the kernel or the network card splits
//! (GSO). A resolver in front sends its queries from few ports, so a batch has several for each.

use std::num::NonZeroU16;

use tidegate_buffer::{Payload, Transmit, Transmits};

/// Joins responses where that is possible, and passes them on. Those to one client stay in their order.
pub(super) fn push_joined(responses: &mut Vec<Transmit>, transmits: &mut Transmits) {
    if responses.len() < 2 {
        return responses.drain(..).for_each(|response| transmits.push(response));
    }
    let mut joined: Vec<Transmit> = Vec::with_capacity(responses.len());
    for response in responses.drain(..) {
        let recent = joined.len().saturating_sub(RECENT_MAX);
        let before = joined[recent..].iter_mut().rev().find(|run| run.destination == response.destination);
        match before {
            Some(run) if can_join(run, &response) => join(run, &response, transmits),
            _ => joined.push(response),
        }
    }
    joined.into_iter().for_each(|run| transmits.push(run));
}

/// Whether a response can be the next one of a run: all have one length, and only the last may be shorter.
fn can_join(run: &Transmit, response: &Transmit) -> bool {
    let size = datagram_bytes(run);
    let length = response.payload.len();
    let is_plain = |transmit: &Transmit| transmit.ancillary.is_none() && transmit.destination.is_some();
    (1..=size).contains(&length)
        && run.payload.len().is_multiple_of(size)
        && run.payload.len() < size * RUN_DATAGRAMS_MAX
        && run.local == response.local
        && is_plain(run)
        && is_plain(response)
}

fn join(run: &mut Transmit, response: &Transmit, transmits: &mut Transmits) {
    let size = datagram_bytes(run);
    if run.segment_size.is_none() {
        let mut buffer = transmits.buffer();
        buffer.reserve(size * RUN_DATAGRAMS);
        buffer.extend_from_slice(&run.payload);
        (run.payload, run.segment_size) = (Payload::Buffer(buffer), NonZeroU16::new(size as u16));
    }
    if let Payload::Buffer(buffer) = &mut run.payload {
        buffer.extend_from_slice(&response.payload);
    }
}

/// The length of each datagram but the last.
fn datagram_bytes(run: &Transmit) -> usize {
    run.segment_size.map_or(run.payload.len(), |size| usize::from(size.get()))
}

/// Runs and single responses that are compared with the next response: a batch to many clients costs no more.
const RECENT_MAX: usize = 16;

/// Responses of one run, of at most 1,232 bytes each.
const RUN_DATAGRAMS_MAX: usize = 32;

/// Responses for which a run has memory at first.
const RUN_DATAGRAMS: usize = 8;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tidegate_buffer::{LocalAddress, Pool};

    use super::*;

    /// Responses of these lengths to clients with these numbers, as destination, lengths of the datagrams.
    fn joined(responses: &[(u8, usize)]) -> Vec<(u16, Vec<usize>)> {
        let mut transmits = Transmits::new(&Pool::new());
        let to = |client: u8| SocketAddr::from(([192, 0, 2, client], 5300));
        let single =
            |(number, (client, length)): (usize, &(u8, usize))| Transmit::new(vec![number as u8; *length], to(*client));
        let mut ready: Vec<_> = responses.iter().enumerate().map(single).collect();
        push_joined(&mut ready, &mut transmits);
        assert!(ready.is_empty());
        let lengths = |run: &Transmit| run.payload.chunks(datagram_bytes(run)).map(<[u8]>::len).collect();
        let client = |run: &Transmit| match run.destination {
            Some(SocketAddr::V4(address)) => u16::from(address.ip().octets()[3]),
            _ => 0,
        };
        transmits.iter().map(|run| (client(run), lengths(run))).collect()
    }

    #[test]
    fn responses_of_one_length_to_one_client_are_a_run_that_a_shorter_one_ends() {
        assert_eq!(joined(&[(1, 50)]), [(1, vec![50])]);
        assert_eq!(joined(&[(1, 50), (2, 50), (1, 50), (2, 50)]), [(1, vec![50, 50]), (2, vec![50, 50])]);
        let mixed = [(1, 50), (1, 50), (1, 20), (1, 50), (1, 60), (1, 60)];
        assert_eq!(joined(&mixed), [(1, vec![50, 50, 20]), (1, vec![50]), (1, vec![60, 60])]);
        let many = joined(&[(1, 1_232); 40]);
        assert_eq!(many.iter().map(|run| run.1.len()).collect::<Vec<_>>(), [RUN_DATAGRAMS_MAX, 8]);
    }

    #[test]
    fn responses_from_two_addresses_of_the_server_are_no_run() {
        let (pool, to) = (Pool::new(), SocketAddr::from(([192, 0, 2, 1], 5300)));
        let mut transmits = Transmits::new(&pool);
        let from = |host: u8| LocalAddress { address: Some([192, 0, 2, host].into()), interface: 0 };
        let response = |host| Transmit { local: from(host), ..Transmit::new(vec![7; 50], to) };
        push_joined(&mut vec![response(53), response(54), response(54)], &mut transmits);
        assert_eq!(transmits.iter().map(Transmit::count).collect::<Vec<_>>(), [1, 2]);
    }
}
