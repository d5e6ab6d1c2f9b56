//! Windows and the order of sending, without a protocol.

use super::*;

const WINDOWS: Windows = Windows { stream_receive: 100, session_receive: 150, stream_send: 100, session_send: 150 };

fn streams(ids: &[u32]) -> (Streams, Vec<StreamKey>) {
    let mut streams = Streams::new(WINDOWS);
    let keys = ids.iter().map(|id| streams.open(*id, true)).collect();
    (streams, keys)
}

/// The streams that would send `bytes` each, in turns of at most 40 bytes, until none may.
fn order(streams: &mut Streams, mut queues: Vec<(StreamKey, u32)>) -> Vec<u32> {
    for (key, _) in &queues {
        streams.set_ready(*key);
    }
    resume(streams, &mut queues)
}

fn resume(streams: &mut Streams, queues: &mut [(StreamKey, u32)]) -> Vec<u32> {
    let mut order = Vec::new();
    while let Some(key) = streams.next_ready() {
        let (_, left) = queues.iter_mut().find(|(other, _)| *other == key).expect("it is one of these");
        let bytes = streams.send_allowance(key).min(*left).min(40);
        *left -= bytes;
        if bytes > 0 {
            order.push(key.id());
        }
        streams.on_sent(key, bytes, *left > 0);
    }
    order
}

#[test]
fn keys_of_closed_streams_find_nothing() {
    let (mut streams, keys) = streams(&[1, 3, 5]);
    assert_eq!((streams.len(), streams.opened_by_peer()), (3, 3));
    streams.close(keys[1]);
    assert_eq!((streams.find(3), streams.at(keys[1].index()), streams.owner(keys[1])), (None, None, None));
    let again = streams.open(7, false);
    assert_eq!(again.index(), keys[1].index(), "its place is used again");
    streams.set_owner(again, [1, 2]);
    assert_eq!((streams.owner(keys[1]), streams.owner(again)), (None, Some([1, 2])));
    assert_eq!((streams.len(), streams.opened_by_peer()), (3, 2));
    for key in [keys[0], keys[2], again] {
        streams.close(key);
    }
    assert_eq!((streams.is_empty(), streams.opened_by_peer(), streams.iter().count()), (true, 0, 0));
}

/// Many streams at once find their memory after a few; one stream after them holds none of it.
#[test]
fn a_single_stream_after_many_holds_the_memory_of_a_few() {
    let (mut streams, keys) = streams(&(1..200).step_by(2).collect::<Vec<_>>());
    keys.iter().for_each(|key| streams.close(*key));
    assert_eq!(streams.room(), 0, "an idle session has no table");
    let last = streams.open(201, true);
    assert_eq!(streams.room(), 4);
    for id in (203..211).step_by(2) {
        let _ = streams.open(id, true);
    }
    assert_eq!(streams.room(), keys.len(), "as many at once as before");
    assert_eq!(streams.find(201), Some(last));
}

#[test]
fn a_stream_that_has_ended_both_ways_does_not_count_against_the_limit() {
    let (mut streams, keys) = streams(&[1, 3]);
    assert!(streams.end_by_peer(keys[0]) && !streams.end_by_peer(keys[0]));
    assert_eq!(streams.opened_by_peer(), 2);
    streams.end_locally(keys[0]);
    assert_eq!((streams.opened_by_peer(), streams.len(), streams.has_ended(keys[0])), (1, 2, true));
}

#[test]
fn bytes_beyond_a_window_are_an_error() {
    let (mut one, keys) = streams(&[1]);
    assert_eq!(one.receive(Some(keys[0]), 100), Ok(()));
    assert_eq!(one.receive(Some(keys[0]), 1), Err(FlowError::Exceeded));
    let (mut two, keys) = streams(&[1, 3]);
    assert_eq!(two.receive(Some(keys[0]), 100), Ok(()));
    assert_eq!(two.receive(Some(keys[1]), 51), Err(FlowError::Exceeded), "the session's window");
}

