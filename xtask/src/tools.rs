//! Tools that tests and measurements need, installed where they are missing.

use std::env;
use std::fs;
use std::path::Path;

use crate::command::{Failure, Step, cargo};

/// Tools by the name of their command, or by a path, and the Debian package that has them.
pub(crate) const OF_CI: &[(&str, &str)] = &[
    ("wrk", "wrk"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("strace", "strace"),
    ("valgrind", "valgrind"),
    ("python3", "python3"),
    ("h2load", "nghttp2-client"),
    ("nghttpd", "nghttp2-server"),
    ("taskset", "util-linux"),
    ("c++", "g++"),
    ("objdump", "binutils"),
    ("nginx", "nginx-light"),
    ("/usr/lib/nginx/modules/ngx_stream_module.so", "libnginx-mod-stream"),
    ("haproxy", "haproxy"),
    ("slowhttptest", "slowhttptest"),
    ("tshark", "tshark"),
    ("microsocks", "microsocks"),
    ("/usr/sbin/danted", "dante-server"),
    ("proxychains4", "proxychains4"),
    ("gnutls-cli", "gnutls-bin"),
    ("sslscan", "sslscan"),
    ("/usr/share/doc/python3-venv", "python3-venv"),
    ("/usr/lib/postgresql", "postgresql"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("systemd-analyze", "systemd"),
    ("/usr/share/doc/libseccomp2", "libseccomp2"),
];

/// What the long checks need beside those.
pub(crate) const OF_LONG: &[(&str, &str)] = &[("testssl", "testssl.sh")];

/// What the servers of the comparison need beside those. The comparison skips a server whose toolchain is missing, with
/// a message.
pub(crate) const OF_PEERS: &[(&str, &str)] = &[
    ("/usr/lib/nginx/modules/ngx_http_echo_module.so", "libnginx-mod-http-echo"),
    ("/usr/include/h2o.h", "libh2o-evloop-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("java", "default-jdk-headless"),
    ("mvn", "maven"),
];

/// Installs the packages of tools that are missing.
pub(crate) fn install(tools: &[(&str, &str)]) -> Result<(), Failure> {
    let missing: Vec<_> = tools.iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(" "));
    Step::line("apt-get update -qq").run()?;
    let install = Step::line("apt-get install -qq -y --no-install-recommends").args(missing);
    install.env("DEBIAN_FRONTEND", "noninteractive").run()
}

/// Installs a program from Rust's registry. A debug build is enough: none of them has to be fast.
pub(crate) fn install_crate(name: &str, version: &str) -> Result<(), Failure> {
    if is_there(name) {
        return Ok(());
    }
    cargo(["install", "--quiet", "--locked", "--debug", "--version", version, name]).run()
}

/// Installs a program from Python's registry into a folder of its own below `target/tools`, where scripts look for it.
pub(crate) fn install_python(name: &str, version: &str) -> Result<(), Failure> {
    let folder = format!("target/tools/{name}");
    if is_there(name) || Path::new(&folder).join("bin").join(name).is_file() {
        return Ok(());
    }
    Step::line("python3 -m venv").arg(&folder).run()?;
    Step::line(&format!("{folder}/bin/pip install --quiet {name}=={version}")).run()
}

/// Installs a package from Python's registry that scripts import, into a folder of its own below `target/tools`. `extras` are
/// its options, such as `[http2]`.
pub(crate) fn install_python_package(name: &str, extras: &str, version: &str) -> Result<(), Failure> {
    let folder = format!("target/tools/{name}");
    if Path::new(&folder).join("bin/python3").exists() {
        return Ok(());
    }
    Step::line("python3 -m venv").arg(&folder).run()?;
    let installed = Step::line(&format!("{folder}/bin/pip install --quiet {name}{extras}=={version}")).run();
    if installed.is_err() {
        // Without the package the folder would count as installed the next time.
        let _ = fs::remove_dir_all(&folder);
    }
    installed
}

/// Installs a package of Node into a folder of its own below `target/tools`. Without Node the scripts report that.
pub(crate) fn install_node(name: &str, version: &str) -> Result<(), Failure> {
    let folder = format!("target/tools/{name}");
    if Path::new(&folder).join("node_modules").is_dir() || !is_there("npm") {
        return Ok(());
    }
    Step::line(&format!("npm install --silent --no-audit --no-fund --prefix {folder} {name}@{version}")).run()
}

/// Installs a program of Go into `target/tools/bin`, where scripts look for it. Without Go the scripts report that.
pub(crate) fn install_go(name: &str, package: &str, version: &str) -> Result<(), Failure> {
    if is_there(name) || Path::new("target/tools/bin").join(name).is_file() || !is_there("go") {
        return Ok(());
    }
    go_install(package, version, "target/tools/bin")
}

/// The same for a program whose command has a name of no use in a common folder, below `target/tools/FOLDER`.
pub(crate) fn install_go_apart(folder: &str, command: &str, package: &str, version: &str) -> Result<(), Failure> {
    let folder = format!("target/tools/{folder}/bin");
    if Path::new(&folder).join(command).is_file() || !is_there("go") {
        return Ok(());
    }
    go_install(package, version, &folder)
}

fn go_install(package: &str, version: &str, folder: &str) -> Result<(), Failure> {
    let folder = env::current_dir().map_err(|error| Failure(error.to_string()))?.join(folder);
    Step::line("go install").arg(format!("{package}@{version}")).env("GOBIN", folder).run()
}

fn is_there(tool: &str) -> bool {
    if tool.starts_with('/') {
        return Path::new(tool).exists();
    }
    let home = env::var_os("CARGO_HOME").map(Into::into).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    folders.into_iter().chain(home.map(|home| home.join("bin"))).any(|folder| folder.join(tool).is_file())
}
