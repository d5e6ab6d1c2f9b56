//! `cargo xtask ci --touched`: the steps of ci that a change can have broken.
//!
//! `TABLE` has the steps of each path; a changed file has those of the longest path that it lies below. The tests follow
//! from the manifests: those of each package with a changed file, and of all packages that depend on it. A file that no row
//! covers runs everything. The steps of long are only named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::ci::{self, Tests};
use crate::command::{Failure, Step};
use crate::interop;
use crate::passed;
use crate::release::metadata;
use crate::steps::{NamedStep, Selection, run_all};

/// Steps of a path.
struct Row {
    path: &'static str,
    steps: Steps,
    /// Packages whose tests read the path without having it in their folder.
    tests: &'static [&'static str],
    /// Steps of long that cover the path.
    long: &'static [&'static str],
}

enum Steps {
    Everything,
    Of(&'static [&'static [&'static str]]),
}

use Steps::{Everything, Of};

const fn row(path: &'static str, steps: Steps) -> Row {
    Row { path, steps, tests: &[], long: &[] }
}

impl Row {
    const fn tests(mut self, packages: &'static [&'static str]) -> Self {
        self.tests = packages;
        self
    }

    const fn long(mut self, steps: &'static [&'static str]) -> Self {
        self.long = steps;
        self
    }
}

/// These steps run for each change.
const ALWAYS: &[&str] = &["tools", "format", "lints"];

const COSTS: &[&str] = &[
    "instruction counts",
    "memory",
    "crowds",
    "short connections",
    "system calls",
    "memory of an upload",
    "no descriptors",
];
const DOCUMENTATION: &[&str] = &["documentation"];
const EXAMPLES: &[&str] = &["examples on the default backend", "examples on epoll"];
const GRPC: &[&str] = &["gRPC by grpcurl"];
const HTTP: &[&str] = &[interop::FIRST_OF_CI];
const HTTP2: &[&str] = &["HTTP/2 by h2spec"];
const HTTP3: &[&str] = &["HTTP/3 by aioquic"];
const INSTRUCTIONS: &[&str] = &["instruction counts"];
const PROGRAM: &[&str] = &["the program on epoll", "the program as in the README"];
const PROXY_PROTOCOL: &[&str] = &["the PROXY protocol of HAProxy and nginx"];
const SEEDS: &[&str] = &["the contract with a sample of seeds"];
const ROOMS: &[&str] = &["rooms of nodes that redis-server disconnects"];
const SOCKS: &[&str] = &["SOCKS of microsocks, Dante, curl and proxychains4"];
const TEMPLATES: &[&str] = &["programs from all templates"];
const TLS: &[&str] = &["TLS by sslyze and OpenSSL"];
const WEBSOCKET: &[&str] = &["the WebSocket cases of kosoku"];

/// All scripts of `interop` that run in ci.
const INTEROP: &[&[&str]] = &[GRPC, HTTP, HTTP2, HTTP3, PROXY_PROTOCOL, ROOMS, SOCKS, TLS, WEBSOCKET];

/// The steps of long for parsers.
const DECODER: &[&str] = &["fuzzing", "lines that the fuzz corpora reach"];
const IMAGE: &[&str] = &["the image in namespaces", "the manifest of Kubernetes"];
const UNSAFE: &[&str] = &["address sanitizer", "the contract with all injected bugs"];

