//! `cargo xtask new-protocol NAME`: a protocol crate with one frame type, its contract test, fuzz target and example, and
//! every place in the tree that has to name it. The files come from `xtask/templates/protocol`.
//!
//! Each edit inserts lines beside those of the crate `socks`, which is the model: `CONTRIBUTING.md`. An edit that does not
//! find its place fails and names it. `check_in_a_copy` tests the result in a copy of the tree.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::command::{Failure, Step, cargo};

/// Creates the crate `crates/NAME` in the tree at `root`.
pub(crate) fn create(root: &Path, name: &str) -> Result<(), Failure> {
    let protocol = Protocol::new(root, name)?;
    protocol.write_files()?;
    protocol.edit_manifests()?;
    protocol.edit_facade()?;
    protocol.edit_fuzzing()?;
    protocol.edit_documents()?;
    protocol.edit_ci()?;
    cargo(["fmt", "--all"]).folder(&root.to_string_lossy()).run()
}

/// A protocol that is created.
struct Protocol<'r> {
    root: &'r Path,
    /// The name of its crate, feature, module, fuzz target and example.
    name: String,
    /// The name of its codec.
    codec: String,
}

impl<'r> Protocol<'r> {
    fn new(root: &'r Path, name: &str) -> Result<Self, Failure> {
        let mut letters = name.chars();
        let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
        if !is_name {
            return Err(Failure(format!(
                "`{name}`: a name is lower-case letters and digits, and begins with a letter"
            )));
        }
        let codec = letters.next().into_iter().map(|first| first.to_ascii_uppercase()).chain(letters).collect();
        let protocol = Self { root, name: name.to_owned(), codec };
        for taken in [protocol.folder(), format!("examples/{name}.rs"), format!("fuzz/src/{name}.rs")] {
            if root.join(&taken).exists() {
                return Err(Failure(format!("{taken} exists already")));
            }
        }
        Ok(protocol)
    }

    fn folder(&self) -> String {
        format!("crates/{}", self.name)
    }

