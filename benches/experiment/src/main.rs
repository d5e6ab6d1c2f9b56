//! The experiment that the outbound queue grew from: Netty's change #2693 (2014) and the next step after it.
//!
//! Three queues do the same work: the one *before* the change, with two growing arrays in every connection
//! ([`mod@array`]); the *linked* one of the change ([`linked`]); and the one of this project ([`coalescing`]). The table
//! that is printed says what each of them costs in bytes, allocations and instructions. `docs/queue-experiment.md`
//! explains it.
//!
//! ```text
//! cargo run --release -p tidegate-experiment
//! ```

#![forbid(unsafe_code)]

mod array;
mod callgrind;
mod coalescing;
mod linked;
mod memory;
mod queue;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::memory::Memory;
use crate::queue::{BURST, Queue, RESPONSE, Shared};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => print_table(),
        // What runs below callgrind.
        [callgrind::COUNT, name, connections, bursts] => match (connections.parse(), bursts.parse()) {
            (Ok(connections), Ok(bursts)) => count(name, connections, bursts),
            _ => return usage(),
        },
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: tidegate-experiment");
    ExitCode::from(2)
}

fn print_table() {
    println!(
        "{BURST} responses of {} bytes in a burst. Bytes and instructions are those of user space.\n",
        RESPONSE.len()
    );
    println!(
        "| queue | connections | bytes fresh | bytes idle after a burst | kept by the thread then | bytes with {BURST} \
         pending | of it not payload | allocations per burst | instructions per response |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let counts = callgrind::is_there();
    for connections in CONNECTIONS {
        print_row::<array::Array>(connections, counts);
        print_row::<linked::Linked>(connections, counts);
        print_row::<coalescing::Coalescing>(connections, counts);
    }
    match counts.then(|| callgrind::instructions_per_burst(linked::Messages::NAME, 1)).flatten() {
        Some(count) => println!(
            "\nOf the instructions of the first two, {} allocate, fill and free the message itself; ours copies it.",
            count / BURST as u64
        ),
        None => println!("\nInstructions are not counted: valgrind is not installed."),
    }
}

fn print_row<Q: Queue>(connections: usize, counts: bool) {
    let Memory { fresh, idle, thread, pending, allocations } = memory::measure::<Q>(connections);
    let payload = BURST * RESPONSE.len();
    let instructions = if counts { callgrind::instructions_per_burst(Q::NAME, connections) } else { None };
    let instructions = instructions.map_or_else(|| "–".into(), |count| (count / BURST as u64).to_string());
    println!(
        "| {} | {connections} | {fresh} | {idle} | {thread} | {pending} | {} | {allocations:.2} | {instructions} |",
        Q::NAME,
        pending.saturating_sub(payload),
    );
}

/// Does the work and prints nothing, so that somebody else can count it.
fn count(name: &str, connections: usize, bursts: usize) {
    match name {
        array::Array::NAME => run::<array::Array>(connections, bursts),
        linked::Linked::NAME => run::<linked::Linked>(connections, bursts),
        coalescing::Coalescing::NAME => run::<coalescing::Coalescing>(connections, bursts),
        linked::Messages::NAME => run::<linked::Messages>(connections, bursts),
        _ => eprintln!("there is no queue of the name {name}"),
    }
}

fn run<Q: Queue>(connections: usize, bursts: usize) {
    let mut shared = Shared::<Q>::new();
    let mut queues: Vec<Q> = (0..connections).map(|_| Q::new(&shared.of_queues)).collect();
    for index in 0..bursts {
        shared.burst(&mut queues[index % connections]);
    }
}

const CONNECTIONS: [usize; 3] = [1, 1_000, 10_000];
