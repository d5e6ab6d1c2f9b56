//! Two tasks on one connection, by `split` of the futures crates, and cancelled operations.

use futures_util::{SinkExt, StreamExt};
use tidegate_buffer::WaterMarks;
use tidegate_codec::Over;
use tidegate_codec::framing::{LengthField, Lines};
use tidegate_compat::Framed;
use tidegate_compat::framed::FramedLimits;
use tidegate_testkit::Random;
use tidegate_testkit::filters::ToyTls;
use tokio::task::LocalSet;

#[tokio::test]
async fn the_halves_of_a_stream_and_sink_wake_each_their_own_task() {
    const MESSAGES: u32 = 2000;
    let limits = FramedLimits { water: WaterMarks::new(4000, 2000), ..FramedLimits::default() };
    let (near, far) = tokio::io::duplex(1500);
    let near = Framed::with_limits(near, LengthField::new(2), limits.clone());
    let far = Framed::with_limits(far, LengthField::new(2), limits);
    let tasks = LocalSet::new();
    for framed in [near, far] {
        let (mut sink, mut stream) = framed.split();
        tasks.spawn_local(async move {
            let mut random = Random::new(7);
            for number in 0..MESSAGES {
                let mut message = number.to_be_bytes().to_vec();
                message.resize(4 + random.below(600), 0);
                sink.send(message.into()).await.expect("a peer that reads");
            }
            sink.close().await.expect("a peer that reads to the end");
        });
        tasks.spawn_local(async move {
            for number in 0..MESSAGES {
                let message = stream.next().await.expect("more comes").expect("a sound stream");
                assert_eq!(message[..4], number.to_be_bytes());
            }
        });
    }
    tasks.await;
}

#[tokio::test]
async fn a_half_that_is_dropped_leaves_the_other_awake() {
    let limits = FramedLimits { water: WaterMarks::new(1000, 500), ..FramedLimits::default() };
    let (near, far) = tokio::io::duplex(100);
    let (mut sink, mut stream) = Framed::with_limits(near, Lines::new(), limits).split();
    let mut far = Framed::new(far, Lines::new());
    let tasks = LocalSet::new();
    let reading = tasks.spawn_local(async move { stream.next().await.map(|message| message.is_ok()) });
    tasks.spawn_local(async move {
        for _ in 0..100 {
            sink.send("a line of some length".into()).await.expect("a peer that reads");
        }
        sink.flush().await.expect("a peer that reads");
    });
    tasks.spawn_local(async move {
        tokio::task::yield_now().await;
        // The reader polled the stream last, to write the waiting bytes; now it is gone.
        reading.abort();
        for _ in 0..100 {
            assert!(far.recv().await.expect("a sound stream").is_some());
            tokio::task::yield_now().await;
        }
    });
    tasks.await;
}

#[tokio::test]
async fn operations_that_are_cancelled_lose_nothing() {
    for seed in tidegate_testkit::seeds(50) {
        let mut random = Random::new(seed);
        let (near, far) = tokio::io::duplex(1 + random.below(200));
        let mut one = Framed::new(near, Over::new(ToyTls::server(1), LengthField::new(2)));
        let mut other = Framed::new(far, Over::new(ToyTls::client(1), LengthField::new(2)));
        let mut chooses = Random::new(!seed);
        let sending = async {
            for number in 0..100_u32 {
                let mut message = number.to_be_bytes().to_vec();
                message.resize(4 + random.below(500), 0);
                one.send(message.into()).expect("the marks are far away");
                tokio::select! {
                    biased;
                    flushed = one.flush() => flushed.expect("a peer that reads"),
                    () = yields(random.below(4)) => {}
                }
            }
            one.close().await.expect("a peer that reads to the end");
        };
        let receiving = async {
            let mut next = 0_u32;
            loop {
                tokio::select! {
                    biased;
                    message = other.recv() => match message.expect("a sound stream") {
                        Some(message) => {
                            assert_eq!(message[..4], next.to_be_bytes());
                            next += 1;
                        }
                        None => break,
                    },
                    () = yields(chooses.below(4)) => {}
                }
            }
            other.close().await.expect("a peer that is closed");
            next
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert_eq!(received, 100);
    }
}

async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}
