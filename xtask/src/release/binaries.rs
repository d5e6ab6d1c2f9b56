//! The program as it is installed: profile `dist`, stripped, with manual pages and completions, for each processor
//! whose toolchain is here.
//!
//! No path of the machine is in the program: the root of the repository, the folder of the build and that of cargo have
//! fixed names in it. So two builds in different folders are the same to the byte, which `--reproduce` checks.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::FILES;
use super::packages::cargo_home;
use crate::command::{Failure, Step, cargo};
use crate::steps::skip_part;

/// The processor of this machine, the only one whose programs run here.
pub(super) const NATIVE: &str = "x86_64-unknown-linux-gnu";

/// The other one, with the linker that it needs.
const FOREIGN: (&str, &str) = ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc");

/// The folder of builds of a release. It stays, so that a later run builds nothing.
const BUILD: &str = "target/release-build";

/// The folder of the build that is compared.
pub(super) const SECOND_BUILD: &str = "target/release-build-again";

/// The folder from which archives and the Debian package are made.
const STAGE: &str = "target/release-stage";

/// A folder that has the stripped program of a target, its manual pages and its completions.
pub(super) fn stage(target: &str) -> PathBuf {
    Path::new(STAGE).join(target)
}

/// Builds the program for this machine, strips it, and packs it.
pub(super) fn native(version: &str, profile: &str) -> Result<(), Failure> {
    let program = build(NATIVE, BUILD, profile, &[])?;
    pack(&program, NATIVE, version, "")
}

/// Builds the program for the other processor, if the standard library and the linker for it are here. Otherwise prints
/// how to build it.
pub(super) fn foreign(version: &str, profile: &str) -> Result<(), Failure> {
    let (target, linker) = FOREIGN;
    let sysroot = Step::line("rustc --print sysroot").output()?;
    let has_library = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").exists();
    if !has_library || !is_in_path(linker) {
        skip_part(&format!("{target} needs its standard library and {linker}; on a machine that can install both:"));
        println!(
            "    rustup target add {target} && apt-get install gcc-aarch64-linux-gnu && \
             cargo xtask release --dry-run --only aarch64"
        );
        return Ok(());
    }
    let variables =
        [("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker), ("CC_aarch64_unknown_linux_gnu", linker)];
    let program = build(target, BUILD, profile, &variables)?;
    pack(&program, target, version, "aarch64-linux-gnu-")
}

/// Builds the program a second time, in another folder, and compares the stripped programs byte for byte.
pub(super) fn reproduce(profile: &str) -> Result<(), Failure> {
    let program = build(NATIVE, SECOND_BUILD, profile, &[])?;
    let stripped = format!("{SECOND_BUILD}/tidegate");
    strip(&program, &stripped, "")?;
    let first = stage(NATIVE).join("tidegate");
    let digests = [sha256(&first)?, sha256(Path::new(&stripped))?];
    println!("{}  {}\n{}  {stripped}", digests[0], first.display(), digests[1]);
    if digests[0] == digests[1] { Ok(()) } else { Err(Failure("two builds of the program differ".into())) }
}

/// Builds the program without `tidegate experiment`, which needs the source tree.
fn build(target: &str, folder: &str, profile: &str, variables: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    let root = env::current_dir().map_err(|error| Failure(error.to_string()))?;
    let home = cargo_home().ok_or_else(|| Failure("there is no home folder, and CARGO_HOME is not set".into()))?;
    // The last prefix that matches counts.
    let names = [(root.clone(), "/tidegate"), (home, "/cargo"), (root.join(folder), "/build")];
    let rust = names.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    let c = names.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display()));
    let line = format!(
        "build --locked --package tidegate-cli --bin tidegate --no-default-features --profile {profile} \
         --target {target} --target-dir {folder}"
    );
    let step = cargo(line.split(' ')).env("RUSTFLAGS", rust.collect::<Vec<_>>().join(" "));
    let step = step.env("CFLAGS", c.collect::<Vec<_>>().join(" "));
    variables.iter().fold(step, |step, (name, value)| step.env(name, *value)).run()?;
    let of_profile = if profile == "dev" { "debug" } else { profile };
    Ok(Path::new(folder).join(target).join(of_profile).join("tidegate"))
}

fn strip(program: &Path, to: &str, prefix: &str) -> Result<(), Failure> {
    Step::new(&format!("{prefix}strip")).args(["--strip-all", "-o", to]).arg(program).run()
}

/// Strips the program into its stage, and makes an archive of the stage and one of the debugging symbols.
fn pack(program: &Path, target: &str, version: &str, prefix: &str) -> Result<(), Failure> {
    let stage = stage(target);
    drop(fs::remove_dir_all(&stage));
    let folder = |name: &str| {
        let path = stage.join(name);
        fs::create_dir_all(&path).map_err(|error| Failure(format!("{}: {error}", path.display())))
    };
    folder("man").and_then(|()| folder("completions"))?;
    strip(program, &stage.join("tidegate").to_string_lossy(), prefix)?;
    // Flags are the same for each processor, and only this machine's program runs here.
    let native = self::stage(NATIVE).join("tidegate");
    Step::new(&native.to_string_lossy()).arg("man").arg("--out").arg(stage.join("man")).run()?;
    for shell in ["bash", "zsh", "fish"] {
        let text = Step::new(&native.to_string_lossy()).args(["completions", shell]).output()?;
        let path = stage.join("completions").join(format!("tidegate.{shell}"));
        fs::write(&path, text).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(file, stage.join(file)).map_err(|error| Failure(format!("{file}: {error}")))?;
    }
    let name = format!("tidegate-{version}-{target}");
    archive(&stage, ".", &name, &format!("{FILES}/{name}.tar.gz"))?;
    let symbols = stage.with_extension("debug");
    Step::new(&format!("{prefix}objcopy")).arg("--only-keep-debug").arg(program).arg(&symbols).run()?;
    let folder = symbols.parent().unwrap_or(Path::new("."));
    let file = symbols.file_name().unwrap_or_default().to_string_lossy();
    archive(folder, &file, &name, &format!("{FILES}/{name}-debug.tar.gz"))
}

/// An archive whose bytes depend on nothing but its files.
fn archive(folder: &Path, what: &str, name: &str, to: &str) -> Result<(), Failure> {
    let options = "--sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --create --use-compress-program";
    let tar = Step::new("tar").args(options.split(' ')).arg("gzip -9 -n").arg(format!("--mtime=@{}", seconds()));
    tar.arg(format!("--transform=s,^\\.,{name},")).arg("--file").arg(to).arg("--directory").arg(folder).arg(what).run()
}

/// The time of the last commit, or `SOURCE_DATE_EPOCH`: that of all files in archives and packages.
pub(super) fn seconds() -> String {
    let of_commit = || Step::line("git log -1 --format=%ct").output().map(|text| text.trim().to_owned());
    env::var("SOURCE_DATE_EPOCH").or_else(|_| of_commit()).unwrap_or_else(|_| "0".into())
}

pub(super) fn sha256(file: &Path) -> Result<String, Failure> {
    let text = Step::new("sha256sum").arg(file).output()?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

pub(super) fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).any(|folder| folder.join(program).is_file())
}
