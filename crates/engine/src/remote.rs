//! `Remote`: reaching a connection from another thread.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_sys::Token;

use crate::mailbox::{Letter, Mailbox, Refused};

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
