//! The commands of the guide to operations, as a reader types them: each runs here in a root of its own, or is in
//! [`NOT_RUN`] with its reason. Flags, kernel settings and scripts that the text names exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::admin::admin_address;
use crate::support::peer::Peer;
use crate::support::program::{Directory, Program, can_use, ending_with_the_test, run};

/// Commands that no test runs, and why. They are three, and a fourth needs as good a reason.
const NOT_RUN: [(&str, &str); 3] = [
    ("apt install", "it needs a release; deploy/debian/try_package.py installs, upgrades and removes its package"),
    ("docker build", "it needs a container engine; interop/container.py runs the steps of the Containerfile"),
    ("docker run", "it needs a container engine; interop/container.py plays the image with the same restrictions"),
];

#[test]
fn each_command_of_the_guide_runs_or_is_listed_with_its_reason() {
    let mut machine = Machine::new();
    let mut not_run = BTreeSet::new();
    for command in commands() {
        if let Some((start, _)) = NOT_RUN.iter().find(|(start, _)| command.starts_with(start)) {
            not_run.insert(*start);
            files_that_exist(&command);
        } else {
            machine.play(&command);
        }
    }
    assert_eq!(not_run.len(), NOT_RUN.len(), "commands of the list that the guide no longer has");
    assert!(machine.units_enabled || !can_use("systemctl", &["--version"]), "systemctl enables the units");
}

#[test]
fn flags_that_the_guide_names_exist() {
    let help = |name: &str| run(&[name, "--help"]).1.join("\n");
    let (serve, proxy, container) = (help("serve"), help("proxy"), read("interop/container.py"));
    let named: Vec<_> = spans().into_iter().filter(|span| span.starts_with("--")).collect();
    assert!(named.len() >= 5, "{named:?}");
    for span in named {
        for flag in span.split_whitespace().filter(|word| word.starts_with("--")) {
            let exists =
                |help: &str| help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == flag);
            assert!(exists(&serve) || exists(&proxy) || container.contains(&format!("\"{flag}\"")), "{flag}");
        }
    }
}

#[test]
fn subcommands_that_the_guide_names_exist() {
    for span in spans() {
        if let Some(subcommand) = span.strip_prefix("tidegate ").and_then(|rest| rest.split(' ').next()) {
            assert_eq!(run(&[subcommand, "--help"]).0, Some(0), "{span}");
        }
    }
}

#[test]
fn kernel_settings_that_the_guide_names_exist() {
    let named: Vec<_> =
        spans().into_iter().filter(|span| ["net.", "fs."].iter().any(|to| span.starts_with(to))).collect();
    assert!(named.len() >= 4, "{named:?}");
    for setting in named {
        let path = Path::new("/proc/sys").join(setting.replace('.', "/"));
        assert!(path.exists(), "{}", path.display());
    }
}

/// A socket for `[::]:80` has the port of `0.0.0.0:80` too, so a configuration with that address does not start beside it.
#[test]
fn configurations_have_the_addresses_that_the_socket_units_open() {
    let folder = |path: &str| -> Vec<String> {
        let files = std::fs::read_dir(root().join(path)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect()
    };
    let mut opened = BTreeSet::new();
    for unit in folder("deploy") {
        for line in unit.lines().filter_map(|line| line.split_once('=')) {
            if ["ListenStream", "ListenDatagram"].contains(&line.0) {
                assert!(line.1.parse::<u16>().is_ok() && unit.contains("\nBindIPv6Only=both\n"), "{unit}");
                opened.insert(format!("[::]:{}", line.1));
            }
        }
    }
    assert_eq!(opened.iter().collect::<Vec<_>>(), ["[::]:443", "[::]:80"]);
    let shown =
        ["docs/deployment.md", "docs/guide/http/gateway.md", "docs/guide/l4.md", "deploy/debian/try_package.py"];
    let mut texts = folder("deploy/config");
    texts.extend(shown.map(read));
    let mut used = BTreeSet::new();
    for line in texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("address = ")) {
        for address in line.split('"').skip(1).step_by(2) {
            let address = address.rsplit(":-").next().unwrap_or_default().trim_end_matches('}');
            if opened.iter().any(|unit| unit.rsplit(':').next() == address.rsplit(':').next()) {
                assert!(opened.contains(address), "`{line}` beside the socket units");
                used.insert(address.to_owned());
            }
        }
    }
    assert_eq!(used, opened);
    let steps = &texts[texts.len() - shown.len()];
    let played = texts[texts.len() - 1].split("GATEWAY = \"\"\"\n").nth(1).and_then(|rest| rest.split("\"\"\"").next());
    assert!(
        steps.contains(played.expect("a configuration")),
        "the package's test plays the steps of docs/deployment.md"
    );
}

