//! Both sides of a connection: an echo server with configurable behaviour, and a client with a list of steps.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::Payload;
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{Channel, ChannelError, Client, CloseReason, Context, Event, Handler, Limits, Outcome, task};
use tidegate_sys::Address;

use crate::choices::Choices;

/// The server's behaviour on a connection after `after` received bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manners {
    act: Act,
    after: usize,
    pause: Duration,
}

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    /// On every message from then on.
    Pause,
    Close,
    Fail,
    /// Sends no more, and reads to the end.
    HalfClose,
    /// Stops reading, and closes after a pause.
    Sulk,
}

impl Manners {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        use Act::*;
        let act = *choices.pick(&[Nothing, Pause, Close, Fail, HalfClose, Sulk]);
        Self { act, after: choices.length(4096), pause: Duration::from_millis(choices.length(4096) as u64) }
    }
}

/// Echoes every message, with this behaviour.
pub(super) struct Echo {
    manners: Manners,
    come: usize,
    /// The number of `closed` calls.
    closed: Rc<Cell<u32>>,
}

impl Echo {
    pub(super) fn new(manners: Manners, closed: Rc<Cell<u32>>) -> Self {
        Self { manners, come: 0, closed }
    }
}

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        assert_eq!(self.closed.get(), 0, "a message after `closed`");
        self.come += bytes.len();
        if self.come > self.manners.after {
            match self.manners.act {
                Act::Nothing => {}
                Act::Pause | Act::Sulk => {
                    cx.pause();
                    cx.deadline_after(self.manners.pause);
                }
                Act::Close => return Outcome::Close,
                Act::Fail => return Outcome::fail("as configured"),
                Act::HalfClose => {
                    cx.shutdown_write();
                    return Outcome::Continue;
                }
            }
        }
        cx.send(bytes.into()).into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        assert_eq!(self.closed.get(), 0, "an event after `closed`");
        if event == Event::Deadline {
            if self.manners.act == Act::Sulk {
                return Outcome::Close;
            }
            cx.resume();
        }
        event.by_default(cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        assert!(!reason.to_string().is_empty(), "a close reason without text: {reason:?}");
        self.closed.set(self.closed.get() + 1);
    }
}

/// The same as an async task.
pub(super) async fn echo<C>(mut channel: Channel<C>, manners: Manners) -> Result<(), Box<dyn Error>>
where
    C: Pipeline<In = Slice, Out = Payload>,
{
    let mut come = 0;
    while let Some(bytes) = channel.recv().await? {
        come += bytes.len();
        if come > manners.after {
            match manners.act {
                Act::Nothing => {}
                Act::Pause => task::sleep(manners.pause).await,
                Act::Sulk => {
                    task::sleep(manners.pause).await;
                    return Ok(());
                }
                Act::Close => return Ok(channel.close().await?),
                Act::Fail => return Err("as configured".into()),
                Act::HalfClose => {
                    channel.shutdown_write();
                    continue;
                }
            }
        }
        channel.ready().await?;
        channel.send(bytes.into()).map_err(ChannelError::from)?;
    }
    Ok(())
}

/// A step of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Sends so many bytes once the channel is ready.
    Send(usize),
    /// Sends so many bytes, ready or not.
    Push(usize),
    /// Sends so many bytes, and waits until the kernel has accepted them.
    Flush(usize),
    /// Receives once, with a timeout.
    Receive,
    Sleep(Duration),
    /// Pauses receives for some time.
    Pause(Duration),
    /// Shuts down the write half.
    HalfClose,
    Close,
    /// Drops the channel.
    Drop,
}

impl Step {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        let kind = choices.below(10);
        match kind {
            0 | 1 => Self::Send(choices.length(SEND_BYTES_MAX)),
            2 => Self::Push(choices.length(SEND_BYTES_MAX)),
            3 => Self::Flush(choices.length(SEND_BYTES_MAX)),
            4 => Self::Receive,
            5 => Self::Sleep(Duration::from_millis(choices.length(4096) as u64 * 2)),
            6 => Self::Pause(Duration::from_millis(choices.length(4096) as u64 * 2)),
            7 => Self::HalfClose,
            8 => Self::Close,
            _ => Self::Drop,
        }
    }
}

