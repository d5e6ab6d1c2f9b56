//! `--log-bytes` and `--pcap`: the site over a log of its bytes.

use std::io;
use std::path::Path;

use tidegate::bytelog::{ByteLog, Capture, CaptureOptions, ConnectionCapture, HexLog, Role};
use tidegate::http1::Incoming;
use tidegate::{Address, Context, Event, Handler, Outcome, Over};

use crate::site::Site;
use crate::site_codec::SiteCodec;

/// Which logs there are.
#[derive(Debug, Clone)]
pub(crate) struct ByteLogs {
    capture: Option<Capture>,
    logs_hex: bool,
}

type Sink = (Option<HexLog>, Option<ConnectionCapture>);
type Logged<C> = Over<ByteLog<Sink>, C>;

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

    /// A connection from a peer.
    pub(crate) fn connection<C: SiteCodec>(&self, peer: &Address, codec: C) -> (Logged<C>, LoggedSite) {
        let hex = self.logs_hex.then(|| HexLog::new(peer));
        let capture = self.capture.as_ref().map(|capture| capture.connection(Role::Server, None, peer.ip()));
        (Over::new(ByteLog::new((hex, capture)), codec), LoggedSite(Site::new()))
    }

    /// Writes the rest of the file, and reports what is missing in it.
    pub(crate) fn finish(&self) {
        let Some(capture) = &self.capture else { return };
        match capture.finish() {
            Ok(counts) if counts.dropped > 0 => {
                eprintln!("tidegate: the capture file has {} frames, {} were dropped", counts.frames, counts.dropped);
            }
            Ok(_) => {}
            Err(error) => eprintln!("tidegate: the capture file failed: {error}"),
        }
    }
}

/// The site, which also sets the local address of its connection in the capture.
pub(crate) struct LoggedSite(Site);

impl<C: SiteCodec> Handler<Logged<C>> for LoggedSite {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Logged<C>>) -> Outcome<Logged<C>> {
        let local = cx.local().ok().and_then(|local| local.ip());
        if let (Some(local), Some(capture)) = (local, &mut cx.codec_mut().filter_mut().sink_mut().1) {
            capture.set_local(local);
        }
        self.0.open(cx)
    }

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, Logged<C>>) -> Outcome<Logged<C>> {
        self.0.message(message, cx)
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Logged<C>>) -> Outcome<Logged<C>> {
        self.0.event(event, cx)
    }
}
