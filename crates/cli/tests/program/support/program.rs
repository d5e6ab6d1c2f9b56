//! The program as a child process, and its figures in /proc.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use socket2::SockAddr;

/// A running `tidegate serve`. Dropping it kills the process.
pub(crate) struct Program {
    child: Child,
    /// The start-up line.
    pub(crate) line: String,
    stdout: Lines,
    stderr: Lines,
}

/// The lines of a stream so far.
type Lines = Arc<Mutex<Vec<String>>>;

impl Program {
    /// A server on a free loopback port.
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::at("127.0.0.1:0", arguments)
    }

    /// A `tidegate proxy` on a free loopback port.
    pub(crate) fn proxy(arguments: &[&str]) -> Self {
        let mut command = tidegate(&["proxy", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        Self::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
    }

    /// A server at an address.
    pub(crate) fn at(address: &str, arguments: &[&str]) -> Self {
        let mut command = tidegate(&["serve", "--listen", address]);
        command.args(arguments);
        Self::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
    }

    /// A server with a descriptor limit.
    pub(crate) fn with_descriptors(count: u32, arguments: &[&str]) -> Self {
        let mut command = ending_with_the_test("sh");
        command.args(["-c", &format!("ulimit -n {count}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_tidegate")]);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).env(VARIABLE, backend());
        Self::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
    }

    /// A server under strace, which makes system calls fail. The child process is the server itself: strace runs as a
    /// detached process, writes to `log`, and ends with the server.
    pub(crate) fn under_strace(inject: &[&str], log: &str, arguments: &[&str]) -> Self {
        let mut command = strace(inject, log);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        Self::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
    }

    /// Starts a server, or returns its error output.
    pub(crate) fn start(mut command: Command) -> Result<Self, Vec<String>> {
        Self::start_with_input(command.stdin(Stdio::null()))
    }

    /// The same, with the command's standard input.
    pub(crate) fn start_with_input(command: &mut Command) -> Result<Self, Vec<String>> {
        let program = Self::launch(command);
        if program.line.is_empty() { Err(program.whole_log()) } else { Ok(program) }
    }

    /// Starts the program, and waits for its start-up line or its exit.
    fn launch(command: &mut Command) -> Self {
        let mut program = Self::spawn(command);
        program.until_started();
        program
    }

    /// Starts the program without waiting for it. It ends with the calling thread.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        raise_descriptor_limit();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        Self { child, line: String::new(), stdout, stderr }
    }

    /// Waits for the start-up line, or the program's exit.
    pub(crate) fn until_started(&mut self) {
        until("the start-up line, or the end of the program", || {
            !self.stdout.lock().unwrap().is_empty() || self.child.try_wait().unwrap().is_some()
        });
        self.line = self.stdout.lock().unwrap().first().cloned().unwrap_or_default();
    }

    /// The address in its start-up line.
    pub(crate) fn address(&self) -> SockAddr {
        match self.host().strip_prefix("unix:") {
            Some(path) => SockAddr::unix(path.replacen('@', "\0", usize::from(path.starts_with('@')))).unwrap(),
            None => self.ip().into(),
        }
    }

    /// Its IP address and port.
    pub(crate) fn ip(&self) -> SocketAddr {
        self.host().parse().unwrap_or_else(|_| panic!("no address in {:?}", self.line))
    }

    fn host(&self) -> &str {
        let rest = self.line.strip_prefix("tidegate: listening on ").expect("the start-up line has the address");
        let host = rest.split(' ').next().unwrap();
        host.strip_prefix("http://").or_else(|| host.strip_prefix("https://")).unwrap_or(host)
    }

    /// Its standard error so far, without the lines about long turns: beside other programs a turn of any test takes long.
    pub(crate) fn log(&self) -> Vec<String> {
        let mut log = self.stderr.lock().unwrap().clone();
        log.retain(|line| !is_about_long_turn(line));
        log
    }

    /// The lines about long turns so far.
    pub(crate) fn log_of_long_turns(&self) -> Vec<String> {
        let mut log = self.stderr.lock().unwrap().clone();
        log.retain(|line| is_about_long_turn(line));
        log
    }

    /// Its standard error so far, without the line at the begin of a drain.
    pub(crate) fn log_without_drain(&self) -> Vec<String> {
        let mut log = self.log();
        log.retain(|line| !line.contains("draining for up to"));
        log
    }

    /// Its complete standard error, after its exit.
    fn whole_log(&self) -> Vec<String> {
        until("the end of the log", || Arc::strong_count(&self.stderr) == 1);
        self.log()
    }

    /// Its standard output so far.
    pub(crate) fn output(&self) -> Vec<String> {
        self.stdout.lock().unwrap().clone()
    }

    /// Waits until `count` log lines contain `text`, and returns them.
    pub(crate) fn until_logged(&self, text: &str, count: usize) -> Vec<String> {
        let found = || self.log().into_iter().filter(|line| line.contains(text)).collect::<Vec<_>>();
        until(&format!("{count} lines with {text:?} in the log"), || found().len() >= count);
        found()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("it is there");
    }

    /// Limits its descriptors from here on; those that it has stay.
    pub(crate) fn limit_descriptors(&self, count: u64) {
        let limit = Rlimit { current: Some(count), maximum: Some(count) };
        rustix::process::prlimit(Some(self.pid()), Resource::Nofile, limit).expect("it is there");
    }

    /// Waits until the process has exited.
    pub(crate) fn until_ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end of the program", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it was just seen")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until SIGSTOP has stopped all of its threads.
    pub(crate) fn until_stopped(&self) {
        let is_stopped = |stat: &str| stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T'));
        let stats = || std::fs::read_dir(self.proc("task")).unwrap().map(|task| task.unwrap().path().join("stat"));
        let all = || stats().all(|stat| std::fs::read_to_string(stat).is_ok_and(|stat| is_stopped(&stat)));
        until("the program to stop", all);
    }

    /// A count of the server, by its name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let said =
            || self.output().into_iter().filter(|line| line.starts_with("tidegate: counts:")).collect::<Vec<_>>();
        let before = said().len();
        self.signal(Signal::USR1);
        until("the counts", || said().len() > before);
        let line = said().pop().expect("there is one more than before");
        let count = line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        count.unwrap_or_else(|| panic!("no {name} in {line}")).parse().unwrap()
    }

    /// The CPU time of the process, in clock ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = self.read("stat");
        // The name of the program, in parentheses, may contain any character.
        let fields: Vec<_> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// The number of its open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("Rss:")
    }

    /// The part of it that is not code or tables of the program file, in bytes.
    pub(crate) fn anonymous(&self) -> u64 {
        let (mut is_of_file, mut bytes) = (false, 0);
        for line in self.read("smaps").lines() {
            match line.strip_prefix("Anonymous:") {
                Some(size) if !is_of_file => bytes += parse_kilobytes(size),
                Some(_) => {}
                // The first line of a mapping begins with its addresses, and ends with its file.
                None if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) => {
                    is_of_file = line.ends_with(env!("CARGO_BIN_EXE_tidegate"));
                }
                None => {}
            }
        }
        bytes
    }

    fn memory(&self, name: &str) -> u64 {
        let rollup = self.read("smaps_rollup");
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
        parse_kilobytes(line)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.proc(name)).unwrap()
    }

    fn proc(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// The number of descriptors that each of its epoll instances watches.
    pub(crate) fn polled(&self) -> Vec<usize> {
        let directory = format!("/proc/{}/fdinfo", self.child.id());
        let infos = std::fs::read_dir(directory).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
        let watched = infos.flatten().map(|info| info.lines().filter(|line| line.starts_with("tfd:")).count());
        watched.filter(|watched| *watched > 0).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("the last of {} lines in its log: {:#?}", log.len(), &log[log.len().saturating_sub(20)..]);
        }
    }
}

