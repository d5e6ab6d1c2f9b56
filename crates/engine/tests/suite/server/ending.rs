//! Drains, and ends without one.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, ChannelError, Limits, LoadBalancing, Server, ServerHandle};

use crate::server::support::{PATIENCE, ask, connect, has_ended, port, read_line, serve, start, sum, until};

#[test]
fn a_drain_ends_idle_connections_finishes_busy_ones_and_refuses_new_ones() {
    let server = serve(2, Limits::default());
    let address = port(&server);
    let mut idle: Vec<_> = (0..10).map(|_| connect(&server)).collect();
    for client in &mut idle {
        ask(client, "ebb");
    }
    let mut busy = connect(&server);
    busy.write_all(b"work\n").unwrap();
    until(|| sum(&server, |counts| counts.messages) == 11);
    let drain = std::thread::spawn(move || server.drain(PATIENCE));
    for client in &mut idle {
        assert!(has_ended(client));
    }
    // Listeners are closed before connections are notified.
    until(|| TcpStream::connect(address).is_err());
    assert_eq!(read_line(&mut busy), "done");
    assert!(has_ended(&mut busy));
    drop((idle, busy));
    drain.join().unwrap();
}

#[test]
fn the_deadline_of_a_drain_cuts_off_remaining_connections() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    client.write_all(b"stay\n").unwrap();
    ask(&mut client, "heard");
    server.drain(Duration::from_millis(50));
    assert!(has_ended(&mut client));
}

#[test]
fn a_clone_begins_a_drain_reads_the_counts_and_cuts_the_drain_short() {
    // Both loops have connections: a loop without one ends as soon as the drain begins.
    let server = start(Server::bind("127.0.0.1:0").unwrap().loops(2).load_balancing(LoadBalancing::LeastLoaded));
    let mut clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = connect(&server);
            client.write_all(b"stay\n").unwrap();
            ask(&mut client, "heard");
            client
        })
        .collect();
    let clone = server.clone();
    let waiting = std::thread::spawn(move || server.wait());
    clone.begin_drain(PATIENCE);
    until(|| TcpStream::connect(port(&clone)).is_err());
    assert!(!clone.wait_timeout(Duration::from_millis(20)), "it waits for connections that stay");
    assert!(clone.all_loops_run() && !waiting.is_finished());
    clients.truncate(3);
    // A longer deadline changes nothing.
    clone.begin_drain(PATIENCE * 2);
    until(|| sum(&clone, |counts| counts.connections) == 3);
    clone.begin_drain(Duration::ZERO);
    assert!(clients.iter_mut().all(has_ended));
    waiting.join().unwrap();
    assert!(clone.wait_timeout(Duration::ZERO) && !clone.all_loops_run());
    assert_eq!(sum(&clone, |counts| counts.closed_drained), 3);
}

#[test]
fn only_the_last_handle_ends_the_server() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    drop(server.clone());
    ask(&mut client, "ebb");
    drop(server);
    assert!(has_ended(&mut client));
}

#[test]
fn a_drain_waits_for_slow_readers() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    client.write_all(b"big\n").unwrap();
    until(|| server.counts()[0].messages == 1);
    let drain = std::thread::spawn(move || server.drain(PATIENCE));
    let mut seen = Vec::new();
    std::io::Read::read_to_end(&mut client, &mut seen).unwrap();
    assert_eq!(seen.len(), crate::server::support::BIG_BYTES);
    drop(client);
    drain.join().unwrap();
}

#[test]
fn dropping_a_server_ends_it() {
    let server = serve(2, Limits::default());
    let address = port(&server);
    let mut clients: Vec<_> = (0..10).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.write_all(b"stay\n").unwrap();
        ask(client, "heard");
    }
    drop(server);
    for client in &mut clients {
        assert!(has_ended(client));
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_server_ends_while_connections_keep_coming() {
    let server = serve(2, Limits { connections_max: 4, ..Limits::default() });
    let address = port(&server);
    let crowd = std::thread::spawn(move || {
        // Some are served, some wait in the kernel, some are refused in the end.
        let mut clients = Vec::new();
        while let Ok(client) = TcpStream::connect(address) {
            clients.push(client);
            if clients.len() > 100 {
                clients.clear();
            }
        }
    });
    until(|| sum(&server, |counts| counts.accepted) > 4);
    server.drain(Duration::from_millis(50));
    crowd.join().unwrap();
}

#[test]
fn a_task_may_drain_its_own_server() {
    let slot: Arc<Mutex<Option<ServerHandle>>> = Arc::default();
    let (ends, (sender, receiver)) = (slot.clone(), channel());
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).serve(Lines::new, move |mut channel: Channel<Lines>| {
        let (ends, sender) = (ends.clone(), sender.clone());
        async move {
            channel.recv().await?;
            let server = ends.lock().unwrap().take();
            server.into_iter().for_each(|server| server.drain(Duration::from_millis(50)));
            sender.send(()).unwrap();
            Ok::<_, ChannelError>(())
        }
    });
    let server = server.unwrap();
    let (mut client, address) = (connect(&server), port(&server));
    *slot.lock().unwrap() = Some(server);
    client.write_all(b"end\n").unwrap();
    receiver.recv_timeout(PATIENCE).expect("it did not panic");
    until(|| TcpStream::connect(address).is_err());
}
