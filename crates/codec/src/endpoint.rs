//! `Endpoint`: one protocol of datagrams, free of I/O.
//!
//! An endpoint has the datagrams of all peers of one socket. It has no socket, no thread and no clock: the engine, the
//! simulated network or a test passes datagrams and the time in, and fetches datagrams and the next deadline.

use std::time::Instant;

use tidegate_buffer::{Datagram, DatagramError, Membership, Transmits};

/// A protocol of datagrams, such as DNS or QUIC.
///
/// The caller passes a batch of datagrams, one by one, and then calls [`poll_transmit`](Endpoint::poll_transmit) once,
/// not once for each datagram: an endpoint that decides once a turn acknowledges several datagrams with
/// one, and fills runs. The caller reads [`poll_timeout`](Endpoint::poll_timeout) after that.
///
/// ```
/// use std::collections::VecDeque;
/// use std::net::SocketAddr;
/// use std::time::{Duration, Instant};
///
/// use tidegate::codec::{Datagram, Endpoint, Pool, Transmit, Transmits};
///
/// /// Responds to each datagram, and greets a silent peer after a second.
/// #[derive(Default)]
/// struct Echo {
///     responses: VecDeque<Transmit>,
///     last: Option<(SocketAddr, Instant)>,
/// }
///
/// impl Endpoint for Echo {
///     fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
///         self.last = Some((datagram.source, now));
///         self.responses.push_back(Transmit::response(&datagram, datagram.payload.clone()));
///     }
///
///     fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
///         self.responses.drain(..).for_each(|response| transmits.push(response));
///     }
///
///     fn poll_timeout(&self) -> Option<Instant> {
///         self.last.map(|(_, at)| at + Duration::from_secs(1))
///     }
///
///     fn handle_timeout(&mut self, _now: Instant) {
///         if let Some((peer, _)) = self.last.take() {
///             self.responses.push_back(Transmit::new(b"still there?".to_vec(), peer));
///         }
///     }
/// }
///
/// let (pool, now) = (Pool::new(), Instant::now());
/// let (mut echo, mut transmits) = (Echo::default(), Transmits::new(&pool));
/// let peer: SocketAddr = "192.0.2.7:5300".parse()?;
/// echo.handle_datagram(Datagram::new(pool.copy(b"ping"), peer), now);
/// echo.poll_transmit(now, &mut transmits);
/// let response = transmits.pop().expect("the endpoint responds");
/// assert_eq!((&*response.payload, response.destination), (&b"ping"[..], Some(peer)));
/// assert_eq!(echo.poll_timeout(), Some(now + Duration::from_secs(1)));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub trait Endpoint {
    /// A datagram has arrived. Any sender can forge its source, and its bytes. It is a run only if
    /// [`takes_runs`](Endpoint::takes_runs).
    ///
    /// A payload that is kept beyond the call is [detached](tidegate_buffer::Slice::detach): it is a view of a larger
    /// block of memory.
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant);

    /// Appends the datagrams that are to be sent now. The caller calls it once after a batch, after
    /// [`handle_timeout`](Endpoint::handle_timeout) and [`failed`](Endpoint::failed), and in the next turn if an endpoint
    /// stops because [`Transmits::room`] is zero. A list without room drops its oldest datagrams.
    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits);

    /// The time at which [`handle_timeout`](Endpoint::handle_timeout) is due. The caller reads it after each of the other
    /// calls.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time of [`poll_timeout`](Endpoint::poll_timeout) has come. The call may come late, and also early: the endpoint
    /// compares.
    fn handle_timeout(&mut self, _now: Instant) {}

    /// The system reports that a datagram was not delivered, or cannot be sent. The socket stays usable. A report of the
    /// network may be forged.
    fn failed(&mut self, _error: DatagramError, _now: Instant) {}

    /// The application drains: the endpoint begins nothing new, and says goodbye to its peers. The caller closes the socket
    /// once [`is_drained`](Endpoint::is_drained), or after a deadline.
    fn drain(&mut self, _now: Instant) {}

    /// Whether a drain has come to its end. By default it has at once.
    fn is_drained(&self) -> bool {
        true
    }

    /// Whether [`handle_datagram`](Endpoint::handle_datagram) gets the runs that the kernel has joined. By default the
    /// caller splits them. A forwarder that passes runs on saves most of its work.
    fn takes_runs(&self) -> bool {
        false
    }

    /// The next multicast group to join or to leave, if there is one. The loop asks after each event until there is none, and
    /// before it asks for datagrams to send. A change that the system refuses is reported by [`failed`](Self::failed), with
    /// [`DatagramErrorReason::Membership`](tidegate_buffer::DatagramErrorReason::Membership).
    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }
}

impl<E: Endpoint + ?Sized> Endpoint for Box<E> {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        (**self).handle_datagram(datagram, now);
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        (**self).poll_transmit(now, transmits);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }

    fn failed(&mut self, error: DatagramError, now: Instant) {
        (**self).failed(error, now);
    }

    fn drain(&mut self, now: Instant) {
        (**self).drain(now);
    }

    fn is_drained(&self) -> bool {
        (**self).is_drained()
    }

    fn takes_runs(&self) -> bool {
        (**self).takes_runs()
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        (**self).poll_membership()
    }
}
