//! Replies in pieces: strings that are read piece by piece, replies passed on as bytes, and their bounds.

use std::time::Duration;

use tidegate_engine::{Backend, Client as Target, EventLoop, Limits, Server, task};
use tidegate_redis::{
    Answer, BulkStream, CallContext, Client, ClientBuilder, ClientError, Command, Failure, Handler, OutgoingReply,
    ProtocolLimits, ReplyBudget, ServerCodec, Service,
};
use tidegate_testkit::allocations::Region;
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{replay, seeds};

/// Has values of any length.
struct Lengths;

impl Service for Lengths {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        let number = |at| String::from_utf8_lossy(command.argument(at).unwrap_or_default()).parse().unwrap_or(0);
        match command.name() {
            b"GET" => OutgoingReply::bulk(content(number(1))).into(),
            b"RANGE" => OutgoingReply::array((0..number(1)).map(|_| OutgoingReply::bulk(content(number(2))))).into(),
            b"NONE" => OutgoingReply::Null.into(),
            b"WRONG" => OutgoingReply::error("WRONGTYPE no string").into(),
            _ => Answer::Unknown,
        }
    }
}

fn content(length: usize) -> Vec<u8> {
    // Copies: a computation for each byte of megabytes takes long without optimisation.
    let period: Vec<_> = (0..251).map(|at| (at * 7 % 251) as u8).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

fn builder(target: Target) -> ClientBuilder {
    Client::over(target).timeout(Duration::from_secs(60))
}

/// Runs a test with a client of a server on this loop's peer.
fn run<F: Future<Output = Result<(), ClientError>> + 'static>(test: impl FnOnce(ClientBuilder) -> F + 'static) {
    let start = || (ServerCodec::default(), Handler::new(Lengths));
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).start(start).expect("a server");
    let target = Target::at(server.address().clone());
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let testing = async move { task::timeout(Duration::from_secs(120), test(builder(target))).await };
    let result = event_loop.block_on(testing);
    result.expect("the loop runs").expect("the test does not hang").expect("the commands succeed");
    server.drain(Duration::ZERO);
}

/// All bytes of a stream, and the largest piece.
async fn read(mut stream: BulkStream) -> Result<(Vec<u8>, usize), ClientError> {
    let (mut all, mut largest) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        largest = largest.max(piece.len());
        all.extend_from_slice(&piece);
        assert!(stream.length().is_none_or(|length| all.len() as u64 <= length));
    }
    Ok((all, largest))
}

#[test]
fn strings_of_all_lengths_are_read_in_pieces_between_other_commands() {
    run(|builder| async move {
        let client = builder.start();
        for length in [0, 1, 1000, 262_000, 262_144, 300_000, 5_000_000] {
            let before = client.cmd("PING").send();
            let stream = client.cmd("GET").arg(length.to_string()).stream();
            let behind = client.cmd("GET").arg("400000").send();
            assert_eq!(before.await?, tidegate_redis::OwnedValue::Simple("PONG".into()));
            let (all, largest) = read(stream).await?;
            assert!(all == content(length), "{length}");
            assert!(largest <= 1 << 20, "{largest}");
            // A long reply that nothing reads in pieces is joined.
            assert!(behind.await? == tidegate_redis::OwnedValue::Bulk(content(400_000).into()));
        }
        assert_eq!(client.pending(), (0, 0));
        Ok(())
    });
}

#[test]
fn nulls_errors_and_other_types_end_a_stream() {
    run(|builder| async move {
        let client = builder.start();
        let mut none = client.cmd("NONE").stream();
        assert_eq!((none.next().await, none.is_null(), none.next().await), (None, true, None));
        let wrong = read(client.cmd("WRONG").stream()).await;
        assert!(matches!(wrong, Err(ClientError::Reply(error)) if error.code() == b"WRONGTYPE"));
        for range in ["1", "100"] {
            let array = read(client.cmd("RANGE").arg(range).arg("9000").stream()).await;
            assert!(matches!(array, Err(ClientError::Type(_))), "{array:?}");
        }
        assert_eq!(client.cmd("PING").fetch::<String>().await?, "PONG");
        Ok(())
    });
}

#[test]
fn a_stream_that_is_dropped_leaves_the_connection_in_order() {
    run(|builder| async move {
        let client = builder.start();
        for pieces in 0..4 {
            let mut stream = client.cmd("GET").arg("8000000").stream();
            for _ in 0..pieces {
                stream.next().await.expect("a piece")?;
            }
            drop(stream);
            assert_eq!(client.cmd("ECHO").arg("a").fetch::<String>().await?, "a");
        }
        Ok(())
    });
}

