//! The experiment behind the outbound queue: Netty's change #2693 (2014), and our further step.
//!
//! This program measures the queue that it was built with, and prints its costs as one JSON object: ours, or with
//! `--cfg tidegate_queue="array"` or `"linked"` one of the two designs in `array/` and `linked/`, which then replace
//! `tidegate_buffer::Outbound`, here and in the server. `docs/queue-experiment.md` explains it, and
//! `tidegate experiment` runs all of it.
//!
//! ```text
//! RUSTFLAGS='--cfg tidegate_queue="linked"' cargo --config 'paths=["benches/experiment/buffer"]' run --profile dist -p tidegate-experiment -- --depth 256
//! ```

#![forbid(unsafe_code)]

mod burst;
mod callgrind;
mod memory;

use std::alloc::System;
use std::process::ExitCode;

use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_buffer::{ENTRY_BYTES, Outbound, Pool};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    match arguments[..] {
        [] => {
            print(DEPTH);
            return ExitCode::SUCCESS;
        }
        ["--depth", depth] => {
            if let Some(depth) = number(depth) {
                print(depth);
                return ExitCode::SUCCESS;
            }
        }
        // The process under callgrind.
        [callgrind::COUNT, bursts, depth] => {
            if let (Some(bursts), Some(depth)) = (number(bursts), number(depth)) {
                run(bursts, depth);
                return ExitCode::SUCCESS;
            }
        }
        _ => {}
    }
    eprintln!("usage: tidegate-experiment [--depth RESPONSES]");
    ExitCode::from(2)
}

fn print(depth: usize) {
    let rows = CONNECTIONS.map(|connections| memory::measure(connections, depth));
    let allocations = rows.iter().map(|row| row.allocations).fold(0.0, f64::max);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "connections": row.connections,
                "fresh": row.fresh,
                "idle": row.idle,
                "burst": row.burst,
                "thread": row.thread,
            })
        })
        .collect();
    let figures = json!({
        "design": DESIGN,
        "depth": depth,
        "response_bytes": burst::response_bytes(),
        "queue_bytes": size_of::<Outbound>(),
        "entry_bytes": ENTRY_BYTES,
        "bytes": rows,
        "allocations_per_request": allocations,
        "instructions_per_response": callgrind::instructions_per_response(depth),
    });
    println!("{figures}");
}

/// Does the work and prints nothing, for external counters.
fn run(bursts: usize, depth: usize) {
    let pool = Pool::new();
    let mut queues: Vec<_> = (0..callgrind::CONNECTIONS).map(|_| Outbound::new(&pool)).collect();
    for index in 0..bursts {
        let queue = &mut queues[index % callgrind::CONNECTIONS];
        burst::write(queue, depth);
        burst::send(queue);
    }
}

/// The queue that this was built with.
const DESIGN: &str = if cfg!(tidegate_queue = "array") {
    "array"
} else if cfg!(tidegate_queue = "linked") {
    "linked"
} else {
    "ours"
};

/// Responses in a burst by default.
const DEPTH: usize = 256;

const CONNECTIONS: [usize; 3] = [1, 1_000, 10_000];
