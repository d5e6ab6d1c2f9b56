//! The cost of a queue in memory, allocations and instructions, as `tidegate-experiment` built with that queue reports.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::child::{Child, StopFlag};

/// The cost of one queue.
pub(crate) struct Probe {
    /// For each count of connections: the count, and bytes of queue per connection, idle and in the burst.
    pub(crate) bytes: Vec<[u64; 3]>,
    pub(crate) allocations_per_request: f64,
    /// User-space instructions per response in the queue alone; only where valgrind is installed.
    pub(crate) instructions_per_response: Option<u64>,
    /// The complete JSON.
    pub(crate) all: Value,
}

/// Runs the probe with bursts of `depth` responses.
///
/// # Errors
/// If the probe does not run, or its output cannot be parsed, or `stop` is set before.
pub(crate) fn run(program: &Path, depth: u32, stop: &StopFlag) -> Result<Probe, String> {
    let mut command = Command::new(program);
    command.args(["--depth", &depth.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let (_, [text, _]) = Child::start(&mut command, None)?.output(stop)?;
    from_json(&text).ok_or_else(|| format!("the output of '{}' cannot be parsed: {text}", program.display()))
}

fn from_json(text: &str) -> Option<Probe> {
    let all: Value = serde_json::from_str(text).ok()?;
    let row = |row: &Value| Some([row["connections"].as_u64()?, row["idle"].as_u64()?, row["burst"].as_u64()?]);
    Some(Probe {
        bytes: all["bytes"].as_array()?.iter().map(row).collect::<Option<_>>()?,
        allocations_per_request: all["allocations_per_request"].as_f64()?,
        instructions_per_response: all["instructions_per_response"].as_u64(),
        all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_parsed_with_and_without_instructions() {
        for (instructions, expected) in [("173", Some(173)), ("null", None)] {
            let text = format!(
                r#"{{"bytes": [{{"connections": 1, "idle": 40, "burst": 50}}], "allocations_per_request": 0.5,
                "instructions_per_response": {instructions}}}"#
            );
            let probe = from_json(&text).expect("that is all it takes");
            assert_eq!((probe.bytes, probe.allocations_per_request), (vec![[1, 40, 50]], 0.5));
            assert_eq!(probe.instructions_per_response, expected);
        }
        assert!(from_json("usage: tidegate-experiment").is_none());
    }
}
