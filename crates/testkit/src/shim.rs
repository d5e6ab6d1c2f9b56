//! `Shim`: a driver that wraps another one and injects errors into its calls.
//!
//! To the loop the shim acts as a kernel would: it injects the errors that a driver reports when the kernel is out of
//! descriptors or memory, when a call is interrupted, or when the peer is gone. The shim keeps the results of the
//! wrapped driver where a kernel would keep them, such as in the queue of a listener, or undoes them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Credentials, Datagram, Membership, Outbound, ReceiveHint, Slice};
use tidegate_sys::{
    Accepted, Address, Class, Completion, Driver, Operation, PassedDescriptors, Side, Socket, Token, Waker,
};

/// The kinds of system calls that a driver makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCall {
    /// Accepting a connection from a listener's queue.
    Accept,
    /// Receiving bytes.
    Receive,
    /// Sending bytes from memory.
    Send,
    /// Sending bytes of a file.
    SendFile,
    /// Completing a connect.
    Connect,
    /// Registering a socket with the driver.
    Register,
    /// Waiting for events.
    Wait,
    /// Creating a socket for a connect.
    Socket,
}

impl SystemCall {
    /// Whether this error can occur in this call with an effect. A short count needs a call that counts bytes. A call
    /// that is made only once, to create or to register a socket, is never retried.
    #[must_use]
    pub const fn can_fail_with(self, error: InjectedError) -> bool {
        match error {
            InjectedError::Short => matches!(self, Self::Receive | Self::Send | Self::SendFile),
            InjectedError::Errno(EINTR | EAGAIN) => !matches!(self, Self::Register | Self::Socket),
            InjectedError::Errno(_) => true,
        }
    }

    /// All calls.
    pub const ALL: [Self; 8] = [
        Self::Accept,
        Self::Receive,
        Self::Send,
        Self::SendFile,
        Self::Connect,
        Self::Register,
        Self::Wait,
        Self::Socket,
    ];
}

/// The shim's effect on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedError {
    /// The call fails with a system error. After `EINTR` and `EAGAIN` the shim retries it in the next turn, as drivers
    /// do.
    Errno(i32),
    /// The call transfers one byte.
    Short,
}

impl InjectedError {
    /// The errors of a system that cannot perform a call, and a short count.
    pub const ALL: [Self; 10] = [
        Self::Errno(ECONNRESET),
        Self::Errno(EPIPE),
        Self::Errno(EMFILE),
        Self::Errno(ENFILE),
        Self::Errno(ENOBUFS),
        Self::Errno(ENOMEM),
        Self::Errno(EINTR),
        Self::Errno(EAGAIN),
        Self::Errno(ETIMEDOUT),
        Self::Short,
    ];

    fn to_io_error(self) -> io::Error {
        match self {
            Self::Errno(errno) => io::Error::from_raw_os_error(errno),
            Self::Short => io::ErrorKind::WouldBlock.into(),
        }
    }

    /// Whether the shim retries the call later without reporting the error.
    const fn is_retried(self) -> bool {
        matches!(self, Self::Errno(EINTR | EAGAIN) | Self::Short)
    }
}

/// Which calls fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct ShimPlan {
    /// The kind of call.
    pub call: SystemCall,
    /// The first call that fails, counted from one.
    pub first: u64,
    /// How many consecutive calls fail.
    pub count: u64,
    /// The error of these calls.
    pub error: InjectedError,
}

/// The driver. [`Host::node_with_driver`](crate::network::Host::node_with_driver) puts it under a loop of a simulated network.
///
/// ```
/// use std::time::Duration;
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, Client, Limits};
/// use tidegate_testkit::network::Network;
/// use tidegate_testkit::shim::{SystemCall, InjectedError, Shim, ShimPlan};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// // The first three accepts fail with `EMFILE`.
/// let plan = ShimPlan { call: SystemCall::Accept, first: 1, count: 3, error: InjectedError::Errno(24) };
/// let network = Network::new(7);
/// let server = network.host("10.0.0.1").node_with_driver(|driver| Box::new(Shim::new(driver, plan)));
/// let client = network.host("10.0.0.2").node();
/// let address = server.serve(7, Limits::default(), Lines::new, echo)?;
/// let answer = client.spawn(async move {
///     let mut channel = Client::at(address).connect(Lines::new()).await?;
///     channel.send("ebb and flow".into())?;
///     Ok::<_, Box<dyn std::error::Error>>(channel.recv().await?)
/// });
/// let answer = network.run_task(Duration::from_secs(10), answer).expect("nothing breaks");
/// assert_eq!(answer.as_deref(), Some(&b"ebb and flow"[..]));
/// assert_eq!(server.counts().accepts_failed, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shim {
    inner: Box<dyn Driver>,
    waker: Waker,
    plan: ShimPlan,
    /// Calls of the planned kind so far.
    calls: u64,
    injected: Rc<Cell<u64>>,
    /// Completions of this turn, which are reported first.
    due: VecDeque<(Token, Completion)>,
    /// Completions of the next turn.
    later: VecDeque<(Token, Completion)>,
    /// Streams that a kernel would have kept in the queue of a listener.
    queued: VecDeque<(Token, Accepted)>,
    /// Sockets whose failure was reported. The only completion that follows is that of their close.
    failed: Vec<Token>,
}

