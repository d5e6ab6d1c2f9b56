//! The client: replies in order, deadlines, bounds, connecting again, and servers that answer wrongly.

use std::time::Duration;

use tidegate_codec::{Codec, Input, Output, Step as CodecStep};
use tidegate_engine::task;
use tidegate_redis::{
    Client, ClientBuilder, ClientCodec, ClientError, ClientLimits, Failure, IncomingReply, OutgoingCommand, OwnedValue,
    RedisError,
};

use crate::scripted::{Step, expect, greeted, on_each_network, send, wire, words};

const SHORT: Duration = Duration::from_millis(100);

fn started(builder: ClientBuilder) -> Client {
    builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).start()
}

fn lost() -> Result<OwnedValue, ClientError> {
    Err(ClientError::MaybeExecuted(Failure::ConnectionLost))
}

fn bulk(text: &'static str) -> Result<OwnedValue, ClientError> {
    Ok(OwnedValue::Bulk(text.into()))
}

#[test]
fn replies_belong_to_commands_in_their_order() {
    let steps = greeted([
        expect("GET a"),
        expect("GET b"),
        expect("GET c"),
        send("$1\r\n1\r\n-WRONGTYPE no string\r\n>2\r\n+push\r\n+x\r\n_\r\n"),
        expect("GET d"),
        send(":4\r\n"),
        Step::Hang,
    ]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let [a, b, c] = ["GET a", "GET b", "GET c"].map(|command| client.call(words(command)).send());
            assert_eq!(a.await, bulk("1"));
            let Err(ClientError::Reply(error)) = b.await else { panic!("an error") };
            assert_eq!((error.code(), error.text()), (&b"WRONGTYPE"[..], &b"WRONGTYPE no string"[..]));
            assert_eq!(c.await, Ok(OwnedValue::Null));
            assert_eq!(client.cmd("GET").arg("d").fetch::<u32>().await, Ok(4));
            assert_eq!(client.pending(), (0, 0));
        })
    });
}

#[test]
fn all_commands_of_a_turn_leave_together_and_arguments_are_any_bytes() {
    let steps = greeted([
        Step::Expect([&b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0$\r\n"[..], &wire("GET b")].concat()),
        send("+1\r\n+2\r\n"),
        Step::Hang,
    ]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let one = client.cmd("GET").arg("\r\n\0$").send();
            let other = client.cmd("GET").arg("b").send();
            assert_eq!(
                (one.await, other.await),
                (Ok(OwnedValue::Simple("1".into())), Ok(OwnedValue::Simple("2".into())))
            );
        })
    });
}

#[test]
fn a_server_that_swallows_a_reply_never_shifts_the_others() {
    let first = greeted([expect("INCR a"), expect("INCR b"), send(":1\r\n:2\r\n"), expect("GET c"), Step::Hang]);
    let second = greeted([expect("GET c"), send("$1\r\n3\r\n"), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let (a, b) = (client.cmd("INCR").arg("a").send(), client.cmd("INCR").arg("b").send());
            assert_eq!((a.await, b.await), (Ok(OwnedValue::Integer(1)), Ok(OwnedValue::Integer(2))));
            let c = client.cmd("GET").arg("c").timeout(SHORT).await;
            assert_eq!(c, Err(ClientError::MaybeExecuted(Failure::Deadline)));
            assert_eq!(client.last_failure().as_deref(), Some("a command had no reply in time"));
            assert_eq!(client.cmd("GET").arg("c").await, bulk("3"), "over another connection");
        })
    });
}

#[test]
fn a_reply_to_nothing_ends_the_connection() {
    let first = greeted([expect("INCR a"), send(":1\r\n:9\r\n"), Step::Hang]);
    let second = greeted([expect("INCR a"), send(":2\r\n"), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client = started(builder);
            assert_eq!(client.cmd("INCR").arg("a").await, Ok(OwnedValue::Integer(1)));
            while client.last_failure().is_none() {
                task::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(client.last_failure().as_deref(), Some("the server sent a reply to no command"));
            assert_eq!(client.cmd("INCR").arg("a").await, Ok(OwnedValue::Integer(2)));
        })
    });
}

