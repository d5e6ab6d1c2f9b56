//! Futures that a handler waits for.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::task::{self, HandlerTask};
use tidegate_engine::{Context, Event, Handler, Outcome};
use tidegate_testkit::Embedded;

/// Counts the values of this type that are alive.
struct Alive(Rc<Cell<i32>>);

impl Alive {
    fn new(count: &Rc<Cell<i32>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Answers each line when a future is complete; meanwhile it decodes no other.
#[derive(Default)]
struct Waits {
    task: Option<HandlerTask<String>>,
    alive: Rc<Cell<i32>>,
}

async fn answer(line: String) -> String {
    match &*line {
        "sleep" => task::sleep(Duration::from_secs(1)).await,
        "never" => std::future::pending().await,
        "panic" => panic!("as the line wants"),
        "later" => task::spawn(async {}).await.expect("it neither panics nor is cancelled"),
        _ => {}
    }
    line
}

impl Handler<Lines> for Waits {
    type Post = ();

    fn message(&mut self, line: tidegate_codec::Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let line = String::from_utf8_lossy(&line).into_owned();
        if line == "stop" {
            return Outcome::Close;
        }
        cx.pause();
        let alive = Alive::new(&self.alive);
        self.task = Some(cx.spawn(async move {
            let _alive = alive;
            answer(line).await
        }));
        cx.deadline_after(Duration::from_secs(5));
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let answer = match event {
            Event::TaskFinished => self.task.take().and_then(|mut task| task.take_output()).unwrap_or("none".into()),
            Event::Deadline => {
                self.task = None;
                "late".into()
            }
            _ => return event.by_default(cx),
        };
        cx.deadline(None);
        cx.resume();
        cx.send(answer.into()).into()
    }
}

#[test]
fn answers_come_in_the_order_of_the_lines_however_many_there_are() {
    for word in ["now", "later"] {
        let mut pipe = Embedded::new(Lines::new(), Waits::default());
        let lines: String = (0..300).map(|number| format!("{word} {number}\n{word}\n")).collect();
        pipe.receive(lines.as_bytes());
        assert_eq!(String::from_utf8_lossy(&pipe.take_written()), lines);
    }
}

#[test]
fn a_future_that_waits_for_a_timer_is_continued_when_it_fires() {
    let mut pipe = Embedded::new(Lines::new(), Waits::default());
    pipe.receive(b"now\nsleep\nnow\n");
    assert_eq!(pipe.take_written(), b"now\n", "earlier messages do not wait");
    pipe.receive(b"later\n");
    pipe.advance(Duration::from_millis(999));
    assert_eq!(pipe.take_written(), b"");
    pipe.advance(Duration::from_millis(2));
    assert_eq!(pipe.take_written(), b"sleep\nnow\nlater\n");
}

#[test]
fn a_future_is_dropped_with_its_connection() {
    let ends: [fn(&mut Embedded<()>); 2] = [Embedded::reset, |pipe| pipe.drain(Duration::ZERO)];
    for end in ends {
        let handler = Waits::default();
        let alive = handler.alive.clone();
        let mut pipe = Embedded::new(Lines::new(), handler);
        pipe.receive(b"never\n");
        assert_eq!(alive.get(), 1);
        end(&mut pipe);
        pipe.run();
        assert!(pipe.is_closed());
        assert_eq!(alive.get(), 0);
    }
}

#[test]
fn a_future_is_dropped_with_its_task() {
    let handler = Waits::default();
    let alive = handler.alive.clone();
    let mut pipe = Embedded::new(Lines::new(), handler);
    pipe.receive(b"never\nnow\n");
    pipe.advance(Duration::from_millis(5_001));
    assert_eq!(pipe.take_written(), b"late\nnow\n");
    assert_eq!(alive.get(), 0);
}

#[test]
fn the_handler_learns_of_a_future_that_panics() {
    let mut pipe = Embedded::new(Lines::new(), Waits::default());
    pipe.receive(b"panic\nnow\n");
    assert_eq!(pipe.take_written(), b"none\nnow\n");
    assert_eq!(pipe.counts().tasks_panicked, 1);
}

#[test]
fn a_connection_closes_behind_the_answer_it_waited_for() {
    let mut pipe = Embedded::new(Lines::new(), Waits::default());
    pipe.receive(b"now\nlater\nstop\nnow\n");
    assert_eq!(pipe.take_written(), b"now\nlater\n");
    assert!(pipe.is_write_closed());
}

/// Answers lines in their order, each by a future of its own.
#[derive(Default)]
struct SideBySide(VecDeque<HandlerTask<String>>);

impl Handler<Lines> for SideBySide {
    type Post = ();

    fn message(&mut self, line: tidegate_codec::Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.0.push_back(cx.spawn(answer(String::from_utf8_lossy(&line).into_owned())));
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if event != Event::TaskFinished {
            return event.by_default(cx);
        }
        while self.0.front().is_some_and(|first| first.is_finished())
            && let Some(mut first) = self.0.pop_front()
        {
            if let Err(error) = cx.send(first.take_output().unwrap_or("none".into()).into()) {
                return Outcome::fail(error);
            }
            assert!(first.is_finished(), "also without its output");
        }
        Outcome::Continue
    }
}

#[test]
fn a_handler_finds_which_of_its_futures_are_complete() {
    let mut pipe = Embedded::new(Lines::new(), SideBySide::default());
    pipe.receive(b"now\nsleep\nlater\npanic\nnow\n");
    assert_eq!(pipe.take_written(), b"now\n");
    pipe.advance(Duration::from_millis(1_001));
    assert_eq!(pipe.take_written(), b"sleep\nlater\nnone\nnow\n");
}