/// A command whose process the kernel kills when the thread ends that starts it: a test run that is killed leaves no server
/// behind. The process id stays that of the program. Where the program or `setpriv`, of util-linux, is missing it is the
/// plain command, which reports that.
pub(crate) fn ending_with_the_test(program: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there("setpriv") || !is_there(program) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// The program with arguments.
pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = ending_with_the_test(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env(VARIABLE, backend());
    command
}

/// The default backend of servers in these tests: `TIDEGATE_BACKEND`, otherwise io_uring if it is available. Servers
/// get it by name, so that none falls back unnoticed.
pub(crate) fn backend() -> &'static str {
    static BACKEND: OnceLock<String> = OnceLock::new();
    BACKEND.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(name) if !name.is_empty() => name,
        _ if can_use_uring() => "uring".into(),
        _ => "epoll".into(),
    })
}

/// Whether the kernel and the sandbox permit io_uring; if not, the test is skipped as for a missing tool.
pub(crate) fn can_use_uring() -> bool {
    static FOUND: OnceLock<Result<(), Vec<String>>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut command = ending_with_the_test(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--loops", "1", "--backend", "uring"]);
        Program::start(command).map(drop)
    });
    found.as_ref().inspect_err(|said| skip("io_uring", &said.join(" "))).is_ok()
}