impl Shim {
    /// A driver that forwards to `inner`, except for the calls that are planned to fail.
    #[must_use]
    pub fn new(inner: Box<dyn Driver>, plan: ShimPlan) -> Self {
        let (due, later, queued) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let waker = inner.waker();
        Self { inner, waker, plan, calls: 0, injected: Rc::default(), due, later, queued, failed: Vec::new() }
    }

    /// How many calls have failed as planned. The count stays readable while the loop owns the driver.
    #[must_use]
    pub fn injected(&self) -> Rc<Cell<u64>> {
        self.injected.clone()
    }

    /// Counts a call, and returns whether it fails as planned.
    fn takes_effect(&mut self, call: SystemCall) -> bool {
        let is_planned = self.plan.call == call;
        self.calls += u64::from(is_planned);
        let last = self.plan.first.saturating_add(self.plan.count);
        let fails = is_planned && (self.plan.first..last).contains(&self.calls);
        self.injected.set(self.injected.get() + u64::from(fails));
        fails
    }

    fn fail(&mut self, token: Token, completion: fn(io::Error) -> Completion) -> Completion {
        self.failed.push(token);
        completion(self.plan.error.to_io_error())
    }

    /// Filters a completion of the wrapped driver. Returns the completion to report now, if any.
    fn pass(&mut self, token: Token, completion: Completion) -> Option<(Token, Completion)> {
        if self.failed.contains(&token) {
            return None;
        }
        let error = self.plan.error;
        let completion = match completion {
            Completion::Accepted(Ok(accepted)) => {
                // Streams that came before are accepted first.
                self.queued.push_back((token, accepted));
                return self.accept(token);
            }
            Completion::Received(bytes) if !bytes.is_empty() && self.takes_effect(SystemCall::Receive) => match error {
                InjectedError::Short if bytes.len() > 1 => {
                    self.due.push_back((token, Completion::Received(bytes.slice(1..))));
                    Completion::Received(bytes.slice(..1))
                }
                error if error.is_retried() => {
                    // The scratch is the driver's own: a later completion must not refer to it.
                    self.postpone(token, Completion::Received(bytes.detach()));
                    return None;
                }
                _ => self.fail(token, Completion::Failed),
            },
            Completion::Connected(Ok(())) if self.takes_effect(SystemCall::Connect) => {
                if error.is_retried() {
                    self.postpone(token, Completion::Connected(Ok(())));
                    return None;
                }
                self.fail(token, |error| Completion::Connected(Err(error)))
            }
            completion => completion,
        };
        // No completion overtakes a late one of the same socket.
        if self.is_late(token) {
            self.postpone(token, completion);
            return None;
        }
        Some((token, completion))
    }

    /// Reports a completion in the next turn, and wakes the loop so that there is one.
    fn postpone(&mut self, token: Token, completion: Completion) {
        self.later.push_back((token, completion));
        self.waker.wake();
    }

    fn is_late(&self, token: Token) -> bool {
        self.later.iter().any(|(late, _)| *late == token)
    }

    /// Accepts the next stream in a listener's queue.
    fn accept(&mut self, listener: Token) -> Option<(Token, Completion)> {
        let index = self.queued.iter().position(|(token, _)| *token == listener)?;
        if self.takes_effect(SystemCall::Accept) && self.plan.error != InjectedError::Short {
            if !self.plan.error.is_retried() {
                return Some((listener, Completion::Accepted(Err(self.plan.error.to_io_error()))));
            }
            let (_, accepted) = self.queued.remove(index)?;
            self.postpone(listener, Completion::Accepted(Ok(accepted)));
            return None;
        }
        let (_, accepted) = self.queued.remove(index)?;
        Some((listener, Completion::Accepted(Ok(accepted))))
    }

    fn register(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if !self.takes_effect(SystemCall::Register) || self.plan.error.is_retried() {
            return self.inner.submit(token, operation);
        }
        self.inner.submit(token, operation);
        self.inner.submit(token, Operation::Close { reset: true });
        // The token is free again, so no completion may follow, not even that of the close. Tokens are not reused.
        self.failed.push(token);
        Some(Completion::Failed(self.plan.error.to_io_error()))
    }

