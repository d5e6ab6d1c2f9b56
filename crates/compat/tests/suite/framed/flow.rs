//! Back-pressure and memory.

use futures_util::FutureExt;
use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::{Lines, Raw};
use tidegate_compat::Framed;
use tidegate_compat::framed::FramedLimits;
use tidegate_engine::SendError;

use crate::framed::script::{Piece, Script};

fn marks(high: u64, low: u64) -> FramedLimits {
    FramedLimits { water: WaterMarks::new(high, low), ..FramedLimits::default() }
}

#[tokio::test]
async fn ready_waits_below_the_marks_and_sends_are_refused_above_the_cap() {
    let script = Script::new([]);
    script.set_room(0);
    let mut framed = Framed::with_limits(script.clone(), Lines::new(), marks(1000, 500));
    let line = [b'x'; 99];
    let mut sent = 0;
    while framed.ready().now_or_never().is_some() {
        framed.send(line.to_vec().into()).unwrap();
        sent += 1;
    }
    assert!((9..=11).contains(&sent), "{sent} messages of 100 bytes below a mark of 1000");
    assert!(!framed.is_writable());
    while framed.send(line.to_vec().into()).is_ok() {
        sent += 1;
    }
    assert!(matches!(framed.send("one more".into()), Err(SendError::Full(_))));
    assert!((39..=41).contains(&sent), "{sent} messages of 100 bytes below a cap of 4000");
    script.set_room(usize::MAX);
    framed.ready().await.unwrap();
    framed.flush().await.unwrap();
    assert_eq!((script.take_written().len(), framed.pending_bytes()), (100 * sent, 0));
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_read() {
    let pieces = std::iter::repeat_with(|| Piece::Bytes([b'y'; 1000].to_vec())).take(100);
    let script = Script::new(pieces);
    script.set_room(0);
    let mut framed = Framed::with_limits(script.clone(), Raw, marks(2000, 1000));
    while let Some(received) = framed.recv().now_or_never() {
        framed.send(received.unwrap().unwrap().into()).unwrap();
    }
    assert!(script.unread() > 90, "{} pieces are unread", script.unread());
    assert!(framed.pending_bytes() < 5000);
    let mut echoed = script.take_written().len();
    while echoed < 100_000 {
        script.set_room(700);
        while let Some(received) = framed.recv().now_or_never() {
            framed.send(received.unwrap().unwrap().into()).unwrap();
        }
        echoed += script.take_written().len();
        assert!(framed.pending_bytes() < 5000);
    }
    assert_eq!((echoed, script.unread()), (100_000, 0));
}

#[tokio::test]
async fn an_idle_connection_holds_no_memory_and_half_a_message_holds_its_size() {
    let idle: Vec<_> = (0..100).map(|_| (Script::new([]), Lines::new())).collect();
    let mut connections: Vec<_> =
        idle.into_iter().map(|(script, lines)| (script.clone(), Framed::new(script, lines))).collect();
    let used = |framed: &Framed<Script, Lines>| framed.pool().ledger().used();
    for (script, framed) in &mut connections {
        script.push(Piece::Bytes(b"ebb\n".to_vec()));
        let line = framed.recv().await.unwrap().unwrap();
        framed.send(line.into()).unwrap();
        framed.flush().await.unwrap();
        assert!(framed.recv().now_or_never().is_none());
    }
    // The receive buffer of the thread stays.
    let idle_bytes = used(&connections[0].1);
    assert!(idle_bytes <= 84 * 1024, "{idle_bytes} bytes with 100 idle connections");
    for (script, framed) in &mut connections {
        script.push(Piece::Bytes([b'h'; 1000].to_vec()));
        assert!(framed.recv().now_or_never().is_none());
    }
    let more = used(&connections[0].1) - idle_bytes;
    assert!(more < 100 * 1300, "{more} bytes for 100 halves of 1000 bytes");
    connections.truncate(1);
    assert!(used(&connections[0].1) < idle_bytes + 1300);
}

#[tokio::test]
async fn a_message_that_the_application_keeps_does_not_keep_the_receive_buffer() {
    let script = Script::new([Piece::Bytes([&b"keep this\n"[..], &[b'z'; 60_000]].concat())]);
    let mut framed = Framed::new(script, Lines::new().with_line_bytes_max(100_000));
    let kept = framed.recv().await.unwrap().unwrap();
    assert!(framed.recv().now_or_never().is_none());
    let (_, _, unread) = framed.into_parts();
    assert_eq!((&*kept, unread.len()), (&b"keep this"[..], 60_000));
    let framed = Framed::new(Script::new([]), Lines::new());
    let with_rest = framed.pool().ledger().used();
    drop(unread);
    let without = framed.pool().ledger().used();
    assert!(with_rest - without >= 60_000, "the rest was charged");
    assert!(without <= 84 * 1024 + 200, "{without} bytes: the receive buffer and one line");
}

/// A stream that always has more must not keep the thread to itself.
#[tokio::test]
async fn other_tasks_run_while_a_stream_never_pauses() {
    let pieces = std::iter::repeat_with(|| Piece::Bytes(b"part of a line that never ends ".to_vec())).take(10_000);
    let mut framed = Framed::new(Script::new(pieces), Lines::new().with_line_bytes_max(1 << 20));
    assert!(framed.recv().now_or_never().is_none(), "it yields although there is more to read");
    let waits = async { framed.recv().await.map(|line| line.is_some()) };
    let ends = async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        line = waits => panic!("a line without an end: {line:?}"),
        () = ends => {}
    }
}
