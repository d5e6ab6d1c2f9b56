//! `Postgres`: a real PostgreSQL for one test, in a folder of its own.
//!
//! It listens on a Unix socket in that folder and at no address, so tests run beside each other and beside a server of the
//! machine. PostgreSQL refuses root: a test that runs as root starts it as the user `postgres`, or `nobody`. It is stopped,
//! and the folder removed, when the value is dropped.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A PostgreSQL that runs for as long as this value lives: user `postgres`, database `postgres`, no password.
///
/// ```no_run
/// use tidegate_testkit::Postgres;
///
/// let Some(postgres) = Postgres::start() else { return };
/// println!("psql '{}'", postgres.settings());
/// ```
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    server: Option<Child>,
}

impl Postgres {
    /// Starts one, and waits until it accepts connections. `None` if PostgreSQL is not installed: the line `skipped:` is
    /// printed then.
    ///
    /// # Panics
    /// If it is installed and does not start within a minute, and if it is missing while `TIDEGATE_TOOLS_REQUIRED` is 1.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let is_required = std::env::var("TIDEGATE_TOOLS_REQUIRED").is_ok_and(|value| value == "1");
            assert!(
                !is_required,
                "PostgreSQL is required, and `initdb` is in none of the folders that it is installed to"
            );
            println!("skipped: PostgreSQL is not installed");
            return None;
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-postgres-{}-{number}", std::process::id()));
        let mut postgres = Self { folder, server: None };
        postgres.run(&programs).unwrap_or_else(|error| panic!("PostgreSQL does not start: {error}"));
        Some(postgres)
    }

    fn run(&mut self, programs: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let user = user()?;
        if let Some((user, group)) = user {
            chown(&self.folder, Some(user), Some(group))?;
        }
        let data = self.folder.join("data");
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).env("LC_ALL", "C");
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
            command
        };
        let mut initdb = command("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--pgdata"]).arg(&data);
        let made = initdb.stderr(Stdio::piped()).output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let log = fs::File::create(self.folder.join("log"))?;
        let mut server = command("postgres");
        // Nothing of it has to survive, so it waits for no disk.
        server.arg("-D").arg(&data).arg("-k").arg(&self.folder).args(["-h", "", "-F", "-c", "max_connections=50"]);
        self.server = Some(server.stderr(log).spawn()?);
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let socket = self.socket().join(".s.PGSQL.5432");
        loop {
            let ended = self.server.as_mut().map(Child::try_wait).transpose()?.flatten();
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = ended {
                return Err(io::Error::other(format!("it ended with {status}: {}", log())));
            }
            if socket.exists() && log().contains("ready to accept connections") {
                return Ok(());
            }
            if begun.elapsed() > START_MAX {
                return Err(io::Error::other(format!("it is not ready: {}", log())));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The folder of its socket, which is the host of a connection.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.folder
    }

    /// How to connect, as the settings that libpq and tokio-postgres read.
    #[must_use]
    pub fn settings(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.display())
    }

    /// Stops or continues the processes that answer queries: a database that hangs.
    ///
    /// # Panics
    /// If there is no program `kill`.
    pub fn pause(&self, is_paused: bool) {
        let signal = if is_paused { "-STOP" } else { "-CONT" };
        let Some(server) = &self.server else { return };
        let children = format!("/proc/{0}/task/{0}/children", server.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        let pids = children.split_whitespace().map(str::to_owned).chain([server.id().to_string()]);
        let _ = Command::new("kill").arg(signal).args(pids).status().expect("there is a program `kill`");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGQUIT ends its children as well, without a checkpoint.
            let _ = Command::new("kill").args(["-QUIT", &server.id().to_string()]).status();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of PostgreSQL's programs: Debian keeps them out of the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let of_debian = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let of_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    of_debian.chain(of_path.into_iter().flatten()).find(|folder| folder.join("initdb").is_file())
}

/// The user to start it as, if this process is root: its number, and that of its group.
fn user() -> io::Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let of_name = |name: &str| {
        let fields: Vec<_> =
            users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|line| line[0] == name)?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    of_name("postgres")
        .or_else(|| of_name("nobody"))
        .map(Some)
        .ok_or_else(|| io::Error::other("no user to start it as"))
}

const START_MAX: Duration = Duration::from_secs(60);
