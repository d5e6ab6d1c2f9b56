//! The frames of a load on WebSockets, and the configuration of its connections.

use std::sync::Arc;

use tidegate::Bytes;
use tidegate::codec::{Codec as _, Output};
use tidegate::websocket::{self, Config, Message, Text, WebSocket};

/// Messages of any length, and neither pings nor compression: the load measures those of the server.
pub(crate) fn config() -> Arc<Config> {
    let mut config = Config::default();
    config.message_bytes_max = u64::MAX / 2;
    config.ping_interval = None;
    config.control_frames_max = u16::MAX;
    Arc::new(config)
}

/// `depth` masked frames of a message: text if it is UTF-8, otherwise binary.
///
/// # Errors
/// That the message cannot be sent, and why.
pub(crate) fn write(message: &Bytes, depth: u32, out: &mut Output<'_>) -> Result<(), websocket::Error> {
    let mut codec = WebSocket::client(config(), None);
    for _ in 0..depth {
        let message = match Text::new(message.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::binary(message.clone()),
        };
        codec.encode(message, out)?;
    }
    Ok(())
}