    fn write_files(&self) -> Result<(), Failure> {
        let (name, folder) = (&self.name, self.folder());
        for (template, path) in TEMPLATES {
            self.write(&path.replace("@name@", name), self.filled(template))?;
        }
        for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let link = self.root.join(&folder).join(license);
            symlink(format!("../../{license}"), &link).map_err(|error| failure(&link, &error))?;
        }
        for (input, bytes) in CORPUS {
            self.write(&format!("fuzz/corpus/{name}/{input}"), bytes)?;
        }
        Ok(())
    }

    fn edit_manifests(&self) -> Result<(), Failure> {
        let name = &self.name;
        self.edit("Cargo.toml", |text| {
            let line = format!("tidegate-{name} = {{ path = \"crates/{name}\", version = \"0.1.0\" }}");
            insert_after(text, "tidegate-socks = { path", &line)
        })?;
        self.edit("crates/tidegate/Cargo.toml", |text| {
            let text = insert_after(
                text,
                "tidegate-socks = {",
                &format!("tidegate-{name} = {{ workspace = true, optional = true }}"),
            )?;
            insert_after(
                &text,
                "socks = [\"dep:tidegate-socks\"]",
                &format!("# The protocol {name}.\n{name} = [\"dep:tidegate-{name}\"]"),
            )
        })?;
        self.edit("examples/Cargo.toml", |text| {
            let text = text.replacen("\"socks\", ", &format!("\"{name}\", \"socks\", "), 1);
            let example = format!("[[example]]\nname = \"{name}\"\npath = \"{name}.rs\"\ntest = true\n\n");
            insert_before(&text, "[[example]]\nname = \"socks_server\"", &example)
        })?;
        self.edit("fuzz/Cargo.toml", |text| {
            let text =
                insert_after(text, "tidegate-socks.workspace = true", &format!("tidegate-{name}.workspace = true"))?;
            let program = format!(
                "[[bin]]\nname = \"{name}\"\npath = \"targets/{name}.rs\"\nrequired-features = [\"libfuzzer\"]\n\
                 test = false\ndoc = false\nbench = false\n\n"
            );
            insert_before(&text, "[[bin]]\nname = \"socks\"", &program)
        })
    }

    fn edit_facade(&self) -> Result<(), Failure> {
        let name = &self.name;
        self.edit("crates/tidegate/src/lib.rs", |text| {
            let row = format!("//! | `{name}`, by the feature of that name | the protocol {name}: frames of a kind and a body |");
            let text = insert_after(text, "//! | `socks`, by the feature", &row)?;
            let module = format!(
                "/// The protocol {name}.\n#[cfg(feature = \"{name}\")]\n#[doc(inline)]\npub use tidegate_{name} as {name};"
            );
            insert_after(&text, "pub use tidegate_socks as socks;", &module)
        })
    }

    fn edit_fuzzing(&self) -> Result<(), Failure> {
        let name = &self.name;
        self.edit("fuzz/src/lib.rs", |text| {
            let row = format!("//! | `{name}` | the seed of a split, then frames | `{name}.rs` |");
            let text = insert_after(text, "//! | `socks` |", &row)?;
            let text = insert_after(&text, "//! | `socks.rs` |", &format!("//! | `{name}.rs` | frames of {name} |"))?;
            let text = insert_after(&text, "mod socks;", &format!("mod {name};"))?;
            let text = insert_after(&text, "pub use socks::socks;", &format!("pub use {name}::{name};"))?;
            let text = insert_after(&text, "    (\"socks\", socks),", &format!("    (\"{name}\", {name}),"))?;
            count_up(&text, "pub const TARGETS: [(&str, Target); ")
        })?;
        self.edit("fuzz/coverage.py", |text| {
            let line = format!("    *(f\"crates/{name}/src/{{name}}.rs\" for name in \"codec\".split()),");
            insert_after(text, "    *(f\"crates/socks/src/", &line)
        })
    }

    fn edit_documents(&self) -> Result<(), Failure> {
        let Self { name, .. } = self;
        self.edit("docs/imports.md", |text| {
            let imports = format!("| `tidegate-{name}` | `tidegate-codec` | `tidegate` `tidegate-testkit` |");
            let text = insert_after(text, "| `tidegate-socks` |", &imports)?;
            let text = add_import(&text, "tidegate", name)?;
            add_import(&text, "tidegate-fuzz", name)
        })?;
        self.edit("ARCHITECTURE.md", |text| {
            let wrong = format!("| a frame of {name} that is refused | `crates/{name}/src/codec.rs` |");
            insert_after(text, "| a handshake of SOCKS,", &wrong)
        })?;
        self.edit("docs/README.md", |text| {
            let row = format!(
                "| {name}, by the feature `{name}` | frames of a kind and a body, both sides: \
                 [`examples/{name}.rs`](../examples/{name}.rs) |"
            );
            let text = insert_after(text, "| SOCKS, by the feature `socks` |", &row)?;
            let row = format!(
                "| [`examples/{name}.rs`](../examples/{name}.rs) | a server of {name} that sends frames back |"
            );
            insert_after(&text, "| [`examples/socks_server.rs`]", &row)
        })?;
        self.edit("CHANGELOG.md", |text| {
            let entry =
                format!("### Added\n\n- Feature `{name}`: the protocol {name}, client and server. Example `{name}`.\n");
            replace(text, "### Added\n\n", &entry)
        })
    }

    /// CI runs each example.
    fn edit_ci(&self) -> Result<(), Failure> {
        self.edit("xtask/src/ci.rs", |text| {
            let text = insert_after(text, "    \"socks_server\",", &format!("    \"{}\",", self.name))?;
            count_up(&text, "const EXAMPLES: [&str; ")
        })?;
        self.edit("xtask/src/touched.rs", |text| {
            let row = format!("    row(\"crates/{}\", Of(&[DOCUMENTATION, EXAMPLES])).long(DECODER),", self.name);
            insert_after(text, "    row(\"crates/socks\",", &row)
        })
    }

    fn filled(&self, template: &str) -> String {
        template.replace("@name@", &self.name).replace("@Name@", &self.codec)
    }

    fn edit(&self, path: &str, edit: impl FnOnce(&str) -> Result<String, Failure>) -> Result<(), Failure> {
        let file = self.root.join(path);
        let text = fs::read_to_string(&file).map_err(|error| failure(&file, &error))?;
        let text = edit(&text).map_err(|Failure(text)| Failure(format!("{path}: {text}")))?;
        fs::write(&file, text).map_err(|error| failure(&file, &error))
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
        let file = self.root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|error| failure(folder, &error))?;
        }
        fs::write(&file, content).map_err(|error| failure(&file, &error))
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

