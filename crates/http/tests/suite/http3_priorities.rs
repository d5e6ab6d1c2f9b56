//! Priorities of requests over HTTP/3 (RFC 9218): which response is complete first.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate::Channel;
use tidegate::framing::Raw;
use tidegate::http::{Config, Router};

use crate::support::http3_stage::{CONTROL, PRIORITY_UPDATE, SETTINGS, Stage, frame, receive, request};

/// The order in which three large responses are complete whose requests, in this order, have the fields. An update is sent
/// before the requests or behind them.
fn order(fields: [&'static str; 3], update: Option<(u8, &'static str, bool)>) -> Vec<usize> {
    let mut order = Vec::new();
    Stage::simulated(|stage| {
        let address = stage.serve(Config::new(), Router::new().get("/large", || vec![b'x'; 2_000_000]));
        let peer = stage.connect_silently(address);
        let done = Rc::<RefCell<Vec<usize>>>::default();
        let frame_of_update = update.map(|(stream, field, is_first)| {
            (frame(PRIORITY_UPDATE, &[&[stream][..], field.as_bytes()].concat()), is_first)
        });
        let mut control = {
            let (peer, early) = (peer.clone(), frame_of_update.clone().filter(|(_, is_first)| *is_first));
            let early = early.map(|(frame, _)| frame).unwrap_or_default();
            stage.task(async move { peer.open_uni(&[CONTROL, &frame(SETTINGS, b""), &early].concat()) })
        };
        let channels: Vec<Channel<Raw>> = stage.task(async move {
            let mut channels = Vec::new();
            for field in fields {
                let more: &[(&str, &str)] = if field.is_empty() { &[] } else { &[("priority", field)] };
                let mut channel = peer.open(&request("GET", "/large", more)).await;
                channel.shutdown_write();
                channels.push(channel);
            }
            if let Some((frame, false)) = frame_of_update {
                control.send(frame.into()).expect("room");
            }
            // It never ends.
            channels.push(control);
            channels
        });
        let mut channels = channels.into_iter();
        let mut tasks = Vec::new();
        for (number, mut channel) in channels.by_ref().take(3).enumerate() {
            let done = done.clone();
            tasks.push(stage.with(1, |event_loop| {
                event_loop.spawn(async move {
                    let received = receive(&mut channel).await;
                    assert_eq!((&*received.status, received.body.len()), ("200", 2_000_000));
                    done.borrow_mut().push(number);
                })
            }));
        }
        stage.run_until(|| tasks.iter().all(|task| task.is_finished()));
        order = done.take();
    });
    order
}

#[test]
fn responses_of_a_lower_urgency_come_first() {
    assert_eq!(order(["u=7", "", "u=1"], None), [2, 1, 0]);
    assert_eq!(order(["u=1", "u=6", "u=4"], None), [0, 2, 1]);
}

#[test]
fn an_update_counts_more_than_the_field() {
    assert_eq!(order(["u=2", "u=7", "u=4"], Some((4, "u=0", false)))[0], 1, "it comes behind the request");
    assert_eq!(order(["u=2", "u=7", "u=4"], Some((4, "u=0", true)))[0], 1, "it comes before");
}