#[test]
fn torn_and_malformed_replies_fail_what_was_sent() {
    for torn in
        ["$10\r\nabc", ":12", "*2\r\n:1\r\n", "$3\r\nabcde\r\n", "?what\r\n", "*-7\r\n", "$99999999999999999999\r\n"]
    {
        let first = greeted([expect("INCR a"), expect("INCR b"), send(torn)]);
        let second = greeted([expect("INCR a"), send(":7\r\n"), Step::Hang]);
        on_each_network(&[first, second], |builder| {
            Box::pin(async move {
                let client = started(builder);
                let (a, b) = (client.cmd("INCR").arg("a").send(), client.cmd("INCR").arg("b").send());
                assert_eq!((a.await, b.await), (lost(), lost()), "{torn}");
                assert_eq!(client.cmd("INCR").arg("a").await, Ok(OwnedValue::Integer(7)), "{torn}");
            })
        });
    }
}

#[test]
fn only_idempotent_commands_are_sent_again() {
    let first = greeted([expect("INCR a"), expect("GET b"), expect("INCR c")]);
    let second = greeted([expect("GET b"), send("$1\r\n2\r\n"), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let a = client.cmd("INCR").arg("a").send();
            let b = client.cmd("GET").arg("b").idempotent().send();
            let c = client.cmd("INCR").arg("c").send();
            assert_eq!((a.await, b.await, c.await), (lost(), bulk("2"), lost()));
            assert_eq!(client.pending(), (0, 0));
        })
    });
}

#[test]
fn a_server_that_never_answers_costs_a_deadline() {
    on_each_network(&[vec![Step::Hang], greeted([Step::Hang])], |builder| {
        Box::pin(async move {
            let client = started(builder.timeout(SHORT));
            // HELLO has no reply.
            assert_eq!(client.cmd("INCR").arg("a").await, Err(ClientError::NotSent(Failure::Deadline)));
            let late = client.cmd("INCR").arg("b").timeout(Duration::from_secs(60)).send();
            while !client.is_connected() {
                task::sleep(Duration::from_millis(1)).await;
            }
            let soon = client.cmd("INCR").arg("c").await;
            assert_eq!(soon, Err(ClientError::MaybeExecuted(Failure::Deadline)));
            assert_eq!(late.await, lost());
            assert_eq!(client.pending(), (0, 0));
        })
    });
}

#[test]
fn a_server_without_hello_gets_auth_name_and_select() {
    for refusal in
        ["-ERR unknown command `HELLO`, with args beginning with: \r\n", "-NOPROTO unsupported protocol version\r\n"]
    {
        let steps = vec![
            expect("HELLO 3 AUTH default secret SETNAME tide"),
            send(refusal),
            expect("AUTH secret"),
            send("+OK\r\n"),
            expect("CLIENT SETNAME tide"),
            send("-ERR unknown command\r\n"),
            expect("SELECT 3"),
            send("+OK\r\n"),
            expect("GET a"),
            send("$-1\r\n"),
            Step::Hang,
        ];
        on_each_network(&[steps], |builder| {
            Box::pin(async move {
                let client = started(builder.password(*b"secret").name("tide").database(3));
                assert_eq!(client.cmd("GET").arg("a").await, Ok(OwnedValue::Null));
            })
        });
    }
}

#[test]
fn a_wrong_password_fails_commands_at_once_and_a_server_that_loads_is_awaited() {
    let wrong =
        vec![expect("HELLO 3"), send("-WRONGPASS invalid username-password pair or user is disabled.\r\n"), Step::Hang];
    let loading = vec![expect("HELLO 3"), send("-LOADING Redis is loading the dataset in memory\r\n"), Step::Hang];
    let fine = greeted([expect("INCR b"), send(":1\r\n"), Step::Hang]);
    on_each_network(&[wrong, loading, fine], |builder| {
        Box::pin(async move {
            let client = started(builder);
            assert_eq!(client.cmd("INCR").arg("a").await, Err(ClientError::NotSent(Failure::Refused)));
            assert!(client.last_failure().is_some_and(|text| text.contains("WRONGPASS")));
            assert_eq!(client.cmd("INCR").arg("b").await, Ok(OwnedValue::Integer(1)));
        })
    });
}