const TABLE: &[Row] = &[
    // Files that decide every build, and files that decide the steps.
    row(".cargo", Everything),
    row(".ci", Everything),
    row("Cargo.lock", Everything),
    row("Cargo.toml", Everything).long(&["packages that compile", "the image in namespaces"]),
    row("xtask", Everything),
    // The data path.
    row("crates/buffer", Everything).long(UNSAFE),
    row("crates/codec", Everything).long(DECODER),
    row("crates/engine", Everything).long(&["the contract with"]),
    row("crates/sys", Everything).long(UNSAFE),
    // Prose.
    row(".github", Of(&[])),
    row(".gitignore", Of(&[])),
    row("ARCHITECTURE.md", Of(&[])).tests(&["tidegate"]),
    row("CHANGELOG.md", Of(&[])),
    row("CONTRIBUTING.md", Of(&[])).tests(&["tidegate"]),
    row("GOVERNANCE.md", Of(&[])),
    row("LICENSE-APACHE", Of(&[])).tests(&["tidegate"]),
    row("LICENSE-MIT", Of(&[])).tests(&["tidegate"]),
    row("README.md", Of(&[DOCUMENTATION, PROGRAM])).tests(&["tidegate"]),
    row("SECURITY.md", Of(&[])),
    row("deny.toml", Of(&[])).long(&["licences, sources and advisories"]),
    row("docs", Of(&[DOCUMENTATION])).tests(&["tidegate", "tidegate-xtask"]).long(&["the site"]),
    row("docs/moving", Of(&[DOCUMENTATION, EXAMPLES])).tests(&["tidegate", "tidegate-examples"]),
    row("rustfmt.toml", Of(&[])),
    // A link to `crates/cli/templates`.
    row("templates", Of(&[TEMPLATES])),
    // Crates. `tests` and `documentation` of their dependants follow.
    row("crates/acme", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM])).long(&["certificates by pebble"]),
    row("crates/admin", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM])).long(&["the live page in a browser"]),
    row("crates/backplane", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM, ROOMS])),
    row("crates/bytelog", Of(&[DOCUMENTATION, PROGRAM])),
    row(
        "crates/cli",
        Of(&[COSTS, DOCUMENTATION, GRPC, HTTP, HTTP2, PROGRAM, PROXY_PROTOCOL, TEMPLATES, TLS, WEBSOCKET]),
    )
    .long(IMAGE),
    row("crates/compat", Of(&[DOCUMENTATION, EXAMPLES])),
    row("crates/compress", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM, WEBSOCKET])).long(DECODER),
    row("crates/http", Of(&[COSTS, DOCUMENTATION, EXAMPLES, GRPC, HTTP, HTTP2, PROGRAM, TLS, WEBSOCKET]))
        .long(&["in front of Python and nginx", "smuggled"]),
    row("crates/http-auth", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM])),
    row("crates/http-cache", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM])),
    row("crates/http-client", Of(&[COSTS, DOCUMENTATION, EXAMPLES, GRPC, HTTP2, PROGRAM, TLS, WEBSOCKET])),
    row("crates/http-message", Of(&[COSTS, DOCUMENTATION, EXAMPLES, GRPC, HTTP, HTTP2, PROGRAM, TLS, WEBSOCKET]))
        .long(&["in front of Python and nginx", "smuggled"]),
    row("crates/http-proxy", Of(&[COSTS, DOCUMENTATION, EXAMPLES, GRPC, HTTP, HTTP2, PROGRAM, TLS, WEBSOCKET]))
        .long(&["in front of Python and nginx", "smuggled"]),
    row("crates/http-upstream", Of(&[COSTS, DOCUMENTATION, EXAMPLES, GRPC, HTTP, HTTP2, PROGRAM, TLS, WEBSOCKET]))
        .long(&["in front of Python and nginx", "smuggled"]),
    row("crates/http-stream", Of(&[DOCUMENTATION, EXAMPLES, GRPC, HTTP2, HTTP3, INSTRUCTIONS, PROGRAM])).long(DECODER),
    row("crates/http1", Of(&[COSTS, DOCUMENTATION, EXAMPLES, HTTP, PROGRAM, WEBSOCKET])).long(DECODER),
    row("crates/http2", Of(&[DOCUMENTATION, EXAMPLES, GRPC, HTTP2, INSTRUCTIONS, PROGRAM])).long(DECODER),
    row("crates/http3", Of(&[DOCUMENTATION, HTTP3])).long(DECODER),
    row("crates/l4", Of(&[DOCUMENTATION, EXAMPLES, HTTP, PROGRAM])),
    row("crates/load", Of(&[DOCUMENTATION, PROGRAM, TLS])),
    row("crates/macros", Of(&[DOCUMENTATION, EXAMPLES])),
    row("crates/metrics", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM])),
    row("crates/proxy-protocol", Of(&[DOCUMENTATION, EXAMPLES, PROXY_PROTOCOL])).long(DECODER),
    row("crates/site", Of(&[DOCUMENTATION, HTTP, HTTP2, PROGRAM, WEBSOCKET])),
    row("crates/scan", Of(&[DOCUMENTATION, HTTP, INSTRUCTIONS, PROGRAM])).long(UNSAFE),
    row("crates/socks", Of(&[DOCUMENTATION, EXAMPLES, SOCKS])).long(DECODER),
    row("crates/dns", Of(&[DOCUMENTATION, EXAMPLES])).long(DECODER),
    row("crates/nats", Of(&[DOCUMENTATION, EXAMPLES])).long(DECODER),
    row("crates/memcached", Of(&[DOCUMENTATION, EXAMPLES])).long(DECODER),
    row("crates/quic", Of(&[DOCUMENTATION, EXAMPLES, HTTP3])),
    row("crates/redis", Of(&[DOCUMENTATION, EXAMPLES])).long(DECODER),
    row("crates/testkit", Of(&[DOCUMENTATION, INSTRUCTIONS, SEEDS, TEMPLATES])),
    row("crates/tidegate", Of(&[DOCUMENTATION, EXAMPLES, PROGRAM, TEMPLATES])),
    row("crates/tls", Of(&[DOCUMENTATION, EXAMPLES, GRPC, HTTP2, PROGRAM, TLS])),
    row("crates/tower", Of(&[DOCUMENTATION, EXAMPLES, GRPC])),
    row("crates/websocket", Of(&[DOCUMENTATION, EXAMPLES, INSTRUCTIONS, PROGRAM, WEBSOCKET])).long(DECODER),
    // Programs beside the crates.
    row("benches", Of(&[COSTS])).tests(&["tidegate"]),
    row("benches/arena", Of(&[])),
    row("benches/experiment", Of(&[])).long(&["tests and lints of the", "queue experiment"]),
    row("benches/instructions", Of(&[INSTRUCTIONS])),
    row("benches/peers", Of(&[&["tests of the comparison"]])).long(&["the peers answer alike", "comparison"]),
    // Its servers start and end those of the interop scripts as well.
    row("benches/servers.py", Of(&[COSTS, GRPC, HTTP, HTTP2, PROXY_PROTOCOL, SOCKS, TLS, WEBSOCKET])),
    row("deploy", Of(&[])).tests(&["tidegate-cli"]).long(IMAGE),
    row("examples", Of(&[COSTS, EXAMPLES, GRPC, SOCKS, WEBSOCKET]))
        .long(&["gRPC by the interop client", "gRPC by connect"]),
    row("fuzz", Of(&[])).long(DECODER),
    row("interop", Of(INTEROP)),
    row("interop/README.md", Of(&[])),
    row("interop/acme.py", Of(&[])).long(&["certificates by pebble"]),
    row("interop/browser.py", Of(&[])).long(&["a browser", "browsers"]),
    row("interop/chat.py", Of(&[])).long(&["two browsers in a chat"]),
    row("interop/container.py", Of(&[])).long(&["the image in namespaces"]),
    row("interop/dashboard.py", Of(&[])).long(&["the live page in a browser"]),
    row("interop/gateway.py", Of(&[])).long(&["in front of Python and nginx"]),
    row("interop/setups.py", Of(&[])).long(&["everyday set-ups beside nginx"]),
    row("interop/grpc.py", Of(&[GRPC])),
    row("interop/grpc_conformance.py", Of(&[])).long(&["gRPC by connectconformance"]),
    row("interop/grpc_conformance.yaml", Of(&[])).long(&["gRPC by connectconformance"]),
    row("interop/grpc_conformance_known.txt", Of(&[])).long(&["gRPC by connectconformance"]),
    row("interop/grpc_interop.py", Of(&[])).long(&["gRPC by the interop client"]),
    row("interop/h3spec.py", Of(&[])).long(&["HTTP/3 by h3spec"]),
    row("interop/http2.py", Of(&[HTTP2])),
    row("interop/http2_peers", Of(&[])).long(&["HTTP/2 with Python"]),
    row("interop/http2_peers.py", Of(&[])).long(&["HTTP/2 with Python"]),
    row("interop/image.py", Of(&[])).long(IMAGE),
    row("interop/kubernetes.py", Of(&[])).long(&["the manifest of Kubernetes"]),
    row("interop/naive.py", Of(&[])).long(&["smuggled"]),
    row("interop/proxies.py", Of(&[HTTP])).long(&["large bodies behind"]),
    row("interop/proxy_protocol.py", Of(&[PROXY_PROTOCOL])),
    row("interop/qpack.py", Of(&[])).long(&["QPACK tables by ls-qpack"]),
    row("interop/qpack_tables.py", Of(&[])).long(&["QPACK tables by aioquic"]),
    row("interop/quic.py", Of(&[])).long(&["QUIC by aioquic"]),
    row("interop/webtransport.py", Of(&[])).long(&["WebTransport"]),
    row("interop/connect_udp.py", Of(&[])).long(&["UDP over HTTP"]),
    row("interop/redis.py", Of(&[])).long(&["Redis clients"]),
    row("interop/partition.py", Of(&[])).long(&["rooms of two nodes"]),
    row("interop/brokers.py", Of(&[ROOMS])).long(&["rooms whose broker fails"]),
    row("interop/redis_peers", Of(&[])).long(&["Redis clients"]),
    row("interop/rolling.py", Of(&[])).long(&["rolling restarts"]),
    row("interop/slow.py", Of(&[])).long(&["slow clients"]),
    row("interop/smuggling.py", Of(&[])).long(&["smuggled"]),
    row("interop/socks.py", Of(&[SOCKS])),
    row("interop/tls.py", Of(&[TLS])).long(&["TLS by testssl.sh"]),
    row("interop/toxic.py", Of(&[])).long(&["a proxy between two toxiproxies"]),
    row("interop/zone.py", Of(&[])).long(&["a DNS zone", "a DNS forwarder"]),
    row("interop/forwarder.py", Of(&[])).long(&["a DNS forwarder"]),
    row("interop/websocket.py", Of(&[WEBSOCKET])).long(&["all WebSocket cases"]),
    row("interop/websocket_clients.py", Of(&[])).long(&["WebSocket with Python"]),
    row("interop/websocket_peers", Of(&[])).long(&["WebSocket with Python"]),
];

