//! A list of named steps: runs them in order, prints how long each took, its slowest tests and how much space the disk has left,
//! and stops at the first that fails. At its end it prints the tests that failed by chance (`chance.rs`). A list with a time
//! limit ends when the time is over, and prints which step ran, so that a test that waits for ever is found. Some steps
//! begin before their turn (`alongside.rs`).
//!
//! A step of a list with a record (`record.rs`) is skipped while it has passed on the same inputs.

use std::fs;
use std::io::ErrorKind;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::alongside::StepProcess;
use crate::chance;
use crate::command::{Failure, Step};
use crate::record::Record;

/// The parts of the running step that were skipped.
static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints that a part of the running step cannot run on this machine. The table at the end of the list has the line, and
/// the step does not count as passed on its inputs.
pub(crate) fn skip_part(reason: &str) {
    println!("skipped: {reason}");
    SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).push(reason.to_owned());
}

/// A named step.
pub(crate) struct NamedStep {
    name: String,
    inputs: &'static [&'static str],
    begins_with: Option<&'static str>,
    run: Box<dyn FnOnce() -> Result<(), Failure>>,
}

/// A step of this name.
pub(crate) fn step(name: impl Into<String>, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    NamedStep { name: name.into(), inputs: &[], begins_with: None, run: Box::new(run) }
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

impl NamedStep {
    /// The paths that decide whether the step passes. A step without them runs each time.
    pub(crate) fn of(mut self, inputs: &'static [&'static str]) -> Self {
        self.inputs = inputs;
        self
    }

    /// In a list of ci that has an earlier step of this name, this one begins with it, and runs beside the steps between them.
    pub(crate) fn begins_with(mut self, earlier: &'static str) -> Self {
        self.begins_with = Some(earlier);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The earlier step with which it begins.
    pub(crate) fn earlier(&self) -> Option<&'static str> {
        self.begins_with
    }

    pub(crate) fn inputs(&self) -> &'static [&'static str] {
        self.inputs
    }
}

/// Which steps of a list to run.
#[derive(Debug, Default, Args)]
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

    /// The selected steps.
    fn select(&self, steps: Vec<NamedStep>) -> Result<Vec<NamedStep>, Failure> {
        let unknown = || Failure("no step has such a name: see --list".into());
        let has = |step: &NamedStep, text: &String| step.name.contains(text.as_str());
        let start = self.from.as_ref().map_or(Some(0), |text| steps.iter().position(|step| has(step, text)));
        let start = start.ok_or_else(unknown)?;
        let selected = |step: &NamedStep| self.only.is_empty() || self.only.iter().any(|text| has(step, text));
        let selected: Vec<_> = steps.into_iter().skip(start).filter(selected).collect();
        if selected.is_empty() { Err(unknown()) } else { Ok(selected) }
    }
}

