//! A list of named steps: runs them in order, prints how long each took and how much space the disk has left, and stops at
//! the first that fails. At its end it prints the tests that failed by chance (`chance.rs`).

use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

use clap::Args;

use crate::chance;
use crate::command::{Failure, Step};

/// A named step.
pub(crate) struct NamedStep {
    name: String,
    run: Box<dyn FnOnce() -> Result<(), Failure>>,
}

/// A step of this name.
pub(crate) fn step(name: impl Into<String>, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    NamedStep { name: name.into(), run: Box::new(run) }
}

/// A step that builds into a folder which no other step uses: the folder is removed when the step has passed.
pub(crate) fn step_apart(
    name: impl Into<String>,
    folder: &'static str,
    run: impl FnOnce() -> Result<(), Failure> + 'static,
) -> NamedStep {
    step(name, move || {
        run()?;
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure(format!("{folder}: {error}"))),
            _ => Ok(()),
        }
    })
}

/// Which steps of a list to run.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Print the names of the steps instead of running them
    #[arg(long)]
    list: bool,
    /// Run only the steps whose names contain one of these texts
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Begin with the first step whose name contains this text
    #[arg(long, value_name = "TEXT")]
    from: Option<String>,
}

impl Selection {
    /// Whether all steps run.
    pub(crate) fn is_complete(&self) -> bool {
        !self.list && self.only.is_empty() && self.from.is_none()
    }
}

/// Runs the selected steps.
pub(crate) fn run_all(steps: Vec<NamedStep>, selection: &Selection) -> Result<(), Failure> {
    let start = selection.from.as_ref().map_or(Some(0), |text| steps.iter().position(|step| step.name.contains(text)));
    let start = start.ok_or_else(|| Failure("no step has such a name: see --list".into()))?;
    let selected = |step: &NamedStep| {
        selection.only.is_empty() || selection.only.iter().any(|text| step.name.contains(text.as_str()))
    };
    let selected: Vec<_> = steps.into_iter().skip(start).filter(selected).collect();
    if selected.is_empty() {
        return Err(Failure("no step has such a name: see --list".into()));
    }
    if selection.list {
        selected.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    let (begun, mut table, mut chance_failures) = (Instant::now(), String::new(), Vec::new());
    for step in selected {
        println!("== {}", step.name);
        let step_begun = Instant::now();
        let outcome = (step.run)();
        let line = format!("{:6} s  {}\n", step_begun.elapsed().as_secs(), step.name);
        println!("== {line}== {} of disk left", disk_left());
        table.push_str(&line);
        chance_failures.extend(chance::take_chance_failures());
        outcome.map_err(|failure| Failure(format!("step `{}` failed: {failure}", step.name)))?;
    }
    println!("{table}all steps passed in {} s", begun.elapsed().as_secs());
    chance_failures.iter().for_each(|test| println!("chance failure: {test}"));
    Ok(())
}

/// The free space of the disk that the builds are on, with its unit.
fn disk_left() -> String {
    let table = Step::line("df --human-readable --output=avail .").output().unwrap_or_default();
    table.lines().nth(1).map_or_else(|| "an unknown amount".into(), |size| size.trim().to_owned())
}
