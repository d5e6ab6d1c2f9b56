//! The Debian package, made by `dpkg-deb` of the staged program and of `deploy/debian`: program, units, manual pages,
//! completions, configuration files, a user, examples and the SBOM. Its bytes depend on its files and on the time of
//! the commit alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::binaries::{NATIVE, is_in_path, seconds, stage};
use super::{FILES, SBOM};
use crate::command::{Failure, Step};
use crate::steps::skip_part;

const ROOT: &str = "target/release-stage/deb";

/// The path of the package of this revision.
fn path(folder: &str, version: &str, revision: u32) -> String {
    format!("{folder}/tidegate_{version}-{revision}_amd64.deb")
}

pub(super) fn build(version: &str) -> Result<(), Failure> {
    if !is_in_path("dpkg-deb") {
        skip_part("dpkg-deb is missing");
        return Ok(());
    }
    package(version, 1, FILES)
}

/// Installs the package in a system of its own, upgrades it under load, and removes it.
pub(super) fn try_out(version: &str) -> Result<(), Failure> {
    let first = path(FILES, version, 1);
    if !Path::new(&first).exists() {
        skip_part(&format!("there is no {first}"));
        return Ok(());
    }
    // The next revision, to upgrade to.
    package(version, 2, "target/release-stage")?;
    Step::new("python3").args(["deploy/debian/try_package.py", &first, &path("target/release-stage", version, 2)]).run()
}

fn package(version: &str, revision: u32, folder: &str) -> Result<(), Failure> {
    drop(fs::remove_dir_all(ROOT));
    let program = stage(NATIVE);
    files(&program)?;
    let size = Step::line("du --summarize --apparent-size --block-size=1024").arg(ROOT).output()?;
    let control = fs::read_to_string("deploy/debian/control.in").map_err(|error| Failure(error.to_string()))?;
    let control = [
        ("@VERSION@", format!("{version}-{revision}")),
        ("@ARCHITECTURE@", "amd64".to_owned()),
        ("@SIZE@", size.split_whitespace().next().unwrap_or_default().to_owned()),
        ("@LIBC@", libc_version(&program.join("tidegate"))?),
    ]
    .into_iter()
    .fold(control, |text, (name, value)| text.replace(name, &value));
    write("DEBIAN/control", control.as_bytes(), 0o644)?;
    write("DEBIAN/conffiles", b"/etc/tidegate/tidegate.toml\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        write(&format!("DEBIAN/{script}"), &read(&Path::new("deploy/debian").join(script))?, 0o755)?;
    }
    write("DEBIAN/md5sums", md5sums()?.as_bytes(), 0o644)?;
    let build = Step::line("dpkg-deb --root-owner-group -Zxz --build").arg(ROOT).arg(path(folder, version, revision));
    build.env("SOURCE_DATE_EPOCH", seconds()).run()
}

/// All files, except those of dpkg.
fn files(program: &Path) -> Result<(), Failure> {
    write("usr/bin/tidegate", &read(&program.join("tidegate"))?, 0o755)?;
    let unit = String::from_utf8_lossy(&read(Path::new("deploy/tidegate.service"))?).into_owned();
    write("usr/lib/systemd/system/tidegate.service", unit_of_package(&unit)?.as_bytes(), 0o644)?;
    for socket in ["tidegate.socket", "tidegate-https.socket", "tidegate-http3.socket"] {
        write(&format!("usr/lib/systemd/system/{socket}"), &read(&Path::new("deploy").join(socket))?, 0o644)?;
    }
    write("etc/tidegate/tidegate.toml", &read(Path::new("deploy/debian/tidegate.toml"))?, 0o644)?;
    write("usr/share/tidegate/www/index.html", &read(Path::new("deploy/debian/index.html"))?, 0o644)?;
    for page in list(&program.join("man"))? {
        compressed(&format!("usr/share/man/man1/{}", name(&page)), &page)?;
    }
    for (file, to) in [
        ("tidegate.bash", "usr/share/bash-completion/completions/tidegate"),
        ("tidegate.zsh", "usr/share/zsh/vendor-completions/_tidegate"),
        ("tidegate.fish", "usr/share/fish/vendor_completions.d/tidegate.fish"),
    ] {
        write(to, &read(&program.join("completions").join(file))?, 0o644)?;
    }
    let documents = "usr/share/doc/tidegate";
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "deploy/debian/copyright", SBOM] {
        write(&format!("{documents}/{}", name(Path::new(file))), &read(Path::new(file))?, 0o644)?;
    }
    compressed(&format!("{documents}/changelog"), Path::new("CHANGELOG.md"))?;
    for example in list(Path::new("deploy/config"))?.iter().filter(|path| path.is_file()) {
        write(&format!("{documents}/examples/{}", name(example)), &read(example)?, 0o644)?;
    }
    Ok(())
}