/// Runs the selected steps. The process ends if they take longer than this.
pub(crate) fn run_all(steps: Vec<NamedStep>, selection: &Selection, time_max: Option<Duration>) -> Result<(), Failure> {
    let selected = selection.select(steps)?;
    if selection.list {
        selected.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    let mut summary = Summary::new();
    if let Some(time_max) = time_max {
        summary.end_after(time_max);
    }
    let beside: Vec<_> = selected.iter().filter_map(|step| Some((step.earlier()?, step.name.clone()))).collect();
    let mut begun = Vec::new();
    for step in selected {
        for (_, name) in beside.iter().filter(|(earlier, _)| *earlier == step.name) {
            println!("== {name}: begins, beside the following steps");
            begun.push(StepProcess::step_of_ci(name)?);
        }
        match begun.iter().position(|one: &StepProcess| one.name() == step.name) {
            Some(place) => summary.end_of(begun.remove(place))?,
            None => {
                summary.run(step)?;
            }
        }
    }
    summary.end("all steps passed");
    Ok(())
}

/// Runs those of the selected steps that have not passed on their inputs, according to the record. After this time no other
/// step begins.
pub(crate) fn run_recorded(
    steps: Vec<NamedStep>,
    selection: &Selection,
    record: &Record,
    time_max: Option<Duration>,
) -> Result<(), Failure> {
    let (mut summary, mut left) = (Summary::new(), 0);
    for step in selection.select(steps)? {
        // The inputs as they are when the step begins: a pass does not cover a change during the step.
        let inputs = record.inputs_of(&step);
        let passed = inputs.as_ref().and_then(|inputs| record.seconds_of(&step, inputs));
        if selection.list {
            let state = passed.map_or_else(String::new, |seconds| format!(" (passed on these inputs in {seconds} s)"));
            println!("{}{state}", step.name);
        } else if let Some(seconds) = passed {
            summary.skip(&step, seconds);
        } else if time_max.is_some_and(|max| summary.begun.elapsed() >= max) {
            left += 1;
        } else {
            let (step_begun, entry) = (Instant::now(), record.entry(&step));
            let is_whole = summary.run(step)?;
            // A part that this machine lacks something for runs on the next machine, or after an installation.
            if let Some(inputs) = inputs.filter(|_| is_whole) {
                entry.store(&inputs, step_begun.elapsed())?;
            }
        }
    }
    match left {
        _ if selection.list => {}
        0 => summary.end("all steps passed"),
        _ => summary.end(&format!("the time is over, and {left} steps are left for the next run; the others passed")),
    }
    Ok(())
}

/// The steps that have run, for the table at the end.
struct Summary {
    begun: Instant,
    /// Shared with the thread of `end_after`.
    table: Arc<Mutex<Table>>,
    chance_failures: Vec<String>,
    /// Parts of steps.
    skipped: usize,
}

#[derive(Default)]
struct Table {
    lines: String,
    /// The step that runs, and when it began.
    running: Option<(String, Instant)>,
}

impl Summary {
    fn new() -> Self {
        Self { begun: Instant::now(), table: Arc::default(), chance_failures: Vec::new(), skipped: 0 }
    }

    /// Starts a thread that ends this process after this time. The commands of the steps end with it.
    fn end_after(&self, time: Duration) {
        let table = self.table.clone();
        thread::spawn(move || {
            thread::sleep(time);
            let Table { lines, running } = &*table.lock().unwrap_or_else(PoisonError::into_inner);
            print!("{lines}");
            if let Some((name, begun)) = running {
                println!("{:6} s  {name}: not ended", begun.elapsed().as_secs());
            }
            eprintln!("error: the steps take longer than {} s", time.as_secs());
            process::exit(1);
        });
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step. Returns whether no part of it was [skipped](skip_part).
    fn run(&mut self, step: NamedStep) -> Result<bool, Failure> {
        println!("== {}", step.name);
        let step_begun = Instant::now();
        self.table().running = Some((step.name.clone(), step_begun));
        let outcome = (step.run)();
        let skipped = std::mem::take(&mut *SKIPPED.lock().unwrap_or_else(PoisonError::into_inner));
        let lines: String = skipped.iter().map(|reason| format!("          skipped: {reason}\n")).collect();
        self.skipped += skipped.len();
        self.note_end(&format!("{:6} s  {}\n{lines}", step_begun.elapsed().as_secs(), step.name));
        let slowest = chance::take_slowest().to_string();
        if !slowest.is_empty() {
            print!("== its slowest tests:\n{slowest}");
        }
        self.chance_failures.extend(chance::take_chance_failures());
        outcome.map_err(|failure| Failure(format!("step `{}` failed: {failure}", step.name)))?;
        Ok(skipped.is_empty())
    }

    /// The turn of a step that has begun before.
    fn end_of(&mut self, begun: StepProcess) -> Result<(), Failure> {
        let (name, turn_begun) = (begun.name().to_owned(), Instant::now());
        self.table().running = Some((name.clone(), turn_begun));
        let ended = begun.end();
        self.note_end(&format!(
            "{:6} s  {name}: the rest of it, after its turn has come\n",
            turn_begun.elapsed().as_secs()
        ));
        self.chance_failures.extend(ended.chance_failures);
        ended.result.map_err(|failure| Failure(format!("step `{name}` failed: {failure}")))
    }

    fn note_end(&self, line: &str) {
        println!("== {line}== {} of disk left", disk_left());
        let mut table = self.table();
        table.lines.push_str(line);
        table.running = None;
    }

    fn skip(&mut self, step: &NamedStep, seconds: u64) {
        println!("== {}: skipped, since it has passed on these inputs, in {seconds} s; --again runs it", step.name);
        self.table().lines.push_str(&format!(" passed   {}\n", step.name));
    }

    fn end(self, outcome: &str) {
        let skipped = match self.skipped {
            0 => String::new(),
            count => format!("; {count} skipped, as listed above"),
        };
        println!("{}{outcome} in {} s{skipped}", self.table().lines, self.begun.elapsed().as_secs());
        self.chance_failures.iter().for_each(|test| println!("chance failure: {test}"));
    }
}

/// The free space of the disk that the builds are on, with its unit.
fn disk_left() -> String {
    let table = Step::line("df --human-readable --output=avail .").output().unwrap_or_default();
    table.lines().nth(1).map_or_else(|| "an unknown amount".into(), |size| size.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(only: &[&str], from: Option<&str>) -> Option<Vec<String>> {
        let steps = ["format", "tests", "tests on epoll"].map(|name| step(name, || Ok(())));
        let only = only.iter().map(|text| (*text).to_owned()).collect();
        let selection = Selection { list: false, only, from: from.map(str::to_owned) };
        Some(selection.select(steps.into()).ok()?.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_selected_by_parts_of_their_names() {
        assert_eq!(selected(&[], None).map(|steps| steps.len()), Some(3));
        assert_eq!(
            selected(&["epoll", "format"], None).as_deref(),
            Some(&["format".into(), "tests on epoll".into()][..])
        );
        assert_eq!(selected(&[], Some("tests")).map(|steps| steps.len()), Some(2));
        assert_eq!(selected(&["format"], Some("tests")), None);
        assert_eq!(selected(&[], Some("none")), None);
    }

    /// Otherwise a later run would skip the step as passed, on a machine that can run all of it.
    #[test]
    fn a_step_with_a_part_that_was_skipped_is_not_whole_and_the_table_has_the_line() {
        let mut summary = Summary::new();
        let skips = || {
            skip_part("there is no compiler");
            Ok(())
        };
        assert_eq!(summary.run(step("oldest", skips)).map_err(|failure| failure.0), Ok(false));
        assert_eq!(summary.run(step("next", || Ok(()))).map_err(|failure| failure.0), Ok(true));
        assert_eq!(summary.skipped, 1);
        assert!(summary.table().lines.contains("oldest\n          skipped: there is no compiler\n"));
    }

    #[test]
    fn a_list_ends_at_the_first_step_that_fails() {
        let (sender, ran) = std::sync::mpsc::channel();
        let steps = [("a", true), ("b", false), ("c", true)].map(|(name, passes)| {
            let sender = sender.clone();
            step(name, move || {
                sender.send(name).expect("the test receives");
                if passes { Ok(()) } else { Err(Failure("no".into())) }
            })
        });
        let failure = run_all(steps.into(), &Selection::default(), None);
        assert_eq!(failure.map_err(|failure| failure.0), Err("step `b` failed: no".into()));
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