/// Scripts are steps of `cargo xtask`, with the arguments that the guide gives.
#[test]
fn scripts_that_the_guide_names_are_run() {
    let steps = ["ci", "interop", "long"].map(|list| read(&format!("xtask/src/{list}.rs"))).concat();
    let named: Vec<_> = spans().into_iter().filter(|span| span.starts_with("interop/")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for span in named {
        let (script, arguments) = span.split_once(' ').unwrap_or((&span, ""));
        let name = script.trim_start_matches("interop/");
        // A step names a script with its folder, or its whole command line without it.
        let calls = [format!("\"{script}\""), format!("\"{name}")];
        let mut calls = calls.iter().flat_map(|call| steps.split(call).skip(1));
        let words: Vec<_> = arguments.split_whitespace().collect();
        let is_run =
            calls.any(|call| words.iter().all(|word| call.lines().next().is_some_and(|line| line.contains(word))));
        assert!(is_run, "no step of xtask runs {span}");
    }
}

/// A machine on which the guide is followed: a root of its own, and the servers that it has started.
struct Machine {
    directory: Directory,
    server: Option<Program>,
    units_enabled: bool,
}

impl Machine {
    /// Creates the usual folders of a system, and a checkout with a build of the profile `dist`.
    fn new() -> Self {
        let directory = Directory::new();
        let folder = |name: &str| std::fs::create_dir_all(directory.path(name)).expect("a folder");
        ["etc/systemd/system", "usr/local/bin", "usr/local/share/man", "checkout/target/dist", "site"]
            .into_iter()
            .for_each(folder);
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, directory.path(name)).expect("a link");
        link(Path::new(env!("CARGO_BIN_EXE_tidegate")), "checkout/target/dist/tidegate");
        link(&root().join("deploy"), "checkout/deploy");
        let site = format!("[[route]]\nfolder = {:?}\n", directory.path("site"));
        std::fs::write(directory.path("checkout/site.toml"), site).expect("a configuration");
        std::fs::write(directory.path("site/index.html"), "the site").expect("a site");
        Self { directory, server: None, units_enabled: false }
    }

    /// Runs a command of the guide, or fails if it is none that this machine knows.
    fn play(&mut self, command: &str) {
        let mut words = command.split(' ');
        match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("tidegate", "serve") if command.contains("--access-log-to access.log") => self.log_accesses(command),
            ("tidegate", "serve") => self.serve(command),
            ("tidegate", "top") if !command.contains("--once") => self.watch(command),
            ("tidegate", "top") => assert!(self.shell(command).contains("requests/s"), "{command}"),
            ("tidegate", "check-config" | "completions" | "man") | ("install", _) => drop(self.shell(command)),
            ("systemctl", "enable") => self.enable_and_start(command),
            _ => panic!("no test runs `{command}` of the guide: play it here, or give a reason in NOT_RUN"),
        }
    }

    /// A shell in the checkout, with the paths of the guide in the root of this machine.
    fn shell(&self, command: &str) -> String {
        let output = self.command(command).output().expect("a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{command}: {}: {errors}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    fn command(&self, command: &str) -> Command {
        let place = |path: &str| format!(" {}{path}", self.directory.path(""));
        let mut command = command.replace(" /etc/", &place("etc/")).replace(" /usr/", &place("usr/"));
        if let Some(server) = &self.server {
            command = command.replace("127.0.0.1:9090", &admin_address(server).to_string());
        }
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
        let mut shell = ending_with_the_test("sh");
        shell.args(["-e", "-c", &command]).current_dir(self.directory.path("checkout")).stdin(Stdio::null());
        shell.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default()));
        shell
    }

    /// Ports are those of the guide in the guide alone: here the kernel chooses them.
    fn serve(&mut self, command: &str) {
        assert!(command.contains("0.0.0.0:8080") && command.contains("127.0.0.1:9090"), "{command}");
        let command = command.replace("0.0.0.0:8080", "127.0.0.1:0").replace("127.0.0.1:9090", "127.0.0.1:0");
        let program = Program::start(self.command(&format!("exec {command}")));
        let program = program.unwrap_or_else(|errors| panic!("{command}: {errors:?}"));
        assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
        self.server = Some(program);
    }

    /// A server whose access log is a file.
    fn log_accesses(&self, command: &str) {
        let program = Program::start(self.command(&format!("exec {command} --listen 127.0.0.1:0")));
        let mut program = program.unwrap_or_else(|errors| panic!("{command}: {errors:?}"));
        Peer::connect(&program).get("/nowhere");
        // The lines of the log are written before the program ends.
        program.signal(Signal::TERM);
        assert_eq!(program.until_ended().code(), Some(0), "{command}");
        let log = std::fs::read_to_string(self.directory.path("checkout/access.log")).expect("an access log");
        assert!(log.contains("\"GET /nowhere HTTP/1.1\" 404"), "{command}: {log}");
    }

    /// `tidegate top` prints until it is ended.
    fn watch(&self, command: &str) {
        let mut top = Program::start(self.command(&format!("exec {command}"))).expect("it prints");
        assert!(top.is_running());
    }

    /// systemd itself does not run here: it enables the units, and this test runs their commands.
    fn enable_and_start(&mut self, command: &str) {
        if !can_use("systemctl", &["--version"]) {
            return;
        }
        assert!(command.contains(" --now "), "{command}");
        let root = format!("systemctl --root={} ", self.directory.path(""));
        let enabled =
            self.command(&command.replace("systemctl ", &root).replace("--now ", "")).output().expect("a shell");
        assert!(enabled.status.success(), "{command}: {enabled:?}");
        for wanted in ["multi-user.target.wants/tidegate.service", "sockets.target.wants/tidegate.socket"] {
            let link = self.directory.path(&format!("etc/systemd/system/{wanted}"));
            assert!(std::fs::symlink_metadata(&link).is_ok(), "{link}");
        }
        let unit = std::fs::read_to_string(self.directory.path("etc/systemd/system/tidegate.service")).expect("a unit");
        let line = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).expect("a line of the unit");
        self.shell(&format!("exec {}", line("ExecStartPre=")));
        let start = line("ExecStart=")
            .replace("127.0.0.1:9090", "127.0.0.1:0")
            .replace(" serve ", " serve --listen 127.0.0.1:0 ");
        let installed = |command: &str| format!("exec {}{}", self.directory.path(""), command.trim_start_matches('/'));
        let start = installed(&start);
        let mut service = Program::start(self.command(&start)).unwrap_or_else(|errors| panic!("{start}: {errors:?}"));
        assert_eq!(Peer::connect(&service).get("/").text(), "the site");
        // `systemctl reload`, and `systemctl restart`.
        assert_eq!(line("ExecReload="), "/bin/kill -HUP $MAINPID");
        service.signal(Signal::HUP);
        service.until_logged("configuration reloaded", 1);
        assert_eq!(Peer::connect(&service).get("/").text(), "the site");
        service.signal(Signal::TERM);
        assert!(service.until_ended().success());
        self.units_enabled = true;
    }
}

/// The commands in the blocks `sh` of the guide, each in one line and without its comment.
fn commands() -> Vec<String> {
    let guide = guide();
    let blocks = guide.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>());
    let lines =
        lines.map(|line| line.split(" #").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "));
    let commands: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(commands.len() >= 12, "{commands:?}");
    commands
}

/// The code spans of the guide's text.
fn spans() -> Vec<String> {
    let guide = guide();
    let text: String = guide.split("```").step_by(2).collect();
    text.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The files of the repository that a command names.
fn files_that_exist(command: &str) {
    for word in command.split([' ', '=']).filter(|word| word.starts_with("deploy/")) {
        assert!(root().join(word).is_file(), "{command}: {word}");
    }
}

const GUIDE: [&str; 3] = ["metrics", "logs", "deployment"];

fn guide() -> String {
    GUIDE.map(|chapter| read(&format!("docs/guide/operating/{chapter}.md"))).concat()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}
