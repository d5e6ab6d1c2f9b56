//! Clients: connecting to targets that answer, and to targets that do not.

use std::cell::RefCell;
use std::error::Error;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{
    Backend, Channel, Client, CloseReason, ConnectError, Context, Event, EventLoop, Handler, Outcome, Server,
    ServerHandle, task,
};
use tidegate_sys::Address;
use tidegate_testkit::ClosedPort;

type Any = Box<dyn Error>;

async fn echo(mut channel: Channel<Lines>) -> Result<(), Any> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.into())?;
    }
    Ok(())
}

fn server(address: &str) -> ServerHandle {
    Server::bind(address).unwrap().loops(1).serve(Lines::new, echo).unwrap()
}

fn block_on<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    EventLoop::readiness().unwrap().block_on(future).unwrap()
}

/// Sends a line, and receives the echo.
async fn ask(client: Client) -> Result<Vec<u8>, Any> {
    let mut channel = client.connect(Lines::new()).await?;
    channel.send("ebb".into())?;
    let answer = channel.recv().await?.ok_or("no answer")?.to_vec();
    channel.close().await?;
    Ok(answer)
}

/// A listener whose backlog is full, so that a connect gets no answer.
fn silent() -> (socket2::Socket, SocketAddr, Vec<socket2::Socket>) {
    let new = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = new();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    for _ in 0..8 {
        let filler = new();
        filler.set_nonblocking(true).unwrap();
        let _ = filler.connect(&address);
        fillers.push(filler);
    }
    let address = address.as_socket().unwrap();
    (listener, address, fillers)
}

