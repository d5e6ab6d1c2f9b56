//! `Shim`: a driver around any other, in which one call after the other goes wrong.
//!
//! It stands where a kernel stands for the loop: what it lets fail is what a driver may tell of a kernel that is out of
//! descriptors, out of memory, interrupted, or whose peer is gone. What the driver beneath did meanwhile is kept where
//! a kernel would keep it, in the queue of a listener, say, or undone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::Outbound;
use tidegate_sys::{Accepted, Address, Class, Completion, Driver, Operation, Side, Socket, Token, Waker};

/// What a driver asks of a system, one kind of call after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Taking a connection out of a listener's queue.
    Accept,
    /// Receiving bytes.
    Receive,
    /// Sending bytes out of memory.
    Send,
    /// Sending bytes of a file.
    SendFile,
    /// The end of connecting.
    Connect,
    /// Taking a socket over.
    Register,
    /// Waiting for something to happen.
    Wait,
    /// Making a socket, to connect with it.
    Socket,
}

impl Call {
    /// Whether this can happen to it in a way that is noticed: a short count is one of bytes, and a call that is made only
    /// once, to make or to register a socket, is not told to try again.
    #[must_use]
    pub const fn meets(self, trouble: InjectedError) -> bool {
        match trouble {
            InjectedError::Short => matches!(self, Self::Receive | Self::Send | Self::SendFile),
            InjectedError::Errno(EINTR | EAGAIN) => !matches!(self, Self::Register | Self::Socket),
            InjectedError::Errno(_) => true,
        }
    }

    /// All there are.
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

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedError {
    /// It fails with an error of the system. Interrupted, or told to try again, it is tried again in the next turn, as
    /// drivers do.
    Errno(i32),
    /// It does one byte of its work.
    Short,
}

impl InjectedError {
    /// What a system answers when it cannot do what it was asked, and a short count.
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

    fn error(self) -> io::Error {
        match self {
            Self::Errno(errno) => io::Error::from_raw_os_error(errno),
            Self::Short => io::ErrorKind::WouldBlock.into(),
        }
    }

    /// The call is made again later, and nobody hears of it.
    const fn passes(self) -> bool {
        matches!(self, Self::Errno(EINTR | EAGAIN) | Self::Short)
    }
}

/// Which calls meet with trouble.
#[derive(Debug, Clone, Copy)]
pub struct ShimPlan {
    /// What kind of call.
    pub call: Call,
    /// The first that does, counted from one.
    pub first: u64,
    /// How many do, one after the other.
    pub count: u64,
    /// What becomes of them.
    pub trouble: InjectedError,
}

/// The driver. [`Host::station_over`](crate::network::Host::station_over) puts it beneath a loop of a simulated network.
///
/// ```
/// use std::time::Duration;
/// use tidegate_codec::framing::Lines;
/// use tidegate_engine::{Channel, Client, Limits};
/// use tidegate_testkit::network::Network;
/// use tidegate_testkit::shim::{Call, InjectedError, Shim, ShimPlan};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// // The first three attempts to accept find no descriptor.
/// let plan = ShimPlan { call: Call::Accept, first: 1, count: 3, trouble: InjectedError::Errno(24) };
/// let network = Network::new(7);
/// let server = network.host("10.0.0.1").station_over(|driver| Box::new(Shim::new(driver, plan)));
/// let client = network.host("10.0.0.2").station();
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
    beneath: Box<dyn Driver>,
    waker: Waker,
    plan: ShimPlan,
    /// Calls of the planned kind so far.
    calls: u64,
    struck: Rc<Cell<u64>>,
    /// What is told before anything else.
    told: VecDeque<(Token, Completion)>,
    /// What is told in the next turn.
    later: VecDeque<(Token, Completion)>,
    /// Streams that the kernel would have kept in its queue.
    queued: VecDeque<(Token, Accepted)>,
    /// Who was told of a failure, and hears nothing more but the last word.
    failed: Vec<Token>,
}

