//! Several listeners on one set of loops: their protocols, limits, counts, start and end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::{LengthField, Lines};
use tidegate_engine::{
    Channel, ChannelError, Context, Handler, Limits, Listener, LoadBalancing, Outcome, ServedListener, Server,
    ServerHandle, StartError,
};
use tidegate_sys::Address;

use crate::server::support::{Commands, PATIENCE, SocketPath, ask, bounded, has_ended, sum, until};

/// Sends frames back.
async fn frames(mut channel: Channel<LengthField>) -> Result<(), ChannelError> {
    while let Some(frame) = channel.recv().await? {
        channel.send(frame.into())?;
    }
    Ok(())
}

fn lines(listener: Listener) -> ServedListener {
    listener.handle(|| (Lines::new(), Commands::default()))
}

fn local() -> Listener {
    Listener::bind("127.0.0.1:0").expect("an address")
}

/// A connection to an address of a listener, both by number.
fn connect(server: &ServerHandle, listener: usize, address: usize) -> TcpStream {
    let address = server.listeners()[listener].addresses()[address].ip().expect("it listens on TCP");
    bounded(TcpStream::connect(address).expect("it listens"))
}

#[test]
fn each_listener_has_its_protocol_addresses_and_counts_and_one_drain_ends_all() {
    for balancing in [LoadBalancing::Kernel, LoadBalancing::LeastLoaded] {
        let path = SocketPath::new(&format!("listeners-{balancing:?}"));
        let unix = format!("unix:{}", path.0.display());
        let server = Server::new()
            .loops(2)
            .load_balancing(balancing)
            .listener(lines(local().and_bind(&unix).expect("an address").label("lines")))
            .listener(local().label("frames").serve(|| LengthField::new(1), frames))
            .run()
            .expect("the addresses are free");
        assert_eq!(server.listeners().iter().map(|listener| listener.label()).collect::<Vec<_>>(), ["lines", "frames"]);
        assert_eq!(server.listeners()[0].addresses()[1].to_string(), unix);
        assert_eq!(server.address(), &server.listeners()[0].addresses()[0]);

        let mut tcp: Vec<_> = (0..4).map(|_| connect(&server, 0, 0)).collect();
        for client in &mut tcp {
            assert_eq!(ask(client, "over TCP"), "over TCP");
        }
        let mut local = UnixStream::connect(&path.0).expect("it listens");
        local.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(ask(&mut local, "over Unix"), "over Unix");
        let mut framed = connect(&server, 1, 0);
        framed.write_all(b"\x03ebb").unwrap();
        let mut frame = [0; 4];
        framed.read_exact(&mut frame).unwrap();
        assert_eq!(&frame, b"\x03ebb");

        let counts = || {
            server.listeners().iter().map(|listener| (listener.counts().accepted(), listener.counts().connections()))
        };
        assert_eq!(counts().collect::<Vec<_>>(), [(5, 5), (1, 1)]);
        tcp.truncate(1);
        until(|| counts().collect::<Vec<_>>() == [(5, 2), (1, 1)]);
        until(|| sum(&server, |counts| counts.connections) == 3);
        assert_eq!(sum(&server, |counts| counts.accepted), 6);

        server.begin_drain(PATIENCE);
        assert!(has_ended(&mut tcp[0]) && has_ended(&mut local) && has_ended(&mut framed));
        drop((tcp, local, framed));
        server.wait();
        assert_eq!(counts().collect::<Vec<_>>(), [(5, 0), (1, 0)]);
    }
}

#[test]
fn a_server_with_its_own_address_may_have_further_listeners() {
    let server = Server::bind("127.0.0.1:0").unwrap().and_bind("127.0.0.1:0").unwrap().loops(1);
    let server = server.listener(local().serve(|| LengthField::new(1), frames));
    let server = server.start(|| (Lines::new(), Commands::default())).expect("the addresses are free");
    assert_eq!(server.listeners().iter().map(|listener| listener.addresses().len()).collect::<Vec<_>>(), [2, 1]);
    for address in 0..2 {
        assert_eq!(ask(&mut connect(&server, 0, address), "ebb"), "ebb");
    }
    let mut framed = connect(&server, 1, 0);
    framed.write_all(b"\0").unwrap();
    framed.read_exact(&mut [1]).unwrap();
}