#[test]
fn what_waits_is_bounded_and_a_caller_can_wait_for_room() {
    on_each_network(&[greeted([Step::Hang])], |builder| {
        Box::pin(async move {
            let limits = ClientLimits { commands_max: 8, bytes_max: 1 << 20 };
            let client = started(builder.limits(limits).timeout(SHORT));
            let mut results = Vec::new();
            for number in 0..20 {
                results.push(client.cmd("INCR").arg(number.to_string()).send());
            }
            assert_eq!(client.pending().0, 8);
            for refused in results.drain(8..) {
                assert_eq!(refused.await, Err(ClientError::NotSent(Failure::QueueFull)));
            }
            client.ready().await;
            assert!(client.pending().0 < 8, "the deadline has made room");
            drop(results);
            let long = vec![b'x'; 2 << 20];
            while client.pending().0 > 0 {
                task::sleep(Duration::from_millis(1)).await;
            }
            let long_one = client.cmd("SET").arg("a").arg(&long).send();
            assert_eq!(client.pending().0, 1, "a long command is taken alone");
            let refused = client.cmd("GET").arg("a").await;
            assert_eq!(refused, Err(ClientError::NotSent(Failure::QueueFull)));
            assert!(long_one.await.is_err());
        })
    });
}

/// A loop of posts against a server that never reads.
#[test]
fn a_million_commands_to_a_server_that_never_reads_stay_within_the_bounds() {
    on_each_network(&[vec![]], |builder| {
        Box::pin(async move {
            let client = started(builder.timeout(Duration::from_secs(60)));
            for _ in 0..1_000_000 {
                client.cmd("INCR").arg("a").post();
            }
            let (commands, bytes) = client.pending();
            assert_eq!(commands, ClientLimits::default().commands_max);
            assert!(bytes <= ClientLimits::default().bytes_max, "{bytes}");
        })
    });
}

#[test]
fn a_command_that_nothing_waits_for_is_not_sent_unless_it_was_posted() {
    let steps = greeted([expect("INCR b"), expect("GET c"), send(":1\r\n$1\r\nc\r\n"), Step::Hang]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let client = started(builder);
            drop(client.cmd("INCR").arg("a").send());
            client.cmd("INCR").arg("b").post();
            assert_eq!(client.cmd("GET").arg("c").await, bulk("c"));
        })
    });
}

#[test]
fn a_transaction_that_is_cut_off_may_have_been_executed() {
    let first = greeted([expect("MULTI"), expect("SET a 1"), expect("EXEC"), send("+OK\r\n+QUEUED\r\n")]);
    let second = greeted([
        expect("MULTI"),
        expect("SET a 1"),
        expect("EXEC"),
        expect("GET a"),
        send("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n$1\r\n1\r\n"),
        Step::Hang,
    ]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let cut_off = client.transaction([words("SET a 1")]).await;
            assert_eq!(cut_off, Err(ClientError::MaybeExecuted(Failure::ConnectionLost)));
            let transaction = task::spawn({
                let client = client.clone();
                async move { client.transaction([words("SET a 1")]).await }
            });
            task::sleep(Duration::from_millis(1)).await;
            assert_eq!(client.cmd("GET").arg("a").await, bulk("1"));
            let results = transaction.await.expect("no panic");
            assert_eq!(results, Ok(Some(vec![OwnedValue::Simple("OK".into())])));
            assert_eq!(client.pending(), (0, 0));
        })
    });
}