impl Shim {
    /// A driver that does what the one beneath does, except for the calls that are planned otherwise.
    #[must_use]
    pub fn new(beneath: Box<dyn Driver>, plan: ShimPlan) -> Self {
        let (told, later, queued) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let waker = beneath.waker();
        Self { beneath, waker, plan, calls: 0, struck: Rc::default(), told, later, queued, failed: Vec::new() }
    }

    /// How often a call has met with trouble, also when the loop has the driver.
    #[must_use]
    pub fn struck(&self) -> Rc<Cell<u64>> {
        self.struck.clone()
    }

    /// Counts a call, and says whether it is one of those.
    fn strikes(&mut self, call: Call) -> bool {
        let is_planned = self.plan.call == call;
        self.calls += u64::from(is_planned);
        let last = self.plan.first.saturating_add(self.plan.count);
        let strikes = is_planned && (self.plan.first..last).contains(&self.calls);
        self.struck.set(self.struck.get() + u64::from(strikes));
        strikes
    }

    fn fail(&mut self, token: Token, completion: fn(io::Error) -> Completion) -> Completion {
        self.failed.push(token);
        completion(self.plan.trouble.error())
    }

    /// What comes of a completion of the driver beneath, if anything is told now.
    fn pass(&mut self, token: Token, completion: Completion) -> Option<(Token, Completion)> {
        if self.failed.contains(&token) {
            return None;
        }
        let trouble = self.plan.trouble;
        let completion = match completion {
            Completion::Accepted(Ok(accepted)) => {
                // Those that came before are accepted first.
                self.queued.push_back((token, accepted));
                return self.accept(token);
            }
            Completion::Received(bytes) if !bytes.is_empty() && self.strikes(Call::Receive) => match trouble {
                InjectedError::Short if bytes.len() > 1 => {
                    self.told.push_back((token, Completion::Received(bytes.slice(1..))));
                    Completion::Received(bytes.slice(..1))
                }
                trouble if trouble.passes() => {
                    // The scratch is the driver's own: what is told later must not keep it.
                    self.put_off(token, Completion::Received(bytes.detach()));
                    return None;
                }
                _ => self.fail(token, Completion::Failed),
            },
            Completion::Connected(Ok(())) if self.strikes(Call::Connect) => {
                if trouble.passes() {
                    self.put_off(token, Completion::Connected(Ok(())));
                    return None;
                }
                self.fail(token, |error| Completion::Connected(Err(error)))
            }
            completion => completion,
        };
        // Nothing overtakes what is late.
        if self.is_late(token) {
            self.put_off(token, completion);
            return None;
        }
        Some((token, completion))
    }

    /// Tells something in the next turn, of which there must be one.
    fn put_off(&mut self, token: Token, completion: Completion) {
        self.later.push_back((token, completion));
        self.waker.wake();
    }

    fn is_late(&self, token: Token) -> bool {
        self.later.iter().any(|(late, _)| *late == token)
    }

    /// Accepts the next of those that wait in a listener's queue.
    fn accept(&mut self, listener: Token) -> Option<(Token, Completion)> {
        let index = self.queued.iter().position(|(token, _)| *token == listener)?;
        if self.strikes(Call::Accept) && self.plan.trouble != InjectedError::Short {
            if !self.plan.trouble.passes() {
                return Some((listener, Completion::Accepted(Err(self.plan.trouble.error()))));
            }
            let (_, accepted) = self.queued.remove(index)?;
            self.put_off(listener, Completion::Accepted(Ok(accepted)));
            return None;
        }
        let (_, accepted) = self.queued.remove(index)?;
        Some((listener, Completion::Accepted(Ok(accepted))))
    }

