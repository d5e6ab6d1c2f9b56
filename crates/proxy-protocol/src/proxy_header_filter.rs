//! `ProxyHeaderFilter`: the receiver as a filter, below any codec and any other filter.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_codec::{Filter, Input, Outbound, Output, Step};

use crate::error::Error;
use crate::header::Header;
use crate::policy::Policy;
use crate::receiver::Receiver;

/// A filter that takes the header off and passes all other bytes on, both ways, without copying them: 8 bytes.
///
/// Where the policy requires a header, nothing is sent before it has come, so it suits protocols whose server speaks
/// first as well. Where the header is optional, nothing waits for it.
///
/// The application reads the header through the codec: `cx.codec().filter().header()` in a handler,
/// `channel.with_codec(|codec| ..)` in a task. [`Over::filter`](tidegate_codec::Over::filter) does not change it, so the
/// header is kept as long as the connection. For a codec without other filters [`ReceivesHeader`](crate::ReceivesHeader) is smaller.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::codec::Over;
/// use tidegate::framing::Lines;
/// use tidegate::proxy_protocol::{Networks, Policy, ProxyHeaderFilter};
/// use tidegate::{Context, Handler, Outcome, Slice};
///
/// struct Whoami;
///
/// impl Handler<Over<ProxyHeaderFilter, Lines>> for Whoami {
///     type Post = ();
///
///     fn message(&mut self, _: Slice, cx: &mut Context<'_, Over<ProxyHeaderFilter, Lines>>) -> Outcome<Over<ProxyHeaderFilter, Lines>> {
///         let source = cx.codec().filter().header().and_then(|header| header.source());
///         let answer = source.map_or("yourself".into(), |source| source.to_string());
///         cx.send(answer.into()).into()
///     }
/// }
///
/// let policy = Arc::new(Policy::required(Networks::local()));
/// let server = tidegate::Server::bind("127.0.0.1:0")?.start_each(move |_| {
///     let policy = policy.clone();
///     move |peer: &tidegate::Address| {
///         let peer = peer.ip().map(|address| address.ip());
///         (Over::new(ProxyHeaderFilter::new(&policy, peer), Lines::new()), Whoami)
///     }
/// })?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug)]
pub struct ProxyHeaderFilter {
    receiver: Receiver,
}

impl ProxyHeaderFilter {
    /// The filter of a new connection. `peer` is the address of the peer, `None` on a Unix socket.
    #[must_use]
    pub fn new(policy: &Arc<Policy>, peer: Option<IpAddr>) -> Self {
        Self { receiver: Receiver::new(policy, peer) }
    }

    /// The header, once it has come.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.receiver.header()
    }
}

impl Filter for ProxyHeaderFilter {
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "PROXY"
    }

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Error> {
        if self.receiver.is_waiting() {
            // Progress even without bytes: the codec above may speak first now.
            let has_passed = self.receiver.receive(wire, reply.now())?;
            return Ok(if has_passed { Step::Message(()) } else { Step::NeedMore });
        }
        if wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        plain.append(wire.take_all(), reply.pool());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Error> {
        if self.is_established() {
            out.take_flushed(plain);
        }
        Ok(())
    }

    /// A few first bytes that might have become an optional header are an error here.
    fn decode_eof(&mut self, wire: &mut Input, _: &mut Output<'_>) -> Result<(), Error> {
        if self.receiver.is_waiting() && !wire.is_empty() {
            return Err(Error::Peer(crate::Violation::Truncated));
        }
        Ok(())
    }

    fn is_established(&self) -> bool {
        !self.receiver.requires_header()
    }

    fn allows_file_bypass(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout()
    }

    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), Error> {
        self.receiver.handle_timeout(reply.now())
    }
}

const _: () = assert!(size_of::<ProxyHeaderFilter>() == 8);
