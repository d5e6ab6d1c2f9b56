//! Deadlines, by tokio's paused clock.

use std::time::Duration;

use futures_util::FutureExt;
use tidegate::http1;
use tidegate_codec::framing::Lines;
use tidegate_compat::Framed;
use tidegate_compat::framed::{FramedError, FramedLimits};
use tokio::time::{Instant, sleep, timeout};

use crate::framed::script::{Piece, Script};

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_refused_by_the_codecs_deadline() {
    let script = Script::new([Piece::Bytes(b"GET / HTT".to_vec())]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    let begun = Instant::now();
    let error = framed.recv().await.map(drop).expect_err("half a head is not enough");
    assert!(matches!(error, FramedError::Protocol(_)), "{error:?}");
    assert!(String::from_utf8(script.take_written()).unwrap().starts_with("HTTP/1.1 408 "));
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// A task that waits for two things requests the message anew each time; the peer gains no time by that.
#[tokio::test(start_paused = true)]
async fn requests_for_a_message_that_are_cancelled_do_not_move_the_deadline() {
    async fn until_refused(pause: Option<Duration>) -> Duration {
        let script = Script::new([Piece::Bytes(b"GET / HTT".to_vec())]);
        let mut framed = Framed::new(script, http1::Server::default());
        let begun = Instant::now();
        loop {
            let polled = match pause {
                None => Ok(framed.recv().await),
                Some(pause) => timeout(pause, framed.recv()).await,
            };
            match polled {
                Ok(message) => {
                    message.map(drop).expect_err("half a head");
                    return begun.elapsed();
                }
                Err(_) => assert!(begun.elapsed() < Duration::from_secs(600), "the deadline never comes"),
            }
        }
    }
    let patient = until_refused(None).await;
    let restless = until_refused(Some(Duration::from_millis(100))).await;
    assert!(restless <= patient + Duration::from_secs(1), "{restless:?}, and without cancelling {patient:?}");
}

#[tokio::test(start_paused = true)]
async fn deadlines_rest_while_no_task_waits_for_a_message() {
    let script = Script::new([Piece::Bytes(b"GET / HTT".to_vec())]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    assert!(framed.recv().now_or_never().is_none());
    sleep(Duration::from_secs(3600)).await;
    script.push(Piece::Bytes(b"P/1.1\r\nHost: a\r\n\r\n".to_vec()));
    assert!(framed.recv().await.expect("the peer was not late").is_some());
}

#[tokio::test(start_paused = true)]
async fn bytes_that_lie_in_the_stream_are_not_late() {
    let script = Script::new([Piece::Bytes(b"GET / HTT".to_vec())]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    let waiting = async {
        // The deadline and the bytes come at the same time.
        sleep(Duration::from_secs(3600)).await;
    };
    let mut receiving = std::pin::pin!(framed.recv());
    assert!(receiving.as_mut().now_or_never().is_none());
    script.push(Piece::Bytes(b"P/1.1\r\nHost: a\r\n\r\n".to_vec()));
    waiting.await;
    assert!(receiving.await.expect("the bytes had come").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_takes_no_byte_is_given_up_and_one_that_takes_some_is_not() {
    let limits = FramedLimits { write_timeout: Duration::from_secs(60), ..FramedLimits::default() };
    let script = Script::new([]);
    script.set_room(10);
    let mut framed = Framed::with_limits(script.clone(), Lines::new(), limits);
    framed.send(vec![b'x'; 1000].into()).unwrap();
    let begun = Instant::now();
    for _ in 0..5 {
        timeout(Duration::from_secs(40), framed.flush()).await.expect_err("it is not all sent");
        script.set_room(10);
    }
    let error = framed.flush().await.expect_err("nothing more is taken");
    assert!(matches!(error, FramedError::WriteTimeout), "{error:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(5 * 40 + 60));
    assert_eq!(script.take_written().len(), 60);
    assert!(framed.recv().await.unwrap().is_none());
    assert!(!script.is_shut(), "the peer must not take the part for the whole");
}

#[tokio::test(start_paused = true)]
async fn closing_waits_a_moment_for_a_silent_peer_and_longer_for_a_busy_one() {
    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    let begun = Instant::now();
    framed.close().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));

    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    let begun = Instant::now();
    let sending = async {
        loop {
            script.push(Piece::Bytes(b"still busy\n".to_vec()));
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        closed = framed.close() => closed.unwrap(),
        () = sending => {}
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(30));

    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    let begun = Instant::now();
    let ending = async {
        sleep(Duration::from_millis(500)).await;
        script.push(Piece::End);
    };
    let (closed, ()) = tokio::join!(framed.close(), ending);
    closed.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
}
