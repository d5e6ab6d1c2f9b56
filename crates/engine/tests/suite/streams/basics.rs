//! Messages both ways, ends, resets, drains.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Over, Slice};
use tidegate_engine::{
    Backend, Channel, ChannelError, Client, Context, EventLoop, Handler, Listener, Outcome, Server, SessionError, task,
};
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

use crate::streams::support::{BOTH, By, Echo, PATIENCE, ask, backends, lines, serve, until, with_session};

#[test]
fn streams_of_a_session_echo_side_by_side() {
    for backend in backends() {
        for by in BOTH {
            let config = ToyMuxConfig::default();
            let server = serve(backend, by, config);
            with_session(&server, backend, config, |session| async move {
                let mut channels: Vec<_> = (0..20).map(|_| session.open(lines()).expect("a stream")).collect();
                for round in 0..3 {
                    for (number, channel) in channels.iter_mut().enumerate() {
                        let line = format!("{round} on {number}");
                        assert_eq!(ask(channel, &line).await, line);
                    }
                }
                assert_eq!(session.streams(), Ok(20));
                for channel in channels {
                    channel.close().await.expect("all was in order");
                }
                assert_eq!(session.streams(), Ok(0));
            });
        }
    }
}

#[test]
fn a_megabyte_passes_through_small_windows() {
    for backend in backends() {
        for by in BOTH {
            let config = ToyMuxConfig { stream_window: 5_000, session_window: 7_000, streams_max: 10 };
            let server = serve(backend, by, config);
            with_session(&server, backend, config, |session| async move {
                let mut channel = session.open(lines()).expect("a stream");
                let line = "x".repeat(1 << 19);
                assert_eq!(ask(&mut channel, &line).await, line);
                assert_eq!(ask(&mut channel, &line).await, line);
            });
        }
    }
}

#[test]
fn a_handle_may_outlive_its_session_and_a_drain() {
    for backend in backends() {
        let config = ToyMuxConfig::default();
        let server = serve(backend, By::Task, config);
        let client = Client::at(server.address().clone());
        let mut event_loop = EventLoop::on(backend).unwrap();
        let session = event_loop
            .block_on(async {
                let session = client.open_session(ToyMux::client(config)).await.expect("it listens");
                assert_eq!(ask(&mut session.open(lines()).expect("a stream"), "ebb").await, "ebb");
                session
            })
            .expect("the loop waits");
        drop(server);
        until(|| {
            event_loop.turn(Some(Duration::from_millis(1))).expect("waiting does not fail");
            session.streams() == Err(SessionError::Closed)
        });
        assert!(matches!(session.open(lines()), Err(SessionError::Closed)));
        event_loop.drain(Duration::ZERO);
        event_loop.run().expect("nothing is left that the drain waits for");
        drop(session);
        assert_eq!(event_loop.counts().connections, 0);
    }
}

#[test]
fn a_panic_that_makes_a_stream_loses_that_stream_only() {
    let made = AtomicUsize::new(0);
    let config = ToyMuxConfig::default();
    let listener = Listener::bind("127.0.0.1:0").unwrap().handle_streams(
        move || ToyMux::server(config),
        move || {
            assert!(made.fetch_add(1, Ordering::Relaxed) != 1, "the second one");
            (lines(), Echo)
        },
    );
    let server = Server::new().loops(1).listener(listener).run().expect("the port is free");
    with_session(&server, Backend::Epoll, config, |session| async move {
        let mut good = session.open(lines()).expect("a stream");
        assert_eq!(ask(&mut good, "ebb").await, "ebb");
        let mut lost = session.open(lines()).expect("a stream");
        let error = lost.recv().await.expect_err("it was reset");
        assert!(error.to_string().contains("reset the stream with code 2"), "{error}");
        assert_eq!(ask(&mut good, "flow").await, "flow");
    });
    server.drain(PATIENCE);
}

#[test]
fn a_panic_between_two_applications_of_a_stream_loses_that_stream_only() {
    let config = ToyMuxConfig::default();
    for by in BOTH {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let listener = match by {
            By::Handler => listener.handle_streams(move || ToyMux::server(config), || (lines(), Switching)),
            By::Task => listener.serve_streams(move || ToyMux::server(config), lines, switching),
        };
        let server = Server::new().loops(1).listener(listener).run().expect("the port is free");
        let counts = |expected| until(|| server.counts().iter().all(|one| (one.connections, one.streams) == expected));
        with_session(&server, Backend::Epoll, config, |session| async move {
            let mut good = session.open(lines()).expect("a stream");
            assert_eq!(ask(&mut good, "ebb").await, "ebb", "by {by:?}");
            let mut lost = session.open(lines()).expect("a stream");
            lost.send("switch".to_owned().into()).expect("the stream is open");
            let error = lost.recv().await.expect_err("it was reset");
            assert!(error.to_string().contains("reset the stream with code 2"), "{error} by {by:?}");
            assert_eq!(ask(&mut good, "flow").await, "flow", "by {by:?}");
            counts((1, 1));
        });
        counts((0, 0));
        server.drain(PATIENCE);
    }
}