/// Inserts lines behind the first line that begins with `start`.
fn insert_after(text: &str, start: &str, lines: &str) -> Result<String, Failure> {
    let mut written = String::with_capacity(text.len() + lines.len());
    let mut is_inserted = false;
    for line in text.split_inclusive('\n') {
        written.push_str(line);
        if !is_inserted && line.starts_with(start) {
            written.push_str(lines);
            written.push('\n');
            is_inserted = true;
        }
    }
    if is_inserted { Ok(written) } else { Err(Failure(format!("no line begins with `{start}`"))) }
}

fn insert_before(text: &str, place: &str, lines: &str) -> Result<String, Failure> {
    replace(text, place, &format!("{lines}{place}"))
}

fn replace(text: &str, place: &str, with: &str) -> Result<String, Failure> {
    if text.contains(place) { Ok(text.replacen(place, with, 1)) } else { Err(Failure(format!("`{place}` is missing"))) }
}

/// Adds one to the number behind `start`: the length of an array.
fn count_up(text: &str, start: &str) -> Result<String, Failure> {
    let rest = text.split_once(start).map(|(_, rest)| rest).ok_or_else(|| Failure(format!("`{start}` is missing")))?;
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let count: usize = number.parse().map_err(|error| Failure(format!("the number behind `{start}`: {error}")))?;
    replace(text, &format!("{start}{number}"), &format!("{start}{}", count + 1))
}

/// Adds the crate to the imports of a package in docs/imports.md, in their order.
fn add_import(text: &str, package: &str, name: &str) -> Result<String, Failure> {
    let start = format!("| `{package}` |");
    let row = text.lines().find(|line| line.starts_with(&start));
    let row = row.ok_or_else(|| Failure(format!("no row begins with `{start}`")))?;
    let cells: Vec<_> = row.split('|').collect();
    let [_, own, imports, of_tests, _] = cells[..] else { return Err(Failure(format!("{row} has no three cells"))) };
    let added = format!("`tidegate-{name}`");
    let mut imports: Vec<_> = imports.split_whitespace().collect();
    imports.push(&added);
    // By the names: a backtick would come behind a hyphen.
    imports.sort_unstable_by_key(|import| import.trim_matches('`'));
    replace(text, row, &format!("|{own}| {} |{of_tests}|", imports.join(" ")))
}

/// Creates a protocol in a copy of the tree, and runs there the tests that compare files, and those of the new crate.
pub(crate) fn check_in_a_copy() -> Result<(), Failure> {
    let folder = PathBuf::from("target/new-protocol");
    copy_tree(Path::new("."), &folder)?;
    create(&folder, TRIED)?;
    let folder = folder.to_string_lossy().into_owned();
    let cargo = |arguments: &str| cargo(arguments.split(' ')).args(["--target-dir", TARGET]).folder(&folder);
    let lints = Step::line(&format!("cargo clippy --package tidegate-{TRIED} --all-targets")).folder(&folder);
    lints.args(["--target-dir", TARGET, "--", "-D", "warnings"]).run()?;
    cargo(&format!("test --package tidegate-{TRIED} --package tidegate --package tidegate-fuzz")).run()?;
    cargo(&format!("run --package tidegate-examples --example {TRIED}")).run()
}

/// Copies the files that git tracks or would track.
fn copy_tree(from: &Path, to: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failure(to, &error)),
        _ => {}
    }
    let list =
        Step::line("git ls-files --cached --others --exclude-standard").folder(&from.to_string_lossy()).output()?;
    for name in list.lines() {
        let (source, target) = (from.join(name), to.join(name));
        // A deleted file is listed until the deletion is staged.
        let Ok(metadata) = source.symlink_metadata() else { continue };
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|error| failure(folder, &error))?;
        }
        let copied = if metadata.is_symlink() {
            fs::read_link(&source).and_then(|link| symlink(link, &target))
        } else {
            fs::copy(&source, &target).map(drop)
        };
        copied.map_err(|error| failure(&source, &error))?;
    }
    Ok(())
}

/// The name of the protocol that is tried.
const TRIED: &str = "ebb";

/// Where the copy is built, as seen from the copy.
const TARGET: &str = "../new-protocol-build";