#[test]
fn addresses_that_cannot_be_used_are_all_named_and_nothing_starts() {
    let taken: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let taken: Vec<_> = taken.iter().map(|listener| (listener, listener.local_addr().unwrap())).collect();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = SocketPath::new("not-started");
    for loops in [1, 2] {
        let error = Server::new()
            .loops(loops)
            .listener(lines(Listener::at(free.into()).and_at(taken[0].1.into()).and_at(Address::Unix(path.0.clone()))))
            .listener(lines(Listener::at(taken[1].1.into())))
            .run()
            .expect_err("two addresses are in use");
        let StartError::Several(errors) = &error else { panic!("two errors: {error}") };
        assert!(errors.iter().all(|error| matches!(error, StartError::InUse(_))), "{error}");
        for (_, address) in &taken {
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
        assert!(TcpStream::connect(free).is_err(), "the free address was given back");
        assert!(!path.0.exists(), "the file of the socket was removed");
    }
}

#[test]
fn an_address_that_is_named_twice_is_in_use() {
    let free: Address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
    for loops in [1, 2] {
        let twice = Listener::at(free.clone()).and_at(free.clone());
        let error = Server::new().loops(loops).listener(lines(twice)).run().expect_err("the first has it");
        assert!(matches!(&error, StartError::InUse(address) if *address == free), "{error}");
    }
}

#[test]
fn a_server_that_nothing_serves_is_an_error() {
    assert!(matches!(Server::new().run(), Err(StartError::NoListener)));
    assert!(matches!(Server::new().listener(lines(Listener::default())).run(), Err(StartError::NoListener)));
    assert!(matches!(Server::bind("127.0.0.1:0").unwrap().run(), Err(StartError::NotServed)));
}

/// Never answers.
struct Silent;

impl Handler<Lines> for Silent {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        Outcome::Continue
    }
}

#[test]
fn limits_of_a_listener_are_its_own_and_those_of_the_server_are_shared() {
    let limits = |connections_max| Limits { connections_max, ..Limits::default() };
    let server = Server::new()
        .loops(1)
        .limits(limits(2))
        .listener(lines(local()))
        .listener(local().handle(|| (Lines::new(), Silent)))
        .listener(lines(local().limits(limits(1))))
        .run()
        .expect("the addresses are free");
    let mut first = connect(&server, 0, 0);
    assert_eq!(ask(&mut first, "ebb"), "ebb");
    let _second = connect(&server, 1, 0);
    until(|| server.listeners()[1].counts().connections() == 1);
    // The server's limit is reached by two listeners together.
    let mut third = connect(&server, 0, 0);
    third.write_all(b"waits\n").unwrap();
    let mut own = connect(&server, 2, 0);
    assert_eq!(ask(&mut own, "ebb"), "ebb");
    third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "there is no room");
    assert_eq!(server.listeners()[0].counts().connections(), 1);
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(crate::server::support::read_line(&mut third), "waits");
    assert_eq!(server.listeners()[2].counts().connections(), 1);
}

#[test]
fn a_successor_keeps_the_sockets_of_its_addresses_and_opens_the_others() {
    let (path, kept) = (SocketPath::new("listeners-takeover"), SocketPath::new("listeners-kept"));
    let unix = || Listener::at(Address::Unix(kept.0.clone())).label("unix");
    let old = Server::new().loops(2).takeover(&path.0).listener(lines(unix())).listener(lines(local()));
    let old = old.run().expect("the addresses are free");
    let gone = old.listeners()[1].addresses()[0].ip().unwrap();
    // In the queue of the socket that both have, or served by the first.
    let mut client = UnixStream::connect(&kept.0).unwrap();
    let new_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let new = Server::new().loops(2).takeover(&path.0);
    let new = new.listener(lines(Listener::at(new_address.into()))).listener(lines(unix()));
    let new = new.run().expect("it takes over");
    assert!(old.superseded().wait());
    assert_eq!(new.listeners()[1].addresses(), [Address::Unix(kept.0.clone())]);
    assert_eq!(ask(&mut connect(&new, 0, 0), "ebb"), "ebb");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut client, "ebb"), "ebb");
    old.begin_drain(PATIENCE);
    drop(client);
    old.wait();
    until(|| TcpStream::connect(gone).is_err());
    let mut client = UnixStream::connect(&kept.0).expect("the successor has the socket");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut client, "flow"), "flow");
}