/// Sends lines back, and panics while it switches to another handler.
struct Switching;

impl Handler<Lines> for Switching {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match &*line {
            b"switch" => Outcome::switch(|_: Lines| -> (Lines, Echo) { panic!("on request") }),
            _ => cx.send(line.into()).into(),
        }
    }
}

/// The same as a task.
async fn switching(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
    while let Some(line) = channel.recv().await? {
        if &*line == b"switch" {
            return channel.switch(|_| -> Lines { panic!("on request") }).map(drop);
        }
        channel.send(line.into()).map_err(|_| ChannelError::Busy)?;
    }
    Ok(())
}

/// The task of a connection needs a stream to another server while its own server drains.
#[test]
fn streams_of_a_serving_task_outlast_the_begin_of_a_drain() {
    for backend in backends() {
        let config = ToyMuxConfig::default();
        let behind = serve(backend, By::Handler, config);
        let client = Client::at(behind.address().clone());
        let gateway = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
        let pass = move |mut channel: Channel<Lines>| {
            let client = client.clone();
            async move {
                let session = client.open_session(ToyMux::client(config)).await?;
                let mut stream = session.open(lines())?;
                channel.send("ready".into())?;
                while !channel.is_draining() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                let mut late = session.open(lines())?;
                let answers = format!("{} {}", ask(&mut stream, "ebb").await, ask(&mut late, "flow").await);
                channel.send(answers.into())?;
                Ok::<_, Box<dyn std::error::Error>>(())
            }
        };
        let gateway = gateway.serve(lines, pass).expect("the port is free");
        let mut peer = TcpStream::connect(gateway.address().ip().unwrap()).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = [0; 6];
        peer.read_exact(&mut received).unwrap();
        gateway.begin_drain(PATIENCE);
        let mut rest = String::new();
        peer.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "ebb flow\n");
        drop(peer);
        gateway.wait();
    }
}

#[test]
fn a_channel_becomes_a_session_once_its_handshake_is_over() {
    for backend in backends() {
        let config = ToyMuxConfig::default();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let mux = move || Over::new(ToyTls::server(3), ToyMux::server(config));
        let listener = listener.handle_streams(mux, || (lines(), Echo));
        let server = Server::new().loops(1).backend(backend).listener(listener).run().expect("the port is free");
        let client = Client::at(server.address().clone());
        let work = async move {
            let mut channel = client.connect(Over::new(ToyTls::client(3), Lines::new())).await.expect("it listens");
            poll_fn(|cx| channel.poll_established(cx)).await.expect("a handshake");
            // Again, it is over.
            poll_fn(|cx| channel.poll_established(cx)).await.expect("a handshake");
            let session = channel.into_session(move |lines| lines.map(|_| ToyMux::client(config))).expect("it is open");
            let mut streams: Vec<_> = (0..5).map(|_| session.open(lines()).expect("a stream")).collect();
            for (number, stream) in streams.iter_mut().enumerate() {
                assert_eq!(ask(stream, &number.to_string()).await, number.to_string());
            }
        };
        let mut event_loop = EventLoop::on(backend).unwrap();
        let result = event_loop.block_on(async { task::timeout(PATIENCE, work).await });
        result.expect("the loop waits").expect("it ends");
    }
}

#[test]
fn a_handshake_that_fails_is_an_error() {
    for backend in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = Client::at(listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 10]);
            stream.write_all(b"NO!!").expect("the client reads");
        });
        let work = async move {
            let mut channel = client.connect(Over::new(ToyTls::client(3), Lines::new())).await.expect("it listens");
            let failed = poll_fn(|cx| channel.poll_established(cx)).await;
            assert!(matches!(failed, Err(ChannelError::Closed(_))), "{failed:?}");
        };
        let mut event_loop = EventLoop::on(backend).unwrap();
        let result = event_loop.block_on(async { task::timeout(PATIENCE, work).await });
        result.expect("the loop waits").expect("it ends");
        server.join().expect("the server is good");
    }
}

#[test]
fn streams_of_a_session_that_fails_learn_of_it_at_once() {
    for backend in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = Client::at(listener.local_addr().expect("it is bound"));
        let (sender, is_over) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            // A frame of no type, and an end of the connection that does not come before the streams have closed.
            stream.write_all(&ToyMux::frame(99, 0, 1, b"ebb")).expect("the client reads");
            is_over.recv_timeout(PATIENCE).expect("the streams close");
        });
        let work = async move {
            let session = client.open_session(ToyMux::client(ToyMuxConfig::default())).await.expect("it listens");
            let mut stream = session.open(lines()).expect("a stream");
            stream.send("ebb".into()).expect("it is open");
            let error = stream.recv().await.expect_err("the session has failed").to_string();
            assert!(error.contains("its session is closed: "), "{error}");
            assert!(matches!(session.open(lines()), Err(SessionError::Closed)));
        };
        let mut event_loop = EventLoop::on(backend).unwrap();
        let result = event_loop.block_on(async { task::timeout(PATIENCE, work).await });
        result.expect("the loop waits").expect("it ends");
        sender.send(()).expect("the server waits");
        server.join().expect("the server is good");
    }
}