#[test]
fn a_client_connects_to_an_address_over_ipv4_ipv6_and_unix() {
    let directory = std::env::temp_dir().join(format!("tidegate-client-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = format!("unix:{}", directory.join("socket").display());
    for address in ["127.0.0.1:0", "[::1]:0", &path] {
        let server = server(address);
        let client = Client::at(server.address().clone());
        assert_eq!(block_on(ask(client)).unwrap(), b"ebb", "{address}");
        server.drain(Duration::from_secs(5));
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_client_connects_to_a_name() {
    let server = server("127.0.0.1:0");
    let port = server.address().ip().unwrap().port();
    // Not `localhost:PORT`, which is an address already.
    let client = Client::to(&format!("LOCALHOST:{port}")).unwrap();
    assert_eq!(block_on(ask(client)).unwrap(), b"ebb");
}

#[test]
fn an_unresolvable_name_is_a_name_error() {
    let error = block_on(async { Client::to("nobody.invalid:80").unwrap().connect(Lines::new()).await }).unwrap_err();
    assert!(matches!(error, ConnectError::Name(..)), "{error:?}");
    assert!(error.to_string().contains("nobody.invalid"), "{error}");
}

#[test]
fn a_refused_connection_fails_at_once() {
    let closed = ClosedPort::tcp();
    let address = closed.address();
    let error = block_on(async move { Client::at(address).connect(Lines::new()).await }).unwrap_err();
    match error {
        ConnectError::Failed(tried, error) => {
            assert_eq!(tried, Address::Ip(address));
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connect_times_out_when_the_backlog_is_full() {
    let (_listener, address, _fillers) = silent();
    let client = Client::at(address).connect_timeout(Duration::from_millis(200));
    let error = block_on(async move { client.connect(Lines::new()).await }).unwrap_err();
    assert!(matches!(error, ConnectError::Timeout(Some(tried)) if tried == address), "{error:?}");
}

#[test]
fn a_peer_that_resets_at_once_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::at(listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let error: Any = block_on(async move {
        // The reset may come before or after the connect completes.
        let mut channel = client.connect(Lines::new()).await?;
        channel.recv().await.map(drop)?;
        Ok::<(), Any>(())
    })
    .unwrap_err();
    peer.join().unwrap();
    assert!(error.to_string().contains("reset"), "{error}");
}

#[test]
fn a_failed_address_is_followed_by_the_next_at_once() {
    let server = server("127.0.0.1:0");
    let (one, other) = (ClosedPort::tcp(), ClosedPort::tcp());
    let addresses = [one.address().into(), other.address().into(), server.address().clone()];
    let client = Client::at_each(addresses)
        .connection_attempt_delay(Duration::from_secs(600))
        .connect_timeout(Duration::from_secs(60));
    assert_eq!(block_on(ask(client)).unwrap(), b"ebb");
}

#[test]
fn a_silent_address_delays_the_next_by_the_attempt_delay() {
    let server = server("127.0.0.1:0");
    let (_listener, silent, _fillers) = silent();
    let addresses = [Address::Ip(silent), server.address().clone()];
    let client = Client::at_each(addresses)
        .connection_attempt_delay(Duration::from_millis(50))
        .connect_timeout(Duration::from_secs(60));
    assert_eq!(block_on(ask(client)).unwrap(), b"ebb");
}

#[test]
fn no_address_at_all_is_an_error() {
    let error = block_on(async { Client::at_each([]).connect(Lines::new()).await }).unwrap_err();
    assert!(matches!(error, ConnectError::NoAddress));
}

#[test]
fn a_client_connects_from_its_configured_local_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::at(listener.local_addr().unwrap()).local(SocketAddr::from(([127, 0, 0, 9], 0)));
    let channel = block_on(async move {
        let channel = client.connect(Lines::new()).await.unwrap();
        (channel.local().unwrap(), channel.peer().unwrap())
    });
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(channel, (Address::Ip(peer), Address::Ip(listener.local_addr().unwrap())));
    assert_eq!(peer.ip().to_string(), "127.0.0.9");
}

#[test]
fn dropping_the_connect_future_leaves_nothing_behind() {
    let (_listener, address, _fillers) = silent();
    let mut event_loop = EventLoop::readiness().unwrap();
    event_loop
        .block_on(async move {
            let client = Client::at(address);
            for _ in 0..100 {
                let given_up = task::timeout(Duration::from_millis(1), client.connect(Lines::new())).await;
                assert!(given_up.is_err());
            }
        })
        .unwrap();
    event_loop.drain(Duration::ZERO);
    assert!(event_loop.is_drained(), "an attempt is left");
}

#[test]
fn a_handler_can_be_a_client() {
    struct Collect(std::sync::mpsc::Sender<Vec<u8>>);
    impl Handler<Lines> for Collect {
        type Post = &'static str;

        fn message(&mut self, line: Slice, _: &mut Context<'_, Lines, &'static str>) -> Outcome<Lines> {
            self.0.send(line.to_vec()).unwrap();
            Outcome::Close
        }

        fn event(&mut self, event: Event<&'static str>, cx: &mut Context<'_, Lines, &'static str>) -> Outcome<Lines> {
            match event {
                Event::Posted(line) => cx.send(line.into()).into(),
                other => other.by_default(cx),
            }
        }
    }
    let server = server("127.0.0.1:0");
    let client = Client::at(server.address().clone());
    let (lines, collected) = std::sync::mpsc::channel();
    let mut event_loop = EventLoop::readiness().unwrap();
    event_loop
        .block_on(async move {
            let remote = client.connect_with(Lines::new(), Collect(lines)).await.unwrap();
            remote.post("flow").unwrap();
        })
        .unwrap();
    while event_loop.counts().connections > 0 || event_loop.counts().closed_done == 0 {
        event_loop.turn(Some(Duration::from_secs(10))).unwrap();
    }
    assert_eq!(collected.recv().unwrap(), b"flow");
}

#[test]
fn a_thousand_connects_at_once_all_complete() {
    let server = server("127.0.0.1:0");
    let address = server.address().clone();
    let answered = block_on(async move {
        let asked: Vec<_> = (0..1000).map(|_| task::spawn(ask(Client::at(address.clone())))).collect();
        let mut answered = 0;
        for asked in asked {
            answered += usize::from(asked.await.unwrap().unwrap() == b"ebb");
        }
        answered
    });
    assert_eq!(answered, 1000);
}

#[test]
fn bytes_that_came_before_the_first_recv_are_received() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::at(listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 ready\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let greeting = block_on(async move {
        let mut channel = client.connect(Lines::new()).await.unwrap();
        task::sleep(Duration::from_millis(20)).await;
        let greeting = channel.recv().await.unwrap().unwrap().to_vec();
        channel.send("QUIT".into()).unwrap();
        channel.close().await.unwrap();
        greeting
    });
    assert_eq!((greeting, peer.join().unwrap()), (b"220 ready".to_vec(), b"QUIT\n".to_vec()));
}

/// Polls a future once and asserts that it is pending.
async fn begin(future: impl Future + Unpin) {
    let mut future = future;
    poll_fn(|cx| {
        assert!(Pin::new(&mut future).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[test]
fn a_drain_does_not_wait_for_a_connect_future_that_is_not_polled() {
    let (_listener, address, _fillers) = silent();
    let mut event_loop = EventLoop::readiness().unwrap();
    let _kept = event_loop
        .block_on(async move {
            let mut connect = Client::at(address).connect(Lines::new());
            begin(&mut connect).await;
            [connect]
        })
        .unwrap();
    event_loop.drain(Duration::from_millis(20));
    let begun = Instant::now();
    while !event_loop.is_drained() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
        event_loop.turn(Some(Duration::from_millis(10))).unwrap();
    }
}

#[test]
fn an_infinite_attempt_delay_tries_one_address_at_a_time() {
    let ((_first, first, _), (_second, second, _)) = (silent(), silent());
    let shown = block_on(async move {
        let client = Client::at_each([first.into(), second.into()]).connection_attempt_delay(Duration::MAX);
        let mut connect = client.connect(Lines::new());
        begin(&mut connect).await;
        format!("{connect:?}")
    });
    assert!(shown.contains(&first.to_string()) && !shown.contains(&second.to_string()), "{shown}");
    let (closed, server) = (ClosedPort::tcp(), server("127.0.0.1:0"));
    let addresses = [closed.address().into(), server.address().clone()];
    assert_eq!(block_on(ask(Client::at_each(addresses).connection_attempt_delay(Duration::MAX))).unwrap(), b"ebb");
}

#[test]
fn a_deadline_set_between_two_turns_counts_from_the_present() {
    let server = server("127.0.0.1:0");
    let client = Client::at(server.address().clone());
    let mut event_loop = EventLoop::readiness().unwrap();
    let _channel = event_loop.block_on(async move { client.connect(Lines::new()).await.unwrap() }).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    event_loop.drain(Duration::from_millis(30));
    let begun = Instant::now();
    event_loop.run().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(25), "after {:?}", begun.elapsed());
}

#[test]
fn bytes_sent_before_a_reset_are_received_although_a_send_fails() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        for is_whole in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::from(listener.local_addr().unwrap());
            let received = event_loop.block_on(async move {
                let mut channel = Client::at(address).connect(Lines::new()).await?;
                let position = channel.send("a request".into())?;
                // It receives from now on.
                let is_waiting = poll_fn(|cx| Poll::Ready(channel.poll_recv(cx).is_pending())).await;
                assert!(is_waiting);
                channel.flushed(position).await?;
                // The loop stands still until the peer has reset the connection, since it has not read all of the request.
                let (mut peer, _) = listener.accept()?;
                peer.read_exact(&mut [0])?;
                peer.write_all(b"early\nagain\n")?;
                drop(peer);
                let received = if is_whole {
                    channel.send("more of it".into())?;
                    [channel.recv().await, channel.recv().await, channel.recv().await]
                } else {
                    let (mut reader, mut writer) = channel.split();
                    writer.send("more of it".into())?;
                    [reader.recv().await, reader.recv().await, reader.recv().await]
                };
                Ok::<_, Any>(received.map(|line| line.map(|line| line.map(|line| line.to_vec()))))
            });
            let [first, second, end] = received.unwrap().unwrap();
            assert_eq!(
                first.unwrap_or_else(|error| panic!("{backend:?} {is_whole}: {error}")),
                Some(b"early".to_vec()),
                "{backend:?}"
            );
            assert_eq!(second.unwrap(), Some(b"again".to_vec()), "{backend:?}");
            let error = end.unwrap_err().to_string();
            assert!(error.contains("broke"), "{backend:?}: {error}");
        }
    }
}

#[test]
fn bytes_sent_before_a_reset_are_received_although_no_task_read_then() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        for sends in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::from(listener.local_addr().unwrap());
            let received = event_loop.block_on(async move {
                let mut channel = Client::at(address).connect(Lines::new()).await?;
                let position = channel.send("a request".into())?;
                channel.flushed(position).await?;
                // The loop stands still until the peer has reset the connection, since it has not read all of the request.
                let (mut peer, _) = listener.accept()?;
                peer.read_exact(&mut [0])?;
                peer.write_all(b"early\nagain\n")?;
                drop(peer);
                if sends {
                    channel.send("more of it".into())?;
                }
                // The connection closes, and nothing has read yet.
                while channel.ready().await.is_ok() {
                    let mut was_polled = false;
                    poll_fn(|cx| {
                        cx.waker().wake_by_ref();
                        if std::mem::replace(&mut was_polled, true) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                }
                Ok::<_, Any>([channel.recv().await, channel.recv().await, channel.recv().await])
            });
            let [first, second, end] = received.unwrap().unwrap();
            let first = first.unwrap_or_else(|error| panic!("{backend:?}, sends: {sends}: {error}"));
            assert_eq!(first.as_deref(), Some(&b"early"[..]), "{backend:?}, sends: {sends}");
            assert_eq!(second.unwrap().as_deref(), Some(&b"again"[..]), "{backend:?}, sends: {sends}");
            assert!(end.unwrap_err().to_string().contains("broke"), "{backend:?}, sends: {sends}");
        }
    }
}

/// Sends a line, and another one once it has the peer's end of the connection: the peer sends lines and resets the
/// connection before that.
struct Sends {
    lines: Rc<RefCell<Vec<Vec<u8>>>>,
    reason: Rc<RefCell<String>>,
}

impl Handler<Lines> for Sends {
    type Post = TcpStream;

    fn open(&mut self, cx: &mut Context<'_, Lines, TcpStream>) -> Outcome<Lines> {
        cx.send("a request".into()).into()
    }

    fn message(&mut self, line: Slice, _: &mut Context<'_, Lines, TcpStream>) -> Outcome<Lines> {
        self.lines.borrow_mut().push(line.to_vec());
        Outcome::Continue
    }

    fn event(&mut self, event: Event<TcpStream>, cx: &mut Context<'_, Lines, TcpStream>) -> Outcome<Lines> {
        match event {
            Event::Posted(mut peer) => {
                peer.write_all(b"early\nagain\n").unwrap();
                drop(peer);
                cx.send("more of it".into()).into()
            }
            other => other.by_default(cx),
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        *self.reason.borrow_mut() = reason.to_string();
    }
}

#[test]
fn a_handler_gets_messages_from_before_a_failed_send() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let (lines, reason) = (Rc::default(), Rc::default());
        let handler = Sends { lines: Rc::clone(&lines), reason: Rc::clone(&reason) };
        event_loop
            .block_on(async move {
                let remote = Client::at(address).connect_with(Lines::new(), handler).await.unwrap();
                let (peer, _) = listener.accept().unwrap();
                peer.set_nonblocking(true).unwrap();
                while peer.peek(&mut [0]).is_err() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                remote.post(peer).unwrap();
                while !remote.is_closed() {
                    task::sleep(Duration::from_millis(1)).await;
                }
            })
            .unwrap();
        assert_eq!(*lines.borrow(), [b"early", b"again"], "{backend:?}");
        assert!(reason.borrow().contains("broke"), "{backend:?}: {}", reason.borrow());
    }
}