    fn send(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> Option<Completion> {
        let call = if queue.starts_with_file() { SystemCall::SendFile } else { SystemCall::Send };
        if !queue.has_flushed() || !self.takes_effect(call) {
            return self.inner.submit(token, Operation::Send { queue, bytes_max });
        }
        match self.plan.error {
            InjectedError::Short => self.inner.submit(token, Operation::Send { queue, bytes_max: 1 }),
            error if error.is_retried() => {
                self.postpone(token, Completion::Sent(Ok(0)));
                None
            }
            _ => Some(self.fail(token, |error| Completion::Sent(Err(error)))),
        }
    }

    fn connect(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if self.takes_effect(SystemCall::Socket) && !self.plan.error.is_retried() {
            return Some(self.fail(token, |error| Completion::Connected(Err(error))));
        }
        let completion = self.inner.submit(token, operation)?;
        self.pass(token, completion).map(|(_, completion)| completion)
    }

    /// Discards the pending completions of a socket, and closes it.
    fn close(&mut self, token: Token, reset: bool) -> Option<Completion> {
        self.failed.retain(|failed| *failed != token);
        let mut left = Vec::new();
        for completions in [&mut self.due, &mut self.later] {
            completions.retain_mut(|(of, completion)| {
                if *of == token
                    && let Completion::Accepted(Ok(_)) = completion
                    && let Completion::Accepted(Ok(accepted)) = std::mem::replace(completion, Completion::Woken)
                {
                    left.push(accepted.socket);
                }
                *of != token
            });
        }
        while let Some(index) = self.queued.iter().position(|(listener, _)| *listener == token) {
            left.extend(self.queued.remove(index).map(|(_, accepted)| accepted.socket));
        }
        left.into_iter().for_each(|socket| self.discard(socket));
        self.inner.submit(token, Operation::Close { reset })
    }

    /// Closes a stream that the wrapped driver has accepted and the loop has not.
    fn discard(&mut self, socket: Socket) {
        // Dropping a descriptor closes it.
        if let Socket::Simulated(_) = socket {
            self.inner.submit(NO_TOKEN, Operation::Adopt(socket));
            self.inner.submit(NO_TOKEN, Operation::Close { reset: true });
        }
    }
}

impl Driver for Shim {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Listen(_) | Operation::Adopt(_) => self.register(token, operation),
            Operation::Connect { .. } => self.connect(token, operation),
            Operation::Send { queue, bytes_max } => self.send(token, queue, bytes_max),
            Operation::Close { reset } => self.close(token, reset),
            Operation::Accept(true) => {
                while let Some(accepted) = self.accept(token) {
                    let failed = matches!(accepted.1, Completion::Accepted(Err(_)));
                    self.postpone(token, accepted.1);
                    if failed {
                        break;
                    }
                }
                self.inner.submit(token, operation)
            }
            operation => self.inner.submit(token, operation),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = timeout;
        if self.takes_effect(SystemCall::Wait) {
            if !self.plan.error.is_retried() {
                return Err(self.plan.error.to_io_error());
            }
            // An interrupted wait returns without events.
            timeout = Some(Duration::ZERO);
        }
        self.due.append(&mut self.later);
        let busy = !self.due.is_empty();
        self.inner.wait(if busy { Some(Duration::ZERO) } else { timeout })
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        loop {
            if let Some(due) = self.due.pop_front() {
                return Some(due);
            }
            let (token, completion) = self.inner.next(class)?;
            if token == NO_TOKEN {
                continue;
            }
            if let Some(passed) = self.pass(token, completion) {
                return Some(passed);
            }
        }
    }

    fn has_ready(&self) -> bool {
        self.inner.has_ready()
    }

    fn has_input(&mut self, token: Token) -> bool {
        !self.due.is_empty() || !self.later.is_empty() || self.inner.has_input(token)
    }

    fn receive_rest(&mut self, token: Token) -> Option<Slice> {
        // Bytes that are delayed here come first.
        let is_alone = self.due.is_empty() && self.later.is_empty();
        if is_alone { self.inner.receive_rest(token) } else { None }
    }

    fn pause_receives(&mut self, pause: bool) {
        self.inner.pause_receives(pause);
    }

    fn watch_end(&mut self, token: Token) {
        self.inner.watch_end(token);
    }

    fn note_work(&mut self, token: Token) {
        self.inner.note_work(token);
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        self.inner.hint_receive(token, hint);
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        self.inner.unacknowledged(token)
    }

    fn is_sending(&self, token: Token) -> bool {
        self.inner.is_sending(token)
    }

    fn give_back(&mut self, batch: Vec<Datagram>) {
        self.inner.give_back(batch);
    }

    fn datagram_drops(&self, token: Token) -> u64 {
        self.inner.datagram_drops(token)
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn system_time(&self) -> SystemTime {
        self.inner.system_time()
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        self.inner.address(token, side)
    }

    fn credentials(&self, token: Token) -> io::Result<Credentials> {
        self.inner.credentials(token)
    }

    fn set_membership(&mut self, token: Token, membership: &Membership) -> io::Result<()> {
        self.inner.set_membership(token, membership)
    }

    fn keep_descriptors(&mut self, token: Token, descriptors_max: u8) -> io::Result<()> {
        self.inner.keep_descriptors(token, descriptors_max)
    }

    fn take_descriptors(&mut self, token: Token) -> PassedDescriptors {
        self.inner.take_descriptors(token)
    }

    fn send_descriptors(&mut self, token: Token, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.inner.send_descriptors(token, bytes, descriptors)
    }
}

impl std::fmt::Debug for Shim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shim").field("plan", &self.plan).field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// The owner of discarded streams in the wrapped driver. No loop has a slot of this number.
const NO_TOKEN: Token = Token { slot: u32::MAX - 1, generation: u32::MAX };

// Error numbers of Linux, the same on all of its architectures that we support.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ETIMEDOUT: i32 = 110;