#[test]
fn consumed_bytes_are_granted_again_once_they_are_half_a_window() {
    let (mut streams, keys) = streams(&[1]);
    streams.receive(Some(keys[0]), 100).unwrap();
    streams.consume(keys[0], 10);
    assert_eq!(streams.next_update(), None);
    streams.consume(keys[0], 30);
    let update = |streams: &mut Streams| streams.next_update().map(|update| (update.stream, update.bytes));
    assert_eq!(update(&mut streams), None);
    streams.set_unread(keys[0], 50);
    assert_eq!(update(&mut streams), Some((None, 50)), "the others hold 50 of 150");
    assert_eq!(update(&mut streams), Some((Some(1), 50)));
    streams.set_unread(keys[0], 5);
    assert_eq!((update(&mut streams), streams.unconsumed_bytes()), (None, 5));
}

#[test]
fn bytes_that_one_stream_holds_do_not_keep_the_session_from_being_granted() {
    let (mut streams, keys) = streams(&[1, 3]);
    streams.receive(Some(keys[0]), 100).unwrap();
    streams.receive(Some(keys[1]), 50).unwrap();
    streams.consume(keys[1], 50);
    assert_eq!(streams.next_update(), Some(WindowUpdate { stream: None, bytes: 50 }));
}

#[test]
fn a_closed_stream_gives_its_part_of_the_sessions_window_back() {
    let (mut streams, keys) = streams(&[1, 3]);
    streams.receive(Some(keys[0]), 90).unwrap();
    streams.consume(keys[0], 10);
    streams.close(keys[0]);
    assert_eq!(streams.next_update(), Some(WindowUpdate { stream: None, bytes: 90 }));
    // And so do bytes that come for it afterwards.
    streams.receive(None, 100).unwrap();
    assert_eq!(streams.next_update(), Some(WindowUpdate { stream: None, bytes: 100 }));
    assert_eq!((streams.next_update(), streams.unconsumed_bytes()), (None, 0));
}

#[test]
fn a_peer_that_ended_its_side_gets_no_credit() {
    let (mut streams, keys) = streams(&[1]);
    streams.receive(Some(keys[0]), 60).unwrap();
    streams.end_by_peer(keys[0]);
    streams.consume(keys[0], 60);
    assert_eq!(streams.next_update(), None, "60 of the session's 150 bytes are no reason yet");
}

#[test]
fn credit_beyond_the_largest_window_is_an_error() {
    let (mut streams, keys) = streams(&[1]);
    assert_eq!(streams.grant(Some(keys[0]), (1 << 31) - 1 - 100), Ok(()));
    assert_eq!(streams.grant(Some(keys[0]), 1), Err(FlowError::Overflow));
    assert_eq!(streams.grant(None, u32::MAX), Err(FlowError::Overflow));
    assert_eq!(streams.set_initial_send_window(u32::MAX), Err(FlowError::Overflow));
}

#[test]
fn a_smaller_initial_window_may_make_windows_negative() {
    let (mut streams, keys) = streams(&[1]);
    assert_eq!(order(&mut streams, vec![(keys[0], 80)]), [1, 1]);
    streams.set_initial_send_window(50).unwrap();
    assert_eq!(streams.send_allowance(keys[0]), 0);
    let mut queues = [(keys[0], 20)];
    streams.set_ready(keys[0]);
    assert_eq!(resume(&mut streams, &mut queues), []);
    streams.grant(Some(keys[0]), 30).unwrap();
    assert_eq!(resume(&mut streams, &mut queues), [], "the window is at zero");
    streams.grant(Some(keys[0]), 20).unwrap();
    assert_eq!((resume(&mut streams, &mut queues), queues[0].1), (vec![1], 0));
}

#[test]
fn streams_of_one_urgency_take_turns_and_lower_ones_come_first() {
    let (mut streams, keys) = streams(&[1, 3, 5]);
    streams.set_urgency(keys[2], 0);
    let queues = vec![(keys[0], 50), (keys[1], 50), (keys[2], 50)];
    assert_eq!(order(&mut streams, queues), [5, 5, 1, 3, 1, 3]);
}