/// The templates, and the files that they become.
const TEMPLATES: [(&str, &str); 10] = [
    (include_str!("../templates/protocol/Cargo.toml.in"), "crates/@name@/Cargo.toml"),
    (include_str!("../templates/protocol/lib.rs.in"), "crates/@name@/src/lib.rs"),
    (include_str!("../templates/protocol/codec.rs.in"), "crates/@name@/src/codec.rs"),
    (include_str!("../templates/protocol/frame.rs.in"), "crates/@name@/src/frame.rs"),
    (include_str!("../templates/protocol/error.rs.in"), "crates/@name@/src/error.rs"),
    (include_str!("../templates/protocol/suite.rs.in"), "crates/@name@/tests/suite/main.rs"),
    (include_str!("../templates/protocol/frames.rs.in"), "crates/@name@/tests/suite/frames.rs"),
    (include_str!("../templates/protocol/fuzz.rs.in"), "fuzz/src/@name@.rs"),
    (include_str!("../templates/protocol/fuzz_target.rs.in"), "fuzz/targets/@name@.rs"),
    (include_str!("../templates/protocol/example.rs.in"), "examples/@name@.rs"),
];

/// The first inputs of the fuzz target: a seed, then frames; the last one is cut short, and one is too long.
const CORPUS: [(&str, &[u8]); 4] = [
    ("frames", b"\x07\x01\0\x03ebb\x02\0\0\x03\0\x04flow"),
    ("empty", b"\x01"),
    ("cut-short", b"\x02\x01\0\x05ebb"),
    ("too-long", b"\x03\x01\xff\xff"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn a_new_protocol_is_named_in_every_place_and_has_no_syntax_errors() {
        let copy = root().join("target/new-protocol-test");
        copy_tree(&root(), &copy).expect("the tree is copied");
        create(&copy, TRIED).expect("every place is found");
        // The formatter parses each source of the packages that have changed, and cargo each manifest.
        let folder = copy.to_string_lossy().into_owned();
        let changed = ["ebb", "fuzz", "examples", "xtask"].map(|name| format!("tidegate-{name}"));
        let packages = changed.iter().map(String::as_str).chain(["tidegate"]).flat_map(|name| ["--package", name]);
        cargo(["fmt", "--check"]).args(packages).folder(&folder).run().expect("the sources are formatted");
        let metadata = cargo("metadata --offline --no-deps --format-version 1".split(' ')).folder(&folder).output();
        let metadata: serde_json::Value =
            serde_json::from_str(&metadata.expect("the manifests are valid")).expect("JSON");
        let packages = metadata["packages"].as_array().expect("packages");
        let targets = |package: &str| -> Vec<String> {
            let package = packages.iter().find(|one| one["name"] == package).expect("the package");
            let targets = package["targets"].as_array().into_iter().flatten();
            targets.filter_map(|target| Some(target["name"].as_str()?.to_owned())).collect()
        };
        assert!(targets("tidegate-ebb").contains(&"suite".to_owned()));
        assert!(targets("tidegate-fuzz").contains(&TRIED.to_owned()));
        assert!(targets("tidegate-examples").contains(&TRIED.to_owned()));
        let places = [
            ("ARCHITECTURE.md", 1),
            ("CHANGELOG.md", 1),
            ("docs/README.md", 2),
            ("docs/imports.md", 3),
            ("crates/tidegate/src/lib.rs", 3),
            ("fuzz/coverage.py", 1),
            ("fuzz/src/lib.rs", 5),
            ("xtask/src/ci.rs", 1),
        ];
        for (path, lines) in places {
            let before = fs::read_to_string(root().join(path)).expect("a file");
            let after = fs::read_to_string(copy.join(path)).expect("a file");
            let count = |text: &str| text.lines().filter(|line| line.contains(TRIED)).count();
            assert!(count(&after) >= count(&before) + lines, "{path} has fewer than {lines} new lines with the name");
        }
        fs::remove_dir_all(&copy).expect("the copy is removed");
    }

    #[test]
    fn a_name_that_is_taken_or_no_name_is_refused() {
        for name in ["socks", "Ebb", "e-b", "7up", "", "crud"] {
            assert!(create(&root(), name).is_err(), "{name}");
        }
    }

    #[test]
    fn lines_are_inserted_at_their_places() {
        assert_eq!(insert_after("a 1\nb 2\nb 3\n", "b", "c").expect("there is a place"), "a 1\nb 2\nc\nb 3\n");
        assert!(insert_after("a 1\n", "b", "c").is_err());
        assert_eq!(count_up("let A: [u8; 9] = [", "let A: [u8; ").expect("a number"), "let A: [u8; 10] = [");
        let row = "| `tidegate` | `tidegate-a` `tidegate-x` | `tidegate-t` |\n";
        let added = add_import(row, "tidegate", "ebb").expect("there is a row");
        assert_eq!(added, "| `tidegate` | `tidegate-a` `tidegate-ebb` `tidegate-x` | `tidegate-t` |\n");
    }
}