/// Runs the steps that the change since `base` can have broken.
pub(crate) fn run(base: Option<&str>, selection: &Selection) -> Result<(), Failure> {
    let Some(base) = base.map(str::to_owned).or_else(passed::commit) else {
        println!("no run of ci has passed here, and no base is given: everything runs");
        return run_all(ci::steps(Tests::All), selection, None);
    };
    let files = changed_files(&base)?;
    if files.is_empty() {
        println!("nothing has changed since {base}");
        return Ok(());
    }
    println!("{} files have changed since {base}", files.len());
    let plan = Plan::of(&files, &Packages::of_workspace()?);
    plan.explain();
    run_all(plan.steps(), selection, None)
}

/// The files that differ between the working tree and its merge base with this commit.
fn changed_files(base: &str) -> Result<BTreeSet<String>, Failure> {
    let unknown = |failure: Failure| {
        Failure(format!(
            "{failure}; is {base} in this repository? `cargo xtask ci --touched BASE` names another commit"
        ))
    };
    let merge_base = Step::line("git merge-base HEAD").arg(base).output().map_err(unknown)?;
    let git = |line: &str| Step::line(&format!("git -c core.quotePath=false {line}"));
    // Without renames the old name of a file is among them too.
    let changed = git("diff --name-only --no-renames").arg(merge_base.trim()).output()?;
    let new = git("ls-files --others --exclude-standard").output()?;
    Ok(changed.lines().chain(new.lines()).map(str::to_owned).collect())
}

