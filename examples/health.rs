//! A health checker: sends a line to many addresses, a thousand at a time, and waits for the echo, with deadlines.
//!
//! ```text
//! cargo run --example health                                       # checks five servers of its own, and exits
//! cargo run --example health -- 127.0.0.1:7000 example.com:7       # checks these: they should echo a line
//! ```
//!
//! It runs on one thread. A check connects, sends a line and waits for one; the number of worker tasks bounds the
//! checks in flight. The example's own servers accept few connections at a time and leave the others in the kernel's
//! backlog, so that both sides together need about 1,200 descriptors.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate::framing::Lines;
use tidegate::{
    Backend, Channel, ChannelError, Client, ConnectError, EventLoop, Limits, Server, ServerHandle, StartError, task,
};

type Any = Box<dyn Error>;

/// Performs one check, and returns its outcome.
async fn check(client: &Client) -> &'static str {
    let mut channel = match client.connect(Lines::new()).await {
        Ok(channel) => channel,
        Err(ConnectError::Timeout(_)) => return "no connection in time",
        Err(ConnectError::Failed(_, error)) if error.kind() == io::ErrorKind::ConnectionRefused => return "refused",
        Err(_) => return "unreachable",
    };
    if channel.send("are you well?".into()).is_err() {
        return "broken";
    }
    match channel.recv().within(ANSWER_TIMEOUT).await {
        Ok(Some(_)) => "answered",
        Ok(None) => "ended without an answer",
        Err(ChannelError::Deadline) => "no answer in time",
        Err(_) => "broken",
    }
}

/// The count of each outcome of each target.
type Outcomes = BTreeMap<(usize, &'static str), usize>;

/// Shared state of the workers. They live on one thread, so cells are enough.
struct Round {
    clients: Vec<Client>,
    total: usize,
    begun: Cell<usize>,
    ended: Cell<usize>,
    /// The maximum number of checks in flight.
    most: Cell<usize>,
    outcomes: RefCell<Outcomes>,
}

async fn worker(round: Rc<Round>) {
    while round.begun.get() < round.total {
        let target = round.begun.replace(round.begun.get() + 1) % round.clients.len();
        round.most.set(round.most.get().max(round.begun.get() - round.ended.get()));
        let outcome = check(&round.clients[target]).await;
        round.ended.set(round.ended.get() + 1);
        *round.outcomes.borrow_mut().entry((target, outcome)).or_default() += 1;
    }
}

/// Checks each client `times` times.
async fn check_all(clients: Vec<Client>, times: usize) -> Rc<Round> {
    let total = clients.len() * times;
    let (begun, ended, most, outcomes) = Default::default();
    let round = Rc::new(Round { clients, total, begun, ended, most, outcomes });
    // The default limit of connections is three quarters of the descriptor limit.
    let workers = IN_FLIGHT.min(Limits::default().connections_max / 2).min(total);
    let workers: Vec<_> = (0..workers).map(|_| task::spawn(worker(round.clone()))).collect();
    for worker in workers {
        // No task is cancelled. A panic was logged, and its check is missing from the table.
        let _ = worker.await;
    }
    round
}

/// A server that echoes each line after `answer_after`, or never, and serves `connections_max` connections at a time.
fn start(connections_max: usize, answer_after: Option<Duration>) -> Result<ServerHandle, StartError> {
    let limits = Limits { connections_max, ..Limits::default() };
    Server::bind("127.0.0.1:0")?.loops(1).limits(limits).serve(
        Lines::new,
        move |mut channel: Channel<Lines>| async move {
            while let Some(line) = channel.recv().await? {
                if let Some(after) = answer_after {
                    task::sleep(after).await;
                    channel.send(line.into())?;
                }
            }
            Ok::<_, Any>(())
        },
    )
}

/// A listener that resets every connection: it closes with unread bytes.
fn start_resetting() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| stream.peek(&mut [0]).map(drop)));
    Ok(address)
}

fn main() -> Result<(), Any> {
    let mut names: Vec<_> = std::env::args().skip(1).collect();
    if !names.is_empty() {
        return run(&names, &names, 1).map(drop);
    }
    let well = start(50, Some(Duration::ZERO))?;
    let slow = start(100, Some(Duration::from_millis(50)))?;
    let silent = start(50, None)?;
    // A port that was bound and closed again, so that no other process listens on it.
    let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let targets = [well.address(), slow.address(), silent.address(), &closed.into(), &start_resetting()?.into()];
    let targets = targets.map(ToString::to_string);
    names.extend(["well", "slow", "silent", "closed", "resetting"].map(String::from));
    let outcomes = run(&names, &targets, 1000)?;
    for (target, expected) in ["answered", "answered", "no answer in time", "refused", "broken"].iter().enumerate() {
        assert!(outcomes.contains_key(&(target, expected)), "{} is never {expected}", names[target]);
    }
    Ok(())
}

fn run(names: &[String], targets: &[String], times: usize) -> Result<Outcomes, Any> {
    let clients = targets.iter().map(|target| Ok(Client::to(target)?.connect_timeout(CONNECT_TIMEOUT)));
    let clients = clients.collect::<Result<Vec<_>, Any>>()?;
    let begun = Instant::now();
    let round = EventLoop::on(Backend::Auto)?.block_on(check_all(clients, times))?;
    for ((target, outcome), count) in &*round.outcomes.borrow() {
        println!("{:<20} {outcome:<24} {count:>5}", names[*target]);
    }
    println!("{} checks under way at once, {} ms in all", round.most.get(), begun.elapsed().as_millis());
    Ok(round.outcomes.take())
}

const IN_FLIGHT: usize = 1000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
