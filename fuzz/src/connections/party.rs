//! What the two sides of a connection do: a server that echoes in this manner or that, and a client with its steps.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::Payload;
use tidegate_codec::{Codec, Slice};
use tidegate_engine::{Channel, ChannelError, Client, CloseReason, Context, Event, Handler, Limits, Outcome, task};
use tidegate_sys::Address;

use crate::choices::Choices;

/// How a server treats a connection, once so many bytes have come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manners {
    act: Act,
    after: usize,
    pause: Duration,
}

/// What happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    /// With every message from then on.
    Pause,
    Close,
    Fail,
    /// It says no more, and hears the peer out.
    HalfClose,
    /// It stops reading for good, and closes some time later.
    Sulk,
}

impl Manners {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        use Act::*;
        let act = *choices.pick(&[Nothing, Pause, Close, Fail, HalfClose, Sulk]);
        Self { act, after: choices.length(4096), pause: Duration::from_millis(choices.length(4096) as u64) }
    }
}

/// Sends back whatever comes, in its manner.
pub(super) struct Echo {
    manners: Manners,
    come: usize,
    /// How often it was told of its end.
    told: Rc<Cell<u32>>,
}

impl Echo {
    pub(super) fn new(manners: Manners, told: Rc<Cell<u32>>) -> Self {
        Self { manners, come: 0, told }
    }
}

impl<C: Codec<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        assert_eq!(self.told.get(), 0, "a message after the end");
        self.come += bytes.len();
        if self.come > self.manners.after {
            match self.manners.act {
                Act::Nothing => {}
                Act::Pause | Act::Sulk => {
                    cx.pause();
                    cx.deadline_after(self.manners.pause);
                }
                Act::Close => return Outcome::Close,
                Act::Fail => return Outcome::fail("as it was told"),
                Act::HalfClose => {
                    cx.shutdown_write();
                    return Outcome::Continue;
                }
            }
        }
        cx.send(bytes.into()).into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        assert_eq!(self.told.get(), 0, "an event after the end");
        if event == Event::Deadline {
            if self.manners.act == Act::Sulk {
                return Outcome::Close;
            }
            cx.resume();
        }
        event.by_default(cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        assert!(!reason.to_string().is_empty(), "an end without a word: {reason:?}");
        self.told.set(self.told.get() + 1);
    }
}

/// The same as a task.
pub(super) async fn echo<C>(mut channel: Channel<C>, manners: Manners) -> Result<(), Box<dyn Error>>
where
    C: Codec<In = Slice, Out = Payload>,
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
                Act::Fail => return Err("as it was told".into()),
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

/// What a client does next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Sends so many bytes as soon as there is room.
    Send(usize),
    /// Sends so many, room or not.
    Push(usize),
    /// Sends so many, and waits until they are with the kernel.
    Flush(usize),
    /// Receives once, or gives up after some time.
    Receive,
    Sleep(Duration),
    /// Does not read for some time, though somebody waits.
    Pause(Duration),
    /// Says no more.
    HalfClose,
    Close,
    /// Lets go of it.
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

/// What a client has said and heard.
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

    /// Goes through its steps, then hears the server out.
    pub(super) async fn run<C>(&self, address: Address, limits: Limits, codec: C, steps: &[Step])
    where
        C: Codec<In = Slice, Out = Payload>,
    {
        if let Ok(channel) = Client::at(address).limits(limits).connect(codec).await
            && let Err(error) = self.go_through(channel, steps).await
        {
            // That something breaks is as good an end as any, if it is told.
            let mut cause: Option<&dyn Error> = Some(&error);
            while let Some(error) = cause {
                assert!(!error.to_string().is_empty(), "an error without a word: {error:?}");
                cause = error.source();
            }
        }
        self.is_over.set(true);
    }

    async fn go_through<C>(&self, mut channel: Channel<C>, steps: &[Step]) -> Result<(), ChannelError>
    where
        C: Codec<In = Slice, Out = Payload>,
    {
        for step in steps {
            match *step {
                Step::Send(length) => {
                    channel.ready().await?;
                    channel.send(self.next(length))?;
                }
                Step::Push(length) => {
                    // What is refused for want of room was not sent.
                    if channel.send(self.next(length)).is_err() {
                        self.sent.set(self.sent.get() - length);
                    }
                }
                Step::Flush(length) => {
                    let mark = channel.send(self.next(length))?;
                    channel.flushed(mark).await?;
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

    /// Receives once; says whether there may be more.
    async fn receive<C>(&self, channel: &mut Channel<C>) -> Result<bool, ChannelError>
    where
        C: Codec<In = Slice, Out = Payload>,
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

    /// The byte at this place of what it sends: all are different for a while, and from those of other clients.
    fn byte(&self, at: usize) -> u8 {
        (at + at / 255 + self.number * 83) as u8
    }

    /// What has come is the beginning of what was sent.
    pub(super) fn check(&self) {
        let come = self.come.borrow();
        assert!(come.len() <= self.sent.get(), "{} bytes came back of {}", come.len(), self.sent.get());
        let wrong = come.iter().enumerate().find(|(at, byte)| **byte != self.byte(*at));
        assert!(wrong.is_none(), "another byte came back: {wrong:?} of {}", come.len());
    }
}

/// The most that is sent at once.
const SEND_BYTES_MAX: usize = 4096;

/// A server may sulk.
const RECEIVE_PATIENCE: Duration = Duration::from_secs(40);
