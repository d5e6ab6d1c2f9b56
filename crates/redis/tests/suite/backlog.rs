//! The client's queue while a server reads slowly or not at all.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientBuilder, ClientError, CommandBuffer, Failure, OwnedValue};

use crate::scripted::{Step, expect, greeted, on_each_network, send, wire};

/// More than the sockets of both sides hold.
const LONG_BYTES: usize = 24 << 20;

/// No deadline and no probe comes to the help of a queue that stands still.
fn without_deadlines(builder: ClientBuilder) -> Client {
    builder.timeout(Duration::from_secs(7200)).ping_after(Duration::from_secs(7200)).start()
}

fn long_set() -> CommandBuffer {
    CommandBuffer::new("SET").arg("a").shared_arg(Bytes::from(vec![b'x'; LONG_BYTES]))
}

/// A few turns of the loop, in which the connection sees the commands of its queue.
async fn turns() {
    for _ in 0..10 {
        task::spawn(async {}).await.expect("no panic");
    }
}

#[test]
fn commands_behind_a_long_transaction_are_sent_once_it_has_left() {
    let mut set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${LONG_BYTES}\r\n").into_bytes();
    set.resize(set.len() + LONG_BYTES, b'x');
    set.extend_from_slice(b"\r\n");
    let steps = greeted([
        expect("MULTI"),
        Step::Expect(set),
        expect("EXEC"),
        send("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n"),
        Step::Expect([wire("GET b"), wire("GET c")].concat()),
        send("$1\r\n2\r\n$1\r\n3\r\n"),
        Step::Hang,
    ]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let client = without_deadlines(builder);
            let of_transaction = client.clone();
            let transaction = task::spawn(async move { of_transaction.transaction([long_set()]).await });
            // It is in the queue, and the next command is sent behind it.
            task::spawn(async {}).await.expect("no panic");
            let b = client.cmd("GET").arg("b").send();
            task::sleep(Duration::from_millis(1)).await;
            let c = client.cmd("GET").arg("c").send();
            let results = transaction.await.expect("no panic");
            assert_eq!(results, Ok(Some(vec![OwnedValue::Simple("OK".into())])), "{:?}", client.last_failure());
            let bulk = |text: &'static str| Ok(OwnedValue::Bulk(text.into()));
            assert_eq!((b.await, c.await), (bulk("2"), bulk("3")));
        })
    });
}

#[test]
fn commands_expire_in_time_behind_bytes_that_the_server_does_not_read() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut hello = vec![0; wire("HELLO 3").len()];
            stream.read_exact(&mut hello).expect("HELLO");
            stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n").expect("it is sent");
            stream.read_exact(&mut [0]).expect("the first byte of SET");
            stream
        });
        let test = async move {
            let client = without_deadlines(Client::to(&address).expect("an address"));
            let long = client.call(long_set()).send();
            // It is on its way, and no further byte is read.
            let stream = tidegate_engine::blocking(|| server.join()).await.expect("a thread").expect("no panic");
            // The first one has a long time, so that its deadline does not wake the connection.
            let patient = client.cmd("GET").arg("b").send();
            turns().await;
            let hasty = client.cmd("GET").arg("c").timeout(Duration::from_millis(50));
            assert_eq!(hasty.await, Err(ClientError::NotSent(Failure::Deadline)));
            drop((long, patient, stream));
        };
        let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
        result.expect("the loop runs").expect("the command expires");
    }
}
