//! The program as in the README: it starts, answers a request, and ends on SIGTERM.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, Step, cargo};

/// Starts the program as in the README, but on a free port; sends a request, and ends the program with SIGTERM.
pub(crate) fn smoke() -> Result<(), Failure> {
    let serve = cargo("run --quiet --release -- serve --listen 127.0.0.1:0".split(' '));
    let mut server = serve.into_command().stdout(Stdio::piped()).spawn().map_err(|error| Failure(error.to_string()))?;
    let output = server.stdout.take().map(BufReader::new);
    let (sender, lines) = channel();
    let reader = thread::spawn(move || {
        output.into_iter().flat_map(BufRead::lines).map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let answered = await_address(|timeout| lines.recv_timeout(timeout)).and_then(|address| {
        let answer = Step::new("curl").args(["-sS", "--max-time", "10", &format!("{address}/plaintext")]).output()?;
        if answer == "Hello, World!" { Ok(()) } else { Err(Failure(format!("{address}/plaintext is {answer:?}"))) }
    });
    // `cargo run` replaces itself with the program, so this is the program's process.
    let signalled = Step::new("kill").args(["-TERM", &server.id().to_string()]).run();
    let ended = wait_a_while(&mut server);
    drop(reader.join());
    answered.and(signalled).and(ended)
}

/// The address in the start-up line.
fn await_address(next: impl Fn(Duration) -> Result<String, RecvTimeoutError>) -> Result<String, Failure> {
    loop {
        let line = next(PATIENCE).map_err(|_| Failure("the program has printed no address".into()))?;
        println!("{line}");
        if let Some(start) = line.find("http://127.0.0.1:") {
            return Ok(line[start..].split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
}

fn wait_a_while(server: &mut std::process::Child) -> Result<(), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match server.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Failure(format!("the program ended with {status} on SIGTERM"))),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    drop(server.kill());
    drop(server.wait());
    Err(Failure("the program did not end on SIGTERM".into()))
}

/// The release build may come first.
const PATIENCE: Duration = Duration::from_secs(300);
