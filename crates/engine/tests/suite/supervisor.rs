//! Signals to a server's process, and its notifications of a service manager. One test, since signals are for all of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tidegate::framing::Lines;
use tidegate::{Channel, ChannelError, Server, ServerEnd, ServerHandle, ServiceManager, Supervisor};

use crate::server::support::uninterrupted;

/// Echoes lines, even while the server drains: the first `None` is that of the drain.
async fn echo(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
    for _ in 0..2 {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into())?;
        }
    }
    Ok(())
}

fn start() -> ServerHandle {
    Server::bind("127.0.0.1:0").unwrap().loops(1).serve(Lines::default, echo).expect("it starts")
}

fn connect(server: &ServerHandle) -> TcpStream {
    let mut stream = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    stream.write_all(b"ebb\n").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ebb\n");
    stream
}

fn signal(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn signals_reload_drain_and_cut_short_and_the_service_manager_learns_of_it() {
    let folder = std::env::temp_dir().join(format!("tidegate-supervisor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let next = || {
        let mut text = [0; 1024];
        let length = uninterrupted(|| socket.recv(&mut text)).expect("a notification");
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let manager = || ServiceManager::at(path.to_str().unwrap().as_bytes()).unwrap();

    // A reload, then a drain that waits for a connection.
    let reloads = Arc::new(AtomicU32::new(0));
    let counted = reloads.clone();
    let supervisor = Supervisor::new().unwrap().service_manager(manager());
    let supervisor = supervisor
        .on_hangup(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    let server = start();
    let connection = connect(&server);
    let (ended, end) = mpsc::channel();
    let running = server.clone();
    let run = std::thread::spawn(move || ended.send(supervisor.run(&running, Duration::from_secs(3600)).unwrap()));
    assert!(next().starts_with("READY=1\nSTATUS=listening on 127.0.0.1:"));
    signal(Signal::HUP);
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(next().starts_with("READY=1\n"));
    assert_eq!(reloads.load(Ordering::Relaxed), 1);
    signal(Signal::TERM);
    assert!(next().starts_with("STOPPING=1\n"));
    assert!(end.try_recv().is_err(), "the connection is not done");
    drop(connection);
    assert_eq!(end.recv(), Ok(ServerEnd::Drained));
    run.join().unwrap().unwrap();

    // A second signal, and a watchdog.
    let watched = manager().with_watchdog(Duration::from_millis(20));
    let supervisor = Supervisor::new().unwrap().service_manager(watched);
    let server = start();
    let connection = connect(&server);
    let running = server.clone();
    let run = std::thread::spawn(move || supervisor.run(&running, Duration::from_secs(3600)).unwrap());
    let until = |wanted: &str| while !next().starts_with(wanted) {};
    until("READY=1\n");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    signal(Signal::INT);
    until("STOPPING=1\n");
    signal(Signal::INT);
    assert_eq!(run.join().unwrap(), ServerEnd::CutShort);
    drop(connection);
    std::fs::remove_dir_all(&folder).unwrap();
}
