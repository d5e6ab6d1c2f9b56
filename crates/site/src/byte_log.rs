//! `--log-bytes` and `--pcap`: logs of the bytes of connections, as a filter below the codec of the site.

use std::io;
use std::path::Path;

use tidegate::Address;
use tidegate::bytelog::{ByteLog, Capture, CaptureOptions, ConnectionCapture, HexLog, Role};

/// Which logs there are.
#[derive(Debug, Clone)]
pub struct ByteLogs {
    capture: Option<Capture>,
    logs_hex: bool,
}

/// Where the bytes of a connection go.
pub(crate) type Sink = (Option<HexLog>, Option<ConnectionCapture>);

impl ByteLogs {
    /// The logs that the flags request: hex dumps, and a new capture file; `None` if they request none.
    ///
    /// # Errors
    /// If the file cannot be created; the error names it.
    pub fn new(logs_hex: bool, pcap: Option<&Path>) -> io::Result<Option<Self>> {
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

    /// Writes the rest of the capture file. Returns a line about it if the file has not all frames.
    #[must_use]
    pub fn finish(&self) -> Option<String> {
        match self.capture.as_ref()?.finish() {
            Ok(counts) if counts.dropped > 0 => {
                let (frames, dropped) = (counts.frames, counts.dropped);
                Some(format!("the capture file has {frames} frames, {dropped} were dropped"))
            }
            Ok(_) => None,
            Err(error) => Some(format!("the capture file failed: {error}")),
        }
    }
}