/// The unit for a program in `/usr/bin` and a user with a name, to whose group TLS keys can belong. The options that
/// `DynamicUser` implies are in the unit.
fn unit_of_package(unit: &str) -> Result<String, Failure> {
    let (path, user) = ("/usr/local/bin/tidegate", "DynamicUser=yes\n");
    if !unit.contains(path) || !unit.contains(user) {
        return Err(Failure(format!("deploy/tidegate.service has no {path}, or no {}", user.trim())));
    }
    Ok(unit.replace(path, "/usr/bin/tidegate").replace(user, "User=tidegate\nGroup=tidegate\n"))
}

/// The newest version of glibc that the program names.
fn libc_version(program: &Path) -> Result<String, Failure> {
    let symbols = Step::new("objdump").arg("-T").arg(program).output()?;
    newest_libc(&symbols).ok_or_else(|| Failure(format!("{} needs no glibc", program.display())))
}

fn newest_libc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
        Some((numbers, version.to_owned()))
    });
    versions.max().map(|(_, version)| version)
}

fn md5sums() -> Result<String, Failure> {
    let line = "find . -type f -not -path './DEBIAN/*' -printf '%P\\n' | LC_ALL=C sort | xargs md5sum";
    Step::new("sh").args(["-c", line]).folder(ROOT).output()
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

/// A file of the package with these permissions.
fn write(path: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let path = Path::new(ROOT).join(path);
    let folder = path.parent().unwrap_or(Path::new(ROOT));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, bytes));
    let allowed = written.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
    // Folders do not follow the mask of this process.
    let folders = folder.ancestors().take_while(|folder| folder.starts_with(ROOT));
    let mut all = folders.map(|folder| fs::set_permissions(folder, fs::Permissions::from_mode(0o755)));
    allowed
        .and_then(|()| all.try_for_each(|done| done))
        .map_err(|error| Failure(format!("{}: {error}", path.display())))
}

/// `path` with `.gz` behind it, without name and time.
fn compressed(path: &str, from: &Path) -> Result<(), Failure> {
    write(path, &read(from)?, 0o644)?;
    Step::line("gzip -9 -n").arg(Path::new(ROOT).join(path)).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_package_has_its_path_and_its_user() {
        let unit = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/tidegate.service"));
        let unit = unit_of_package(&unit.expect("the unit")).expect("what it replaces is there");
        assert!(unit.contains("ExecStart=/usr/bin/tidegate serve") && unit.contains("\nUser=tidegate\n"), "{unit}");
        // Otherwise the first refused call would end the process: io_uring's, at the start.
        assert!(unit.contains("\nSystemCallErrorNumber=EPERM\n"), "{unit}");
        assert!(!unit.contains("/usr/local") && !unit.contains("DynamicUser"), "{unit}");
        assert!(unit_of_package("[Service]\n").is_err());
    }

    #[test]
    fn the_newest_version_of_glibc_is_that_by_numbers() {
        let symbols = "w DF *UND* (GLIBC_2.2.5) read\nDF *UND* (GLIBC_2.34) a\nDF *UND* (GLIBC_2.9) b\n";
        assert_eq!(newest_libc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_libc(""), None);
    }
}
