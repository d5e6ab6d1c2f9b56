//! Tools that tests and measurements need. A missing tool is installed: from Debian in the version of the release, from any
//! other registry in the version that stands here. Where that fails, the step fails with the command that installs the tool.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, Step};

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
    ("nginx", "nginx-light"),
    ("/usr/lib/nginx/modules/ngx_stream_module.so", "libnginx-mod-stream"),
    ("haproxy", "haproxy"),
    ("tshark", "tshark"),
    ("microsocks", "microsocks"),
    ("/usr/sbin/danted", "dante-server"),
    ("proxychains4", "proxychains4"),
    ("gnutls-cli", "gnutls-bin"),
    ("sslscan", "sslscan"),
    ("/usr/share/doc/python3-venv", "python3-venv"),
    ("/usr/lib/postgresql", "postgresql"),
    ("systemd-analyze", "systemd"),
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("nats-server", "nats-server"),
    ("memccapable", "libmemcached-tools"),
];

/// Further tools of the long checks.
pub(crate) const OF_LONG: &[(&str, &str)] = &[
    ("objdump", "binutils"),
    ("slowhttptest", "slowhttptest"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("/usr/share/doc/libseccomp2", "libseccomp2"),
    ("testssl", "testssl.sh"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("dig", "bind9-dnsutils"),
    ("kdig", "knot-dnsutils"),
    ("dnsperf", "dnsperf"),
    ("unbound", "unbound"),
    ("socat", "socat"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("nutcracker", "nutcracker"),
    ("mvn", "maven"),
];

/// Further tools of the servers of the comparison. The comparison skips a server whose toolchain is missing, with a
/// message.
pub(crate) const OF_PEERS: &[(&str, &str)] = &[
    ("/usr/lib/nginx/modules/ngx_http_echo_module.so", "libnginx-mod-http-echo"),
    ("/usr/include/h2o.h", "libh2o-evloop-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("java", "default-jdk-headless"),
    ("mvn", "maven"),
];

/// Installs the packages of tools that are missing.
pub(crate) fn install(tools: &[(&str, &str)]) -> Result<(), Failure> {
    let packages: Vec<_> = tools.iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {}", packages.join(" "));
    let line = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    let update = Step::line("apt-get update -qq").run();
    let install = || Step::line(&line).arg("-qq").env("DEBIAN_FRONTEND", "noninteractive").run();
    update
        .and_then(|()| install())
        .map_err(|failure| cannot_install(&failure, &format!("apt-get update && {line}")))?;
    match tools.iter().find(|(tool, _)| !is_there(tool)) {
        Some((tool, package)) => Err(Failure(format!("{tool} is missing after the installation of {package}"))),
        None => Ok(()),
    }
}

fn cannot_install(failure: &Failure, line: &str) -> Failure {
    Failure(format!("{failure}\na tool is missing, and this command installs it: {line}"))
}

/// A tool of another registry, in one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    registry: Registry,
    name: &'static str,
    version: &'static str,
}

/// Where a tool comes from, and below `target/tools` where it goes.
#[derive(Clone, Copy, Debug)]
enum Registry {
    /// Rust's, into Cargo's own folder. A debug build is enough: no such tool has to be fast.
    Rust,
    /// Python's, into an environment of its own; `extras` are options of the package, such as `[http2]`.
    Python { extras: &'static str },
    /// Node's, into a folder of its own.
    Node,
    /// Go's, into a folder that several may share; the program has the name of the package's last part.
    Go { package: &'static str, folder: &'static str },
    /// Maven's, of which one program in the archive of an artifact is used, if it has this SHA-256.
    Maven { artifact: &'static str, program: &'static str, sha256: &'static str },
}

pub(crate) const CARGO_DENY: Tool = rust("cargo-deny", "0.20.2");
pub(crate) const CONNECTCONFORMANCE: Tool = go("connectrpc.com/conformance/cmd/connectconformance", "bin", "v1.0.7");
pub(crate) const AIOQUIC: Tool = python("aioquic", "", "1.7.2");
pub(crate) const DNSPYTHON: Tool = python("dnspython", "[doh]", "2.9.2");
pub(crate) const GRPCURL: Tool = go("github.com/fullstorydev/grpcurl/cmd/grpcurl", "bin", "v1.9.3");
pub(crate) const GRPC_INTEROP: Tool = go("google.golang.org/grpc/interop/client", "grpc_interop/bin", "v1.85.0");
pub(crate) const H2SPEC: Tool = go("github.com/summerwind/h2spec/cmd/h2spec", "bin", "v2.2.1+incompatible");
/// The artifact is a plugin for Netty's build, and has the program for Linux.
pub(crate) const H3SPEC: Tool = Tool {
    registry: Registry::Maven {
        artifact: "io.netty.incubator:netty-incubator-h3spec-maven-plugin",
        program: "h3spec/h3spec-linux-x86_64",
        sha256: "2a178ae29eabcced5ec52aac1fc97784f6eaccace07aa6a4b716cd90ab29e6b7",
    },
    name: "h3spec",
    version: "0.0.5.Final",
};
pub(crate) const HTTPX: Tool = python("httpx", "[http2]", "0.28.1");
pub(crate) const IOREDIS: Tool = Tool { registry: Registry::Node, name: "ioredis", version: "6.0.0" };
pub(crate) const KOSOKU: Tool = python("kosoku", "", "0.1.0");
/// It has the schemas of Kubernetes up to its own version.
pub(crate) const KUBERNETES_VALIDATE: Tool = python("kubernetes-validate", "", "1.37.0");
pub(crate) const MDBOOK: Tool = rust("mdbook", "0.5.4");
pub(crate) const NATS_PY: Tool = python("nats-py", "", "2.16.0");
pub(crate) const PEBBLE: Tool = go("github.com/letsencrypt/pebble/v2/cmd/pebble", "bin", "v2.10.3");
/// The name server of pebble's tests.
pub(crate) const PEBBLE_DNS: Tool = go("github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv", "bin", "v2.10.3");
pub(crate) const REDIS_PY: Tool = python("redis", "", "8.1.0");
pub(crate) const SCAPY: Tool = python("scapy", "", "2.8.0");
pub(crate) const SEMVER_CHECKS: Tool = rust("cargo-semver-checks", "0.51.0");
pub(crate) const SMUGGLEX: Tool = rust("smugglex", "0.4.0");
pub(crate) const SSLYZE: Tool = python("sslyze", "", "6.3.1");
pub(crate) const TOXIPROXY: Tool = go("github.com/Shopify/toxiproxy/v2/cmd/server", "toxiproxy/bin", "v2.12.0");
pub(crate) const WEBSOCAT: Tool = rust("websocat", "1.14.0");
pub(crate) const WEBSOCKETS: Tool = python("websockets", "", "15.0.1");
pub(crate) const WS: Tool = Tool { registry: Registry::Node, name: "ws", version: "8.18.3" };

const fn rust(name: &'static str, version: &'static str) -> Tool {
    Tool { registry: Registry::Rust, name, version }
}

const fn python(name: &'static str, extras: &'static str, version: &'static str) -> Tool {
    Tool { registry: Registry::Python { extras }, name, version }
}

const fn go(package: &'static str, folder: &'static str, version: &'static str) -> Tool {
    Tool { registry: Registry::Go { package, folder }, name: package, version }
}

impl Tool {
    /// Installs it, unless it is there in this version.
    pub(crate) fn install(self) -> Result<(), Failure> {
        if self.is_there() {
            return Ok(());
        }
        println!("installing {} {}", self.name, self.version);
        let line = self.command_line();
        Step::new("sh").args(["-ec", &line]).run().map_err(|failure| cannot_install(&failure, &line))?;
        let mark = self.mark();
        let io = |error: std::io::Error| Failure(format!("{}: {error}", mark.display()));
        mark.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&mark, self.version)).map_err(io)
    }

    /// The command that installs it, for a shell in the root of the repository.
    fn command_line(self) -> String {
        let (name, version) = (self.name, self.version);
        match self.registry {
            Registry::Rust => format!("cargo install --quiet --locked --debug --force --version {version} {name}"),
            Registry::Python { extras } => {
                let folder = format!("target/tools/{name}");
                let pip = format!("{folder}/bin/pip install --quiet '{name}{extras}=={version}'");
                format!("rm -rf {folder} && python3 -m venv {folder} && {pip}")
            }
            Registry::Node => {
                let folder = format!("target/tools/{name}");
                format!("npm install --silent --no-audit --no-fund --prefix {folder} {name}@{version}")
            }
            Registry::Go { package, folder } => {
                format!("GOBIN=\"$PWD/target/tools/{folder}\" go install {package}@{version}")
            }
            Registry::Maven { artifact, program, sha256 } => {
                let folder = format!("target/tools/{name}");
                let copy =
                    format!("-Dartifact={artifact}:{version} -DoutputDirectory={folder} -Dmdep.stripVersion=true");
                let archive = format!("{folder}/{}.jar", artifact.rsplit(':').next().unwrap_or_default());
                format!(
                    "rm -rf {folder} && mvn -q dependency:get -Dtransitive=false -Dartifact={artifact}:{version} \
                     && mvn -q dependency:copy {copy} && python3 -m zipfile -e {archive} {folder}/archive \
                     && echo '{sha256}  {folder}/archive/{program}' | sha256sum -c --quiet \
                     && install {folder}/archive/{program} {folder}/{name}"
                )
            }
        }
    }

    fn is_there(self) -> bool {
        match self.registry {
            // Cargo lists its installed tools.
            Registry::Rust => {
                let installed = Step::line("cargo install --list").output().unwrap_or_default();
                installed.lines().any(|line| line == format!("{} v{}:", self.name, self.version)) && is_there(self.name)
            }
            _ => {
                let marked = fs::read_to_string(self.mark()).is_ok_and(|version| version == self.version);
                marked && self.installed_path().exists()
            }
        }
    }

    fn installed_path(self) -> PathBuf {
        let tools = Path::new("target/tools");
        match self.registry {
            Registry::Rust => PathBuf::from(self.name),
            Registry::Python { .. } => tools.join(self.name).join("bin/python3"),
            Registry::Node => tools.join(self.name).join("node_modules").join(self.name),
            Registry::Maven { .. } => tools.join(self.name).join(self.name),
            Registry::Go { package, folder } => tools.join(folder).join(package.rsplit('/').next().unwrap_or_default()),
        }
    }

    /// The file that has the installed version.
    fn mark(self) -> PathBuf {
        Path::new("target/tools/versions").join(self.name.replace('/', "_"))
    }
}

fn is_there(tool: &str) -> bool {
    if tool.starts_with('/') {
        return Path::new(tool).exists();
    }
    let home = env::var_os("CARGO_HOME").map(Into::into).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    // Debian has the programs of servers in a folder that is not in every PATH.
    let more = home.map(|home| home.join("bin")).into_iter().chain([PathBuf::from("/usr/sbin")]);
    folders.into_iter().chain(more).any(|folder| folder.join(tool).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINNED: [Tool; 22] = [
        CARGO_DENY,
        CONNECTCONFORMANCE,
        GRPCURL,
        GRPC_INTEROP,
        H2SPEC,
        H3SPEC,
        HTTPX,
        IOREDIS,
        KOSOKU,
        KUBERNETES_VALIDATE,
        MDBOOK,
        NATS_PY,
        AIOQUIC,
        DNSPYTHON,
        REDIS_PY,
        SEMVER_CHECKS,
        SMUGGLEX,
        SSLYZE,
        TOXIPROXY,
        WEBSOCAT,
        WEBSOCKETS,
        WS,
    ];

    #[test]
    fn the_command_that_installs_a_tool_names_its_version() {
        for tool in PINNED {
            assert!(tool.command_line().contains(tool.version), "{tool:?}");
        }
        assert_eq!(
            H2SPEC.command_line(),
            "GOBIN=\"$PWD/target/tools/bin\" go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
        );
    }

    #[test]
    fn no_two_tools_share_a_mark_or_a_path() {
        for (place, tool) in PINNED.iter().enumerate() {
            for other in &PINNED[..place] {
                assert_ne!(tool.mark(), other.mark());
                assert_ne!(tool.installed_path(), other.installed_path());
            }
        }
    }

    #[test]
    fn a_failed_installation_names_the_command() {
        let failure = Tool { registry: Registry::Rust, name: "--no-such-flag", version: "1" }.install();
        let text = failure.map_or_else(|failure| failure.0, |()| String::new());
        assert!(text.contains("this command installs it: cargo install"), "{text}");
    }
}
