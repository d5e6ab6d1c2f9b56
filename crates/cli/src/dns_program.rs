//! `DnsProgram`: sets the records of DNS-01 by a program of the user.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::acme::DnsProvider;

/// A program that is called with `set` or `remove`, the name of the record, and its value. Its output goes to standard
/// error.
pub(crate) struct DnsProgram(pub(crate) PathBuf);

impl DnsProgram {
    fn run(&self, action: &str, name: &str, value: &str) -> io::Result<()> {
        let mut command = Command::new(&self.0);
        command.args([action, name, value]).stdin(Stdio::null()).stdout(io::stderr());
        let failed = |text: String| io::Error::other(format!("{} {action}: {text}", self.0.display()));
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        match wait(child, TIME_MAX)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(status.to_string())),
            None => Err(failed(format!("it takes more than {} s", TIME_MAX.as_secs()))),
        }
    }
}

impl DnsProvider for DnsProgram {
    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.run("set", name, value)
    }

    fn remove(&self, name: &str, value: &str) -> io::Result<()> {
        self.run("remove", name, value)
    }
}

/// Waits for the end of a process, and kills one that takes too long.
fn wait(mut child: Child, time_max: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < time_max {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Name servers that copy a zone need minutes. An attempt has ten.
const TIME_MAX: Duration = Duration::from_secs(5 * 60);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_missing_is_an_error() {
        assert!(DnsProgram("true".into()).set("_acme-challenge.a.test", "x").is_ok());
        let error = DnsProgram("false".into()).set("a", "x").unwrap_err().to_string();
        assert!(error.starts_with("false set: exit status: 1"), "{error}");
        assert!(DnsProgram("/nowhere/at/all".into()).remove("a", "x").is_err());
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(wait(child, Duration::ZERO).unwrap().is_none());
    }
}