/// The steps and tests to run.
#[derive(Debug, Default)]
struct Plan {
    /// The first changed file that needs everything.
    everything: Option<String>,
    steps: BTreeSet<&'static str>,
    packages: BTreeSet<String>,
    long: BTreeSet<&'static str>,
}

impl Plan {
    fn of(files: &BTreeSet<String>, packages: &Packages) -> Self {
        let mut plan = Self { steps: ALWAYS.iter().copied().collect(), ..Self::default() };
        let mut changed = BTreeSet::new();
        for file in files {
            changed.extend(packages.owner(file));
            match row_of(file) {
                Some(row) => {
                    match row.steps {
                        Everything => plan.everything = plan.everything.or_else(|| Some(file.clone())),
                        Of(groups) => plan.steps.extend(groups.iter().copied().flatten()),
                    }
                    plan.packages.extend(row.tests.iter().map(|package| (*package).to_owned()));
                    plan.long.extend(row.long);
                }
                None => plan.everything = plan.everything.or_else(|| Some(file.clone())),
            }
        }
        plan.packages.extend(packages.affected(changed));
        plan
    }

    fn explain(&self) {
        if let Some(file) = &self.everything {
            println!("everything runs because of {file}");
        } else if !self.packages.is_empty() {
            println!("tests of {}", self.packages.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
        }
        for text in &self.long {
            println!("long has more for this change: cargo xtask long --only {text:?}");
        }
    }

    fn steps(self) -> Vec<NamedStep> {
        if self.everything.is_some() {
            return ci::steps(Tests::All);
        }
        let has_tests = !self.packages.is_empty();
        let mut steps = ci::steps(Tests::Of(self.packages));
        steps.retain(|step| self.steps.contains(step.name()) || (has_tests && step.name() == ci::TESTS));
        steps
    }
}

/// The row with the longest path that the file is, or lies below.
fn row_of(file: &str) -> Option<&'static Row> {
    TABLE.iter().filter(|row| Path::new(file).starts_with(row.path)).max_by_key(|row| row.path.len())
}