/// Runs the program to its end: its exit code, and the lines of its two streams.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, Vec<String>, Vec<String>) {
    let output = tidegate(arguments).stdin(Stdio::null()).output().unwrap();
    let lines = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
    (output.status.code(), lines(&output.stdout), lines(&output.stderr))
}

/// Runs a server that must not start: its exit code, and its standard error. If it does start, the test fails at once.
pub(crate) fn refused(mut command: Command) -> (Option<i32>, Vec<String>) {
    let mut program = Program::launch(command.stdin(Stdio::null()));
    assert!(program.line.is_empty(), "it started: {}", program.line);
    (program.until_ended().code(), program.whole_log())
}

/// strace of the program; the caller adds the program's arguments. Each of `inject` has strace's `--inject` syntax.
pub(crate) fn strace(inject: &[&str], log: &str) -> Command {
    // With -D the child process becomes the program, and strace, its child, ends with it.
    let mut command = ending_with_the_test("strace");
    command.args(["-D", "-f", "--quiet=all", "-o", log]);
    for fault in inject {
        command.arg(format!("--inject={fault}"));
    }
    // Other calls are neither logged nor slowed down.
    let calls: Vec<_> = inject.iter().filter_map(|fault| fault.split(':').next()).collect();
    command.args([&format!("--trace={}", calls.join(",")), "--seccomp-bpf", env!("CARGO_BIN_EXE_tidegate")]);
    command.env(VARIABLE, backend());
    command
}

/// Whether a tool can be used; if not, a message is printed, or the test fails if tools are required.
pub(crate) fn can_use(tool: &str, arguments: &[&str]) -> bool {
    match Command::new(tool).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(tool, &String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            skip(tool, &error);
            false
        }
    }
}

/// Prints that a test is skipped for lack of a tool. Panics if `TIDEGATE_TOOLS_REQUIRED=1` is in the environment.
pub(crate) fn skip(tool: &str, why: &dyn Display) {
    let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
    assert!(!required, "{tool} is required: {why}");
    println!("skipped: there is no {tool} here: {why}");
}

/// Waits until `is_so` returns true, and panics with `what` after [`PATIENCE`].
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A turn of a loop that was too long, or that has not ended yet.
fn is_about_long_turn(line: &str) -> bool {
    ["slow turn", "loop stalled"].iter().any(|text| line.contains(text))
}

/// Reads the lines of a stream on a new thread, which ends with the stream.
fn collect(stream: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let collected = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            collected.lock().unwrap().push(line);
        }
    });
    lines
}

/// Thousands of connections need as many descriptors, here and in the server, which inherits the limit.
fn raise_descriptor_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        // If the limit cannot be raised, the tests that need more fail with their own messages.
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    });
}

/// The bytes of a size as the kernel prints it, such as ` 12 kB`.
fn parse_kilobytes(size: &str) -> u64 {
    size.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// A temporary directory, removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("tidegate-program-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A process that had the same number was killed before it could remove it.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The environment variable that names the backend.
pub(crate) const VARIABLE: &str = "TIDEGATE_BACKEND";

/// The timeout of every wait in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
