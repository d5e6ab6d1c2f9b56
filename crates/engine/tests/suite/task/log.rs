//! The log line of a task that panics.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tidegate_engine::task;
use tracing::Dispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::task::support::{event_loop, turns};

/// Collects the messages of events.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line(&mut self.0.lock().expect("no thread panics here")));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            writeln!(self.0, "{value:?}").expect("a string has room");
        }
    }
}

#[test]
fn a_task_that_panics_is_logged() {
    // With only one subscriber in the process, tracing asks the thread that reaches a call site first whether it logs, and
    // that may be the thread of another test. With two it asks all subscribers.
    let _second = Dispatch::new(Lines::default());
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let mut event_loop = event_loop();
        event_loop.spawn(async {
            drop(task::spawn(async { panic!("on purpose") }));
        });
        turns(&mut event_loop, 1);
    });
    assert_eq!(*lines.0.lock().expect("no thread panics here"), "task panicked\n");
}
