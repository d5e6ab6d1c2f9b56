//! The memory of datagrams (RFC 9221) that wait, in either direction, for the ledger of the loop.
//!
//! Bytes of streams are not here: the windows bound them, and the queues of streams have a ledger of their own.

use tidegate_codec::SessionNumber;

use crate::connection::ConnectionState;
use crate::counters::add;
use crate::endpoint::{Endpoint, place};
use crate::quinn;

impl ConnectionState {
    /// Bytes of the datagrams that wait, 32 more for each.
    fn datagram_bytes(&mut self, send_bytes_max: u32) -> usize {
        if self.is_over {
            return 0;
        }
        let received = self.datagrams.as_ref().map_or(0, |datagrams| datagrams.bytes());
        received + quinn::waiting_datagram_bytes(&mut self.machine, send_bytes_max)
    }
}

impl Endpoint {
    /// Counts the datagrams of a connection as they are now.
    pub(crate) fn count_datagrams(&mut self, index: usize) {
        let limits = &self.settings.limits;
        if limits.datagram_receive_bytes.is_none() {
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let bytes = connection.datagram_bytes(limits.datagram_send_bytes);
        self.kept = self.kept - connection.counted_datagrams + bytes;
        connection.counted_datagrams = bytes;
    }

    /// The datagrams of a connection wait no more: its place is given up.
    pub(crate) fn uncount_datagrams(&mut self, connection: &ConnectionState) {
        self.kept -= connection.counted_datagrams;
    }

    pub(crate) fn each_kept_here(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        if self.kept > 0 {
            let kept = self.connections.iter().flatten().filter(|connection| connection.counted_datagrams > 0);
            kept.for_each(|connection| each(connection.number, connection.counted_datagrams));
        }
    }

    /// Drops the datagrams of a connection that were received. Those that wait to be sent leave by themselves.
    pub(crate) fn drop_datagrams_of(&mut self, session: SessionNumber) {
        let index = place(session);
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        if connection.number == session {
            let dropped = connection.datagrams.take().map_or(0, |mut datagrams| datagrams.clear());
            add(&self.counters.datagrams_dropped, dropped);
            self.count_datagrams(index);
        }
    }
}
