//! `Remote`: reaching a connection from another thread; and the loop's mailbox behind it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_sys::{Token, Waker};

use crate::limits::LETTERS_MAX;

/// A handle to one connection, for any thread. What is posted arrives as
/// [`Event::Posted`](crate::Event::Posted), in order per sender.
///
/// ```no_run
/// # fn example(remote: tidegate_engine::Remote<String>) {
/// if remote.post("news".to_owned()).is_err() {
///     println!("the loop of that connection has ended");
/// }
/// # }
/// ```
pub struct Remote<P> {
    mailbox: Arc<Mailbox>,
    token: Token,
    post: PhantomData<fn(P)>,
}

impl<P: Send + 'static> Remote<P> {
    pub(crate) fn new(mailbox: Arc<Mailbox>, token: Token) -> Self {
        Self { mailbox, token, post: PhantomData }
    }

    /// Posts to the connection. If that is gone by the time the letter arrives, or has switched to a handler with
    /// another [`Post`](crate::Handler::Post), the letter is dropped.
    ///
    /// # Errors
    /// [`PostError`] with what was posted.
    pub fn post(&self, post: P) -> Result<(), PostError<P>> {
        let letter = Letter::Post { token: self.token, post: Box::new(post) };
        self.mailbox.send(letter).map_err(|refused| match refused {
            Refused::Ended(letter) => PostError::Gone(letter.into_post()),
            Refused::Full(letter) => PostError::Full(letter.into_post()),
        })
    }
}

impl<P> Clone for Remote<P> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone(), token: self.token, post: PhantomData }
    }
}

impl<P> fmt::Debug for Remote<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}/{})", self.token.slot, self.token.generation)
    }
}

/// Why something was not posted; it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError<P> {
    /// The loop has ended.
    Gone(P),
    /// A million letters wait for the loop already: it does not keep up. Later there may be room.
    Full(P),
}

impl<P> fmt::Display for PostError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone(_) => "the event loop has ended",
            Self::Full(_) => "too many letters wait for the event loop",
        })
    }
}

impl<P: fmt::Debug> std::error::Error for PostError<P> {}

/// What other threads send to a loop.
pub(crate) enum Letter {
    /// To one connection.
    Post { token: Token, post: Box<dyn Any + Send> },
    /// Stop accepting, let connections finish, and end after so long.
    Drain(Duration),
}

impl Letter {
    /// What was posted, from the letter that it was just put in.
    fn into_post<P: 'static>(self) -> P {
        match self {
            Self::Post { post, .. } => *post.downcast().expect("a mailbox refuses the letter that it was given"),
            Self::Drain(_) => unreachable!("a mailbox refuses the letter that it was given"),
        }
    }
}

/// Why a mailbox did not take a letter.
pub(crate) enum Refused {
    Ended(Letter),
    Full(Letter),
}

/// Where letters wait. A loop is woken by the first of them only.
pub(crate) struct Mailbox {
    /// `None` once the loop has ended.
    letters: Mutex<Option<Vec<Letter>>>,
    notified: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { letters: Mutex::new(Some(Vec::new())), notified: AtomicBool::new(false), waker })
    }

    pub(crate) fn send(&self, letter: Letter) -> Result<(), Refused> {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *letters {
            // However many letters wait, the loop has to hear that it is to end.
            Some(letters) if letters.len() < LETTERS_MAX || matches!(letter, Letter::Drain(_)) => letters.push(letter),
            Some(_) => return Err(Refused::Full(letter)),
            None => return Err(Refused::Ended(letter)),
        }
        drop(letters);
        // The letter is in before the flag is set, and the loop clears the flag before it looks.
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
        Ok(())
    }

    /// Whether there is something to collect. What comes later wakes the loop.
    pub(crate) fn has_letters(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Takes everything that is there.
    pub(crate) fn collect(&self) -> Vec<Letter> {
        if !self.notified.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes no more letters. Those that wait are dropped by the caller, outside the lock.
    pub(crate) fn end(&self) -> Option<Vec<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}