/// The packages of the workspace by name, with their folders from the root on and the packages that they depend on.
struct Packages(BTreeMap<String, Package>);

struct Package {
    folder: String,
    dependencies: BTreeSet<String>,
    /// Those of its tests, examples and benches alone.
    dev_dependencies: BTreeSet<String>,
}

impl Packages {
    fn of_workspace() -> Result<Self, Failure> {
        let metadata = metadata()?;
        let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let packages: BTreeMap<_, _> = packages.filter_map(|package| Package::describe(package, root)).collect();
        if packages.is_empty() { Err(Failure("cargo metadata has no packages".into())) } else { Ok(Self(packages)) }
    }

    /// The package in whose folder a file lies.
    fn owner(&self, file: &str) -> Option<String> {
        let owners = self.0.iter().filter(|(_, package)| Path::new(file).starts_with(&package.folder));
        owners.max_by_key(|(_, package)| package.folder.len()).map(|(name, _)| name.clone())
    }

    /// The packages that have to be tested if these have changed.
    fn affected(&self, changed: BTreeSet<String>) -> BTreeSet<String> {
        let mut affected = changed;
        loop {
            let depends = |package: &Package| !package.dependencies.is_disjoint(&affected);
            let more: Vec<_> =
                self.0.iter().filter(|(name, package)| !affected.contains(*name) && depends(package)).collect();
            if more.is_empty() {
                break;
            }
            affected.extend(more.into_iter().map(|(name, _)| name.clone()));
        }
        // The dependants of a package do not see the dependencies of its tests.
        let in_tests = self.0.iter().filter(|(_, package)| !package.dev_dependencies.is_disjoint(&affected));
        let in_tests: Vec<_> = in_tests.map(|(name, _)| name.clone()).collect();
        affected.extend(in_tests);
        affected
    }
}

impl Package {
    fn describe(package: &Value, root: &Path) -> Option<(String, Self)> {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        let folder = folder.strip_prefix(root).ok()?.to_str()?.to_owned();
        let (mut dependencies, mut dev_dependencies) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array()?.iter().filter(|one| one["path"].is_string()) {
            let kind = if dependency["kind"] == "dev" { &mut dev_dependencies } else { &mut dependencies };
            kind.insert(dependency["name"].as_str()?.to_owned());
        }
        Some((package["name"].as_str()?.to_owned(), Self { folder, dependencies, dev_dependencies }))
    }
}

