//! `Remote`: reaching a connection from another thread.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_sys::Token;

use crate::group::Member;
use crate::mailbox::{LoopMessage, Mailbox, MailboxError};

/// A handle to one connection, for any thread. A post arrives as [`Event::Posted`](crate::Event::Posted), in order per
/// sender.
///
/// It is the only way from a handler to another connection, on its own loop too: a direct call would re-enter the loop.
///
/// ```no_run
/// # fn example(remote: tidegate::Remote<String>) {
/// if remote.post("broadcast".to_owned()).is_err() {
///     println!("that connection is gone");
/// }
/// # }
/// ```
pub struct Remote<P> {
    target: Arc<RemoteTarget>,
    post: PhantomData<fn(P)>,
}

impl<P: Send + 'static> Remote<P> {
    /// Posts to the connection. A message that is under way when the connection goes, or switches to a handler with
    /// another [`Post`](crate::Handler::Post), is dropped.
    ///
    /// # Errors
    /// [`PostError`] with the post.
    pub fn post(&self, post: P) -> Result<(), PostError<P>> {
        let RemoteTarget { mailbox, token, gone } = &*self.target;
        if gone.load(Ordering::Relaxed) {
            return Err(PostError::Closed(post));
        }
        let message = LoopMessage::Post { token: *token, post: Box::new(post) };
        mailbox.send(message).map_err(|refused| match refused {
            MailboxError::Ended(message) => PostError::Closed(message.into_post()),
            MailboxError::Full(message) => PostError::Full(message.into_post()),
        })
    }

    /// Whether the connection is gone, as far as its loop has reported.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.target.gone.load(Ordering::Relaxed)
    }
}

impl<P> Remote<P> {
    /// Identifies the connection for groups: [`Group::send_except`](crate::Group::send_except),
    /// [`Group::join_with`](crate::Group::join_with).
    #[must_use]
    pub fn member(&self) -> Member {
        Member::new(&self.target.mailbox, self.target.token)
    }
}

impl<P> Clone for Remote<P> {
    fn clone(&self) -> Self {
        Self { target: self.target.clone(), post: PhantomData }
    }
}

/// A connection as other threads know it.
struct RemoteTarget {
    mailbox: Arc<Mailbox>,
    token: Token,
    gone: AtomicBool,
}

/// The connections of a loop that have a `Remote`. The others pay nothing for it.
#[derive(Default)]
pub(crate) struct RemoteTargets(BTreeMap<Token, Arc<RemoteTarget>>);

impl RemoteTargets {
    /// A handle to a connection that is there.
    pub(crate) fn remote<P>(&mut self, mailbox: &Arc<Mailbox>, token: Token) -> Remote<P> {
        let target = self.0.entry(token).or_insert_with(|| {
            Arc::new(RemoteTarget { mailbox: mailbox.clone(), token, gone: AtomicBool::new(false) })
        });
        Remote { target: target.clone(), post: PhantomData }
    }

    /// A connection is gone: its handles report that from now on.
    #[inline]
    pub(crate) fn forget(&mut self, token: Token) {
        if !self.0.is_empty()
            && let Some(target) = self.0.remove(&token)
        {
            target.gone.store(true, Ordering::Relaxed);
        }
    }
}

impl<P> fmt::Debug for Remote<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}/{})", self.target.token.slot, self.target.token.generation)
    }
}

/// Why something was not posted; it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError<P> {
    /// The connection is gone, or its loop has ended.
    Closed(P),
    /// A million messages wait for the loop already: it does not keep up. Later there may be room.
    Full(P),
}

impl<P> fmt::Display for PostError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "the connection is closed",
            Self::Full(_) => "too many messages wait for the event loop",
        })
    }
}

impl<P: fmt::Debug> std::error::Error for PostError<P> {}
