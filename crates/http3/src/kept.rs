//! The memory that connections keep beside streams: QPACK tables, with the bytes that wait for them, HTTP datagrams that were
//! received and not read, and early requests that wait for the handshake. QUIC counts the datagrams that it has.

use tidegate_codec::{SessionNumber, StreamEndpoint};

use crate::endpoint::{Endpoint, Session};

impl Session {
    /// Bytes that the sum of the endpoint has for the connection.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| tables.counted())
            + self.datagrams.as_ref().map_or(0, |datagrams| datagrams.counted)
            + self.webtransport.as_ref().map_or(0, |webtransport| webtransport.counted)
    }
}

impl<E: StreamEndpoint> Endpoint<E> {
    /// Counts the datagrams of a connection as they are now.
    pub(crate) fn count_datagrams(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if let Some(datagrams) = &mut session.datagrams {
            let bytes = datagrams.bytes();
            self.kept = self.kept - std::mem::replace(&mut datagrams.counted, bytes) + bytes;
        }
        if let Some(webtransport) = &mut session.webtransport {
            let bytes = webtransport.datagram_bytes();
            self.kept = self.kept - std::mem::replace(&mut webtransport.counted, bytes) + bytes;
        }
    }

    pub(crate) fn drop_datagrams_of(&mut self, number: SessionNumber) {
        self.quic.drop_datagrams(number);
        let Some(session) = self.sessions.get_mut(&number) else { return };
        self.datagrams_dropped += session.datagrams.as_mut().map_or(0, |datagrams| datagrams.clear());
        self.datagrams_dropped +=
            session.webtransport.as_mut().map_or(0, |webtransport| webtransport.clear_datagrams());
        self.count_datagrams(number);
    }

    pub(crate) fn each_kept_here(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        self.quic.each_kept(each);
        self.early.each_kept(each);
        let kept = self.sessions.iter().map(|(number, session)| (*number, session.kept_bytes()));
        kept.filter(|(_, bytes)| *bytes > 0).for_each(|(number, bytes)| each(number, bytes));
    }
}