    fn register(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if !self.strikes(Call::Register) || self.plan.trouble.passes() {
            return self.beneath.submit(token, operation);
        }
        self.beneath.submit(token, operation);
        self.beneath.submit(token, Operation::Close { reset: true });
        // Its token is free again, so nothing may be told of it, not even the last word. Tokens do not come back.
        self.failed.push(token);
        Some(Completion::Failed(self.plan.trouble.error()))
    }

    fn send(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> Option<Completion> {
        let call = if queue.starts_with_file() { Call::SendFile } else { Call::Send };
        if !queue.has_flushed() || !self.strikes(call) {
            return self.beneath.submit(token, Operation::Send { queue, bytes_max });
        }
        match self.plan.trouble {
            InjectedError::Short => self.beneath.submit(token, Operation::Send { queue, bytes_max: 1 }),
            trouble if trouble.passes() => {
                self.put_off(token, Completion::Sent(Ok(0)));
                None
            }
            _ => Some(self.fail(token, |error| Completion::Sent(Err(error)))),
        }
    }

    fn connect(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if self.strikes(Call::Socket) && !self.plan.trouble.passes() {
            return Some(self.fail(token, |error| Completion::Connected(Err(error))));
        }
        let completion = self.beneath.submit(token, operation)?;
        self.pass(token, completion).map(|(_, completion)| completion)
    }

    /// Lets go of whatever is still to be told of a socket.
    fn close(&mut self, token: Token, reset: bool) -> Option<Completion> {
        self.failed.retain(|failed| *failed != token);
        let mut left = Vec::new();
        for told in [&mut self.told, &mut self.later] {
            told.retain_mut(|(of, completion)| {
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
        self.beneath.submit(token, Operation::Close { reset })
    }

    /// Closes a stream that was accepted beneath, and here was not.
    fn discard(&mut self, socket: Socket) {
        // A descriptor is closed when it is dropped.
        if let Socket::Simulated(_) = socket {
            self.beneath.submit(NOBODY, Operation::Adopt(socket));
            self.beneath.submit(NOBODY, Operation::Close { reset: true });
        }
    }
}

impl Driver for Shim {
    fn name(&self) -> &'static str {
        self.beneath.name()
    }

    fn waker(&self) -> Waker {
        self.beneath.waker()
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
                    self.put_off(token, accepted.1);
                    if failed {
                        break;
                    }
                }
                self.beneath.submit(token, operation)
            }
            operation => self.beneath.submit(token, operation),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = timeout;
        if self.strikes(Call::Wait) {
            if !self.plan.trouble.passes() {
                return Err(self.plan.trouble.error());
            }
            // Interrupted, it comes back without anything.
            timeout = Some(Duration::ZERO);
        }
        self.told.append(&mut self.later);
        let busy = !self.told.is_empty();
        self.beneath.wait(if busy { Some(Duration::ZERO) } else { timeout })
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            let (token, completion) = self.beneath.next(class)?;
            if token == NOBODY {
                continue;
            }
            if let Some(passed) = self.pass(token, completion) {
                return Some(passed);
            }
        }
    }

    fn has_ready(&self) -> bool {
        self.beneath.has_ready()
    }

    fn has_input(&mut self, token: Token) -> bool {
        !self.told.is_empty() || !self.later.is_empty() || self.beneath.has_input(token)
    }

    fn pause_receives(&mut self, hold: bool) {
        self.beneath.pause_receives(hold);
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        self.beneath.unacknowledged(token)
    }

    fn is_sending(&self, token: Token) -> bool {
        self.beneath.is_sending(token)
    }

    fn now(&self) -> Instant {
        self.beneath.now()
    }

    fn system_time(&self) -> SystemTime {
        self.beneath.system_time()
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        self.beneath.address(token, side)
    }
}

impl std::fmt::Debug for Shim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shim").field("plan", &self.plan).field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// No loop has a slot of this number; what has no owner here has it beneath.
const NOBODY: Token = Token { slot: u32::MAX - 1, generation: u32::MAX };

// Numbers of Linux, the same on all its machines.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ETIMEDOUT: i32 = 110;