#[test]
fn a_command_that_was_sent_once_and_expires_later_may_have_been_executed() {
    let first = greeted([expect("GET a")]);
    on_each_network(&[first, vec![Step::Hang]], |builder| {
        Box::pin(async move {
            let client = started(builder.timeout(Duration::from_secs(60)));
            while !client.is_connected() {
                task::sleep(Duration::from_millis(1)).await;
            }
            let result = client.cmd("GET").arg("a").timeout(SHORT * 5).idempotent().await;
            assert_eq!(result, Err(ClientError::MaybeExecuted(Failure::Deadline)));
        })
    });
}

#[test]
fn a_silent_connection_is_probed() {
    let first =
        greeted([expect("GET a"), send("$1\r\n1\r\n"), expect("PING"), send("+PONG\r\n"), expect("PING"), Step::Hang]);
    let second = greeted([expect("GET a"), send("$1\r\n2\r\n"), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client = started(builder.ping_after(SHORT).timeout(SHORT * 10));
            assert_eq!(client.cmd("GET").arg("a").await, bulk("1"));
            while client.last_failure().is_none() {
                task::sleep(SHORT / 10).await;
            }
            assert_eq!(client.last_failure().as_deref(), Some("a command had no reply in time"));
            assert_eq!(client.cmd("GET").arg("a").await, bulk("2"));
        })
    });
}

#[test]
fn a_reply_above_the_limit_ends_the_connection() {
    let mut long = b"$3000\r\n".to_vec();
    long.extend_from_slice(&[b'x'; 3000]);
    long.extend_from_slice(b"\r\n");
    let steps = || greeted([expect("GET a"), send(long.clone()), Step::Hang]);
    on_each_network(&[steps()], |builder| {
        Box::pin(async move {
            let limits = tidegate_redis::ProtocolLimits { whole_bytes_max: 1000, ..Default::default() };
            let client = started(builder.protocol_limits(limits));
            assert_eq!(client.cmd("GET").arg("a").await, lost());
        })
    });
    on_each_network(&[steps()], |builder| {
        Box::pin(async move {
            let value = started(builder).cmd("GET").arg("a").fetch::<OwnedValue>().await;
            assert!(matches!(value, Ok(OwnedValue::Bulk(bytes)) if bytes.len() == 3000));
        })
    });
}

/// A client's codec, which panics where a reply is an integer.
#[derive(Default)]
struct Panicking(ClientCodec);

impl Codec for Panicking {
    type In = IncomingReply;
    type Out = OutgoingCommand;
    type Error = RedisError;

    fn protocol(&self) -> &'static str {
        "Redis"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<CodecStep<IncomingReply>, RedisError> {
        assert!(!input.bytes().starts_with(b":"), "on purpose");
        self.0.decode(input, reply)
    }

    fn encode(&mut self, command: OutgoingCommand, out: &mut Output<'_>) -> Result<(), RedisError> {
        self.0.encode(command, out)
    }
}

#[test]
fn a_panic_of_the_codec_costs_one_connection() {
    let first = greeted([expect("INCR a"), send(":1\r\n"), Step::Hang]);
    let second = greeted([expect("GET a"), send("$1\r\n1\r\n"), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let client =
                builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).start_with(Panicking::default);
            assert_eq!(client.cmd("INCR").arg("a").await, lost());
            assert_eq!(client.cmd("GET").arg("a").await, bulk("1"));
            assert_eq!(client.pending(), (0, 0));
        })
    });
}

#[test]
fn scripts_in_order_leave_at_once_with_their_source() {
    let eval = |argument: &str| wire(&format!("EVAL return 1 a {argument}"));
    let steps = greeted([Step::Expect([eval("x"), eval("y")].concat()), send(":1\r\n:2\r\n"), Step::Hang]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let client = started(builder);
            let script = tidegate_redis::Script::new("return");
            let [x, y] = ["x", "y"].map(|argument| script.run_in_order(&client, ["a"], [argument]));
            assert_eq!((x.await, y.await), (Ok(OwnedValue::Integer(1)), Ok(OwnedValue::Integer(2))));
        })
    });
}