/// The folders of these packages, from the root of the repository on.
pub(crate) fn folders_of(packages: &BTreeSet<String>) -> Result<Vec<String>, Failure> {
    let Packages(all) = Packages::of_workspace()?;
    Ok(packages.iter().filter_map(|name| Some(all.get(name)?.folder.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn plan(files: &[&str]) -> Plan {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Plan::of(&files, &Packages::of_workspace().unwrap())
    }

    fn names(plan: Plan) -> Vec<String> {
        plan.steps().iter().map(|step| step.name().to_owned()).collect()
    }

    /// The tracked files; those of the tree, if git does not know it.
    fn tracked() -> Vec<String> {
        let list = std::process::Command::new("git").args(["ls-files"]).current_dir(root()).output();
        let files: Vec<_> = list.map_or_else(
            |_| Vec::new(),
            |list| String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect(),
        );
        if !files.is_empty() {
            return files;
        }
        let entries = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.filter(|name| ![".git", "target"].contains(&name.as_str())).collect()
    }

    #[test]
    fn each_file_of_the_repository_has_a_row() {
        let without: Vec<_> = tracked().into_iter().filter(|file| row_of(file).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn each_row_has_a_path_that_exists_and_is_the_only_one_of_its_path() {
        for (place, row) in TABLE.iter().enumerate() {
            assert!(root().join(row.path).exists(), "{}", row.path);
            assert!(TABLE[..place].iter().all(|other| other.path != row.path), "{}", row.path);
        }
    }

    #[test]
    fn each_step_of_the_table_exists() {
        let of = |steps: Vec<NamedStep>| steps.iter().map(|step| step.name().to_owned()).collect::<Vec<_>>();
        let (ci, long) = (of(ci::steps(Tests::All)), of(long::steps()));
        for row in TABLE {
            if let Of(groups) = row.steps {
                groups.iter().copied().flatten().for_each(|name| assert!(ci.iter().any(|one| one == name), "{name}"));
            }
            row.long.iter().for_each(|text| assert!(long.iter().any(|one| one.contains(text)), "{text}"));
        }
        ALWAYS.iter().for_each(|name| assert!(ci.iter().any(|one| one == name), "{name}"));
        assert!(ci.iter().any(|one| one == ci::TESTS));
    }

    /// It depends on manifests, whose rows run everything.
    const OF_MANIFESTS: &str = "compilers that dependencies declare";

    #[test]
    fn each_step_of_ci_is_that_of_a_path_or_of_tests() {
        for step in ci::steps(Tests::All) {
            let is_of =
                |row: &Row| matches!(row.steps, Of(groups) if groups.iter().any(|group| group.contains(&step.name())));
            let is_always = ALWAYS.contains(&step.name()) || [ci::TESTS, OF_MANIFESTS].contains(&step.name());
            assert!(is_always || TABLE.iter().any(is_of), "{} runs only with everything", step.name());
        }
    }

    #[test]
    fn all_scripts_of_interop_that_run_in_ci_are_among_those_of_the_folder() {
        for step in interop::representatives() {
            assert!(INTEROP.iter().any(|group| group.contains(&step.name())), "{}", step.name());
        }
    }

    #[test]
    fn a_file_without_a_row_runs_everything() {
        let plan = plan(&["docs/README.md", "new/file"]);
        assert_eq!(plan.everything.as_deref(), Some("new/file"));
        assert_eq!(names(plan).len(), ci::steps(Tests::All).len());
    }

    #[test]
    fn the_data_path_runs_everything() {
        assert!(plan(&["crates/engine/src/lib.rs"]).everything.is_some());
    }

    #[test]
    fn the_longest_path_decides() {
        assert_eq!(row_of("interop/socks.py").map(|row| row.path), Some("interop/socks.py"));
        assert_eq!(row_of("interop/new.py").map(|row| row.path), Some("interop"));
        assert_eq!(row_of("crates/http2/src/lib.rs").map(|row| row.path), Some("crates/http2"));
        assert!(row_of("crates/new/src/lib.rs").is_none());
    }

    #[test]
    fn a_script_of_interop_runs_its_step() {
        let plan = plan(&["interop/socks.py"]);
        assert!(plan.packages.is_empty());
        assert_eq!(names(plan), ["tools", "format", "lints", SOCKS[0]]);
    }

    #[test]
    fn prose_runs_the_tests_that_read_it() {
        let plan = plan(&["docs/guide/README.md"]);
        assert_eq!(plan.packages, ["tidegate".to_owned(), "tidegate-xtask".to_owned()].into());
        assert_eq!(names(plan), ["tools", "format", "lints", ci::TESTS, "documentation"]);
    }

    #[test]
    fn a_crate_runs_the_tests_of_its_dependants() {
        let packages = plan(&["crates/socks/src/lib.rs"]).packages;
        let has = |name: &str| packages.contains(name);
        assert!(
            has("tidegate-socks") && has("tidegate-http") && has("tidegate-cli") && has("tidegate-fuzz"),
            "{packages:?}"
        );
        // The tests of most crates are on the facade, which imports this one.
        assert!(has("tidegate-buffer") && !has("tidegate-scan") && !has("tidegate-xtask"), "{packages:?}");
        // Each crate has its tests on the testkit, and no crate its library.
        let packages = plan(&["crates/testkit/src/lib.rs"]).packages;
        assert!(packages.contains("tidegate-engine") && !packages.contains("tidegate-xtask"), "{packages:?}");
    }

    #[test]
    fn tests_of_dependants_do_not_pass_through_tests() {
        let package = |folder: &str, normal: &[&str], dev: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let package = Package { folder: folder.into(), dependencies: names(normal), dev_dependencies: names(dev) };
            (folder.to_owned(), package)
        };
        let packages = [package("kit", &[], &[]), package("base", &[], &["kit"]), package("above", &["base"], &[])];
        let packages = Packages(packages.into());
        let affected = |name: &str| packages.affected([name.to_owned()].into()).into_iter().collect::<Vec<_>>();
        assert_eq!(affected("kit"), ["base", "kit"]);
        assert_eq!(affected("base"), ["above", "base"]);
        assert_eq!(affected("above"), ["above"]);
    }
}