#[test]
fn the_sessions_window_stops_streams_in_their_place() {
    let (mut streams, keys) = streams(&[1, 3]);
    let mut queues = vec![(keys[0], 100), (keys[1], 100)];
    for key in &keys {
        streams.set_ready(*key);
    }
    assert_eq!(resume(&mut streams, &mut queues), [1, 3, 1, 3]);
    assert!(!streams.has_ready());
    streams.grant(None, 50).unwrap();
    assert_eq!(resume(&mut streams, &mut queues), [3, 1]);
    assert_eq!(queues.iter().map(|(_, left)| left).sum::<u32>(), 0);
}

#[test]
fn a_stream_without_window_stops_no_other() {
    let (mut streams, keys) = streams(&[1, 3]);
    streams.grant(None, 10_000).unwrap();
    let mut queues = vec![(keys[0], 1_000), (keys[1], 90)];
    for key in &keys {
        streams.set_ready(*key);
    }
    assert_eq!(resume(&mut streams, &mut queues), [1, 3, 1, 3, 1, 3]);
    streams.grant(Some(keys[0]), 5).unwrap();
    assert_eq!(resume(&mut streams, &mut queues), [1]);
}

#[test]
fn a_stream_that_closes_while_it_is_listed_leaves_no_trace() {
    let (mut streams, keys) = streams(&[1, 3]);
    streams.set_ready(keys[0]);
    streams.set_ready(keys[1]);
    streams.receive(Some(keys[0]), 100).unwrap();
    streams.consume(keys[0], 100);
    streams.close(keys[0]);
    // Its place is not used again while the lists know it.
    let other = streams.open(5, true);
    assert_ne!(other.index(), keys[0].index());
    assert_eq!(streams.next_ready(), Some(keys[1]));
    assert_eq!(streams.next_ready(), None);
    assert_eq!(streams.next_update(), Some(WindowUpdate { stream: None, bytes: 100 }));
    assert_eq!(streams.next_update(), None);
    assert_eq!(streams.open(7, true).index(), keys[0].index());
}

#[test]
fn an_urgency_that_changes_while_the_stream_waits_counts() {
    let (mut streams, keys) = streams(&[1, 3]);
    streams.set_ready(keys[0]);
    streams.set_ready(keys[1]);
    streams.set_urgency(keys[0], 7);
    assert_eq!(streams.next_ready(), Some(keys[1]));
    assert_eq!(streams.next_ready(), Some(keys[0]));
}

#[test]
fn more_resets_than_ends_are_a_flood() {
    let mut streams = Streams::<()>::new(WINDOWS);
    let mut reset = |id: u32, ends: bool| {
        let key = streams.open(id, true);
        if ends {
            streams.end_by_peer(key);
            streams.end_locally(key);
            streams.close(key);
            return Ok(());
        }
        let outcome = streams.reset_by_peer(key);
        streams.close(key);
        outcome
    };
    assert!((0..1_000).all(|number| reset(number, number % 2 == 0).is_ok()), "every other stream ends");
    let until_flood = (1_000..2_000).take_while(|number| reset(*number, false).is_ok()).count();
    assert!((150..=200).contains(&until_flood), "{until_flood}");
}

#[test]
fn streams_that_close_while_the_session_has_no_window_give_their_places_back() {
    let mut streams: Streams = Streams::new(WINDOWS);
    let first = streams.open(1, true);
    streams.set_ready(first);
    assert_eq!(streams.next_ready(), Some(first));
    streams.on_sent(first, 150, true);
    for id in (3..10_003).step_by(2) {
        let key = streams.open(id, true);
        streams.set_ready(key);
        assert_eq!(streams.next_ready(), Some(key));
        streams.on_sent(key, 0, true);
        streams.close(key);
    }
    let last = streams.open(10_003, true);
    assert!(last.index() < 200, "place {}", last.index());
}
