//! `Transport`: the protocol of a raw peer below the bytes of a scenario, where that is no function of the bytes alone.

/// A client's side of a filter, without a socket.
pub(crate) trait Transport {
    /// The wire bytes that are to be sent now.
    fn outgoing(&mut self) -> Vec<u8>;

    /// Accepts plain bytes, which wait until the handshake is complete.
    fn write(&mut self, plain: &[u8]);

    /// Takes wire bytes, and returns their plain form; an error is the server's.
    fn receive(&mut self, wire: &[u8]) -> Result<Vec<u8>, String>;

    /// Ends the plain bytes of this side. The handshake is complete.
    fn close(&mut self);

    /// Whether the handshake is complete.
    fn is_established(&self) -> bool;
}

pub(crate) type MakeTransport = fn() -> Box<dyn Transport>;