#[test]
fn a_reader_that_waits_makes_the_connection_wait_with_little_in_memory() {
    run(|builder| async move {
        let client = builder.start();
        let mut stream = client.cmd("GET").arg("50000000").stream();
        let mut all = stream.next().await.expect("a piece")?.len();
        for _ in 0..20 {
            task::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(stream.length(), Some(50_000_000));
        while let Some(piece) = stream.next().await {
            all += piece?.len();
        }
        assert_eq!(all, 50_000_000);
        Ok(())
    });
}

/// The loop and the reader are on this thread, and the server is on another.
#[test]
fn a_string_of_100_mb_grows_memory_by_at_most_a_mib() {
    run(|builder| async move {
        let client = builder.start();
        read(client.cmd("GET").arg("1000000").stream()).await?;
        let region = Region::new();
        let (mut bytes, mut most) = (0, 0);
        let mut stream = client.cmd("GET").arg("104857600").stream();
        while let Some(piece) = stream.next().await {
            bytes += piece?.len();
            most = most.max(region.change().bytes_in_use());
        }
        assert_eq!(bytes, 100 << 20);
        assert!(most <= 1 << 20, "{most} bytes");
        Ok(())
    });
}

#[test]
fn a_reply_passes_through_as_it_was_sent_and_within_its_budget() {
    run(|builder| async move {
        let client = builder.start();
        let whole = ReplyBudget::new(4 << 20);
        let budget = whole.part(3 << 20);
        for (command, arguments, wanted) in [
            ("PING", vec![], b"+PONG\r\n".to_vec()),
            ("WRONG", vec![], b"-WRONGTYPE no string\r\n".to_vec()),
            ("GET", vec!["300000"], [b"$300000\r\n", &*content(300_000), b"\r\n"].concat()),
            ("RANGE", vec!["2", "200000"], {
                let one = [b"$200000\r\n", &*content(200_000), b"\r\n"].concat();
                [b"*2\r\n".to_vec(), one.clone(), one].concat()
            }),
        ] {
            let mut reply = client.cmd(command).args(arguments).wire(&budget);
            let mut wire = Vec::new();
            while let Some(bytes) = reply.next().await {
                wire.extend_from_slice(&bytes?);
            }
            assert!(wire == wanted, "{command}");
        }
        // Nothing reads it, until it is too long for its budget.
        let mut long = client.cmd("GET").arg("9000000").wire(&budget);
        assert_eq!(client.cmd("PING").fetch::<String>().await?, "PONG", "others do not wait for it");
        assert!(budget.used() <= 3 << 20 && whole.used() == budget.used());
        let end = loop {
            match long.next().await {
                Some(Ok(_)) => {}
                end => break end,
            }
        };
        assert_eq!(end, Some(Err(ClientError::MaybeExecuted(Failure::ReplyTooLong))));
        drop(long);
        assert_eq!((budget.used(), whole.used()), (0, 0));
        Ok(())
    });
}

#[test]
fn a_joined_reply_has_the_limit_of_the_client() {
    run(|builder| async move {
        let limits = ProtocolLimits { whole_bytes_max: 1 << 20, ..ProtocolLimits::default() };
        let client = builder.protocol_limits(limits).start();
        assert!(client.cmd("GET").arg("1000000").await.is_ok());
        let error = client.cmd("GET").arg("1100000").await;
        assert_eq!(error, Err(ClientError::MaybeExecuted(Failure::ConnectionLost)));
        assert!(client.last_failure().is_some_and(|reason| reason.contains("longer than the limit")));
        // The limit is no limit of streams.
        assert_eq!(read(client.cmd("GET").arg("3000000").stream()).await?.0.len(), 3_000_000);
        Ok(())
    });
}

/// Streams and other commands by turns, with faults. Returns how many failed.
fn run_with_faults(seed: u64, faults: FaultRates) -> usize {
    let network = Network::new(seed);
    network.set_faults(faults);
    let server = network.host("10.0.0.1").node();
    let make = |_: &_| (ServerCodec::default(), Handler::new(Lengths));
    let address = server.listen(6379, Limits::default(), make).expect("the port is free");
    let node = network.host("10.0.0.2").node();
    let failed = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = failed.clone();
    let asking = node.spawn(async move {
        let client = builder(Target::at(address)).start();
        for number in 0..20_usize {
            let length = number * 40_000;
            let (stream, echo) =
                (client.cmd("GET").arg(length.to_string()).stream(), client.cmd("ECHO").arg("a").send());
            match read(stream).await {
                Ok((all, _)) => assert!(all == content(length), "the bytes of another reply"),
                Err(ClientError::NotSent(_) | ClientError::MaybeExecuted(_)) => count.set(count.get() + 1),
                Err(error) => panic!("{error}"),
            }
            match echo.await {
                Ok(value) => assert_eq!(value, tidegate_redis::OwnedValue::Bulk("a".into())),
                Err(ClientError::NotSent(_) | ClientError::MaybeExecuted(_)) => count.set(count.get() + 1),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(client.pending(), (0, 0));
    });
    network.run_task(Duration::from_secs(3600), asking);
    failed.get()
}

#[test]
fn a_stream_has_all_its_bytes_or_an_error_under_faults() {
    for seed in seeds(4) {
        assert_eq!(run_with_faults(seed, FaultRates::benign()), 0, "{}", replay(seed));
    }
    let failed: usize =
        seeds(4).map(|seed| run_with_faults(seed, FaultRates::benign().with(NetworkFault::Reset, 30))).sum();
    assert!(failed > 0, "nothing breaks");
}
