//! The service as a handler, which receives a callback for each request.

use std::time::Duration;

use tidegate::{Context, Event, Handler, Outcome, blocking};

use crate::office::Office;
use crate::protocol::{Answer, Request, Tides};

/// The context of a clerk.
type Cx<'a> = Context<'a, Tides, Saved>;

/// Serves one connection.
pub(crate) struct Clerk {
    office: Office,
    /// While a list is sent: the station that was sent last, if one was.
    listed: Option<Option<Box<str>>>,
    watches: bool,
}

impl Clerk {
    pub(crate) fn new(office: Office) -> Self {
        Self { office, listed: None, watches: false }
    }

    /// Something has happened: the peer has its time anew.
    fn stay(&self, cx: &mut Cx<'_>) {
        if self.watches {
            cx.deadline(None);
        } else {
            cx.deadline_after(IDLE_TIMEOUT);
        }
    }

    /// Sends as much of the list as the connection takes; the rest when it is writable again.
    fn list(&mut self, cx: &mut Cx<'_>) -> Outcome<Tides> {
        let Some(last) = &mut self.listed else { return Outcome::Continue };
        while cx.is_writable() {
            let Some((station, level)) = self.office.after(last.as_deref()) else {
                self.listed = None;
                cx.resume();
                return cx.send(Answer::Ok).into();
            };
            *last = Some(station.clone());
            if let Err(error) = cx.send(Answer::At { station, level }) {
                return Outcome::fail(error);
            }
        }
        Outcome::Continue
    }

    /// Lets another thread wait for the disk. No further request is taken until it has, so answers stay in order.
    fn save(&self, cx: &mut Cx<'_>) -> Outcome<Tides> {
        let (office, remote) = (self.office.clone(), cx.remote());
        cx.pause();
        // An error means that the connection is closed: it needs no result.
        let work = move || remote.post(Saved(office.save().is_ok()));
        blocking(work).detach().into()
    }
}

/// The answer of the disk: whether everything is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved(bool);

impl Handler<Tides> for Clerk {
    type Post = Saved;

    fn open(&mut self, cx: &mut Cx<'_>) -> Outcome<Tides> {
        self.stay(cx);
        Outcome::Continue
    }

    fn message(&mut self, request: Request, cx: &mut Cx<'_>) -> Outcome<Tides> {
        self.stay(cx);
        match request {
            Request::Get { station } => cx.send(self.office.get(station)).into(),
            Request::Set { station, level } => match self.office.set(station, level) {
                Ok(answer) => cx.send(answer).into(),
                Err(error) => Outcome::fail(error),
            },
            Request::Watch => {
                cx.join(self.office.watchers());
                self.watches = true;
                self.stay(cx);
                cx.send(Answer::Ok).into()
            }
            Request::List => {
                self.listed = Some(None);
                cx.pause();
                self.list(cx)
            }
            Request::Save => self.save(cx),
        }
    }

    fn event(&mut self, event: Event<Saved>, cx: &mut Cx<'_>) -> Outcome<Tides> {
        match event {
            Event::Writable => {
                self.stay(cx);
                self.list(cx)
            }
            Event::Posted(Saved(done)) => {
                cx.resume();
                cx.send(if done { Answer::Ok } else { Answer::Failed }).into()
            }
            Event::Deadline => Outcome::Close,
            other => other.by_default(cx),
        }
    }
}

/// The idle timeout of a peer that does not watch.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