/// The bytes that a client has sent and received.
#[derive(Debug)]
pub(super) struct Exchange {
    number: usize,
    sent: Cell<usize>,
    come: RefCell<Vec<u8>>,
    is_over: Cell<bool>,
}

impl Exchange {
    pub(super) fn new(number: usize) -> Self {
        Self { number, sent: Cell::new(0), come: RefCell::default(), is_over: Cell::new(false) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Performs the steps, then reads to the end.
    pub(super) async fn run<C>(&self, address: Address, limits: Limits, codec: C, steps: &[Step])
    where
        C: Pipeline<In = Slice, Out = Payload>,
    {
        if let Ok(channel) = Client::at(address).limits(limits).connect(codec).await
            && let Err(error) = self.go_through(channel, steps).await
        {
            // An error is a valid outcome if it has a message.
            let mut cause: Option<&dyn Error> = Some(&error);
            while let Some(error) = cause {
                assert!(!error.to_string().is_empty(), "an error without text: {error:?}");
                cause = error.source();
            }
        }
        self.is_over.set(true);
    }

    async fn go_through<C>(&self, mut channel: Channel<C>, steps: &[Step]) -> Result<(), ChannelError>
    where
        C: Pipeline<In = Slice, Out = Payload>,
    {
        for step in steps {
            match *step {
                Step::Send(length) => {
                    channel.ready().await?;
                    channel.send(self.next(length))?;
                }
                Step::Push(length) => {
                    // A refused message was not sent.
                    if channel.send(self.next(length)).is_err() {
                        self.sent.set(self.sent.get() - length);
                    }
                }
                Step::Flush(length) => {
                    let position = channel.send(self.next(length))?;
                    channel.flushed(position).await?;
                }
                Step::Receive => {
                    if !self.receive(&mut channel).await? {
                        return Ok(());
                    }
                }
                Step::Sleep(time) => task::sleep(time).await,
                Step::Pause(time) => {
                    channel.pause();
                    task::sleep(time).await;
                    channel.resume();
                }
                Step::HalfClose => channel.shutdown_write(),
                Step::Close => return channel.close().await,
                Step::Drop => return Ok(()),
            }
        }
        channel.shutdown_write();
        while self.receive(&mut channel).await? {}
        Ok(())
    }

    /// Receives once, and returns whether there may be more.
    async fn receive<C>(&self, channel: &mut Channel<C>) -> Result<bool, ChannelError>
    where
        C: Pipeline<In = Slice, Out = Payload>,
    {
        let message = channel.recv().within(RECEIVE_PATIENCE).await?;
        if let Some(bytes) = &message {
            self.come.borrow_mut().extend_from_slice(bytes);
        }
        Ok(message.is_some())
    }

    fn next(&self, length: usize) -> Payload {
        let from = self.sent.replace(self.sent.get() + length);
        (from..from + length).map(|at| self.byte(at)).collect::<Vec<_>>().into()
    }

    /// The sent byte at this offset: different from its neighbours, and from those of other clients.
    fn byte(&self, at: usize) -> u8 {
        (at + at / 255 + self.number * 83) as u8
    }

    /// The received bytes are a prefix of the sent ones.
    pub(super) fn check(&self) {
        let come = self.come.borrow();
        assert!(come.len() <= self.sent.get(), "{} bytes came back of {}", come.len(), self.sent.get());
        let wrong = come.iter().enumerate().find(|(at, byte)| **byte != self.byte(*at));
        assert!(wrong.is_none(), "another byte came back: {wrong:?} of {}", come.len());
    }
}

/// The maximum length of a send.
const SEND_BYTES_MAX: usize = 4096;

/// Longer than the pauses of `Act::Sulk`.
const RECEIVE_PATIENCE: Duration = Duration::from_secs(40);
