//! `--log-bytes` and `--pcap`: logs of the bytes of connections, as a filter below the codec of the site.

use std::io;
use std::path::Path;

use tidegate::Address;
use tidegate::bytelog::{ByteLog, Capture, CaptureOptions, ConnectionCapture, HexLog, Role};

use crate::complain::complain;

/// Which logs there are.
#[derive(Debug, Clone)]
pub(crate) struct ByteLogs {
    capture: Option<Capture>,
    logs_hex: bool,
}

/// Where the bytes of a connection go.
pub(crate) type Sink = (Option<HexLog>, Option<ConnectionCapture>);

impl ByteLogs {
    /// The logs that the flags request; `None` if they request none.
    pub(crate) fn new(logs_hex: bool, pcap: Option<&Path>) -> io::Result<Option<Self>> {
        let create = |path: &Path| {
            Capture::create(path, CaptureOptions::default())
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        let capture = pcap.map(create).transpose()?;
        Ok((logs_hex || capture.is_some()).then_some(Self { capture, logs_hex }))
    }

    /// The filter of a connection from a peer.
    pub(crate) fn filter(&self, peer: &Address) -> ByteLog<Sink> {
        let hex = self.logs_hex.then(|| HexLog::new(peer));
        let capture = self.capture.as_ref().map(|capture| capture.connection(Role::Server, None, peer.ip()));
        ByteLog::new((hex, capture))
    }

    /// Writes the rest of the file, and reports missing frames.
    pub(crate) fn finish(&self) {
        let Some(capture) = &self.capture else { return };
        match capture.finish() {
            Ok(counts) if counts.dropped > 0 => {
                let (frames, dropped) = (counts.frames, counts.dropped);
                complain(format_args!("the capture file has {frames} frames, {dropped} were dropped"));
            }
            Ok(_) => {}
            Err(error) => complain(format_args!("the capture file failed: {error}")),
        }
    }
}
