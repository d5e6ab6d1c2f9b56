//! `MailboxFiller`: fills the mailbox of a loop, so that a test sees wake-ups that find no room.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_buffer::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Client, Context, Handler, Outcome, Remote};

/// A connection whose only use is to post to the loop of this thread.
pub struct MailboxFiller(Remote<()>);

impl MailboxFiller {
    /// Connects to any server that keeps a silent connection.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn connect(target: &Client) -> Self {
        let remote = Rc::default();
        target.connect_with(Raw, Recorder(Rc::clone(&remote))).await.expect("a connection");
        Self(remote.take().expect("the connection is open"))
    }

    /// Fills the mailbox. The loop empties it in its next turn.
    pub fn fill(&self) {
        while self.0.post(()).is_ok() {}
    }
}

/// Keeps the way to its connection.
struct Recorder(Rc<RefCell<Option<Remote<()>>>>);

impl Handler<Raw> for Recorder {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Raw, ()>) -> Outcome<Raw> {
        *self.0.borrow_mut() = Some(cx.remote());
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw, ()>) -> Outcome<Raw> {
        Outcome::Continue
    }
}
