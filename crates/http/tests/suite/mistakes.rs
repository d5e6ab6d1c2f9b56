//! Mistakes that users make, and the messages of the compiler that have to help them: one compilation of all files in
//! `tests/mistakes`. Each line `//@ text` there is a part of an error in that file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_compiler_names_each_mistake_and_its_remedy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("the folder").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let messages = messages(&files);
    let mut missing = String::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a text");
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//@ ")).collect();
        assert!(!expected.is_empty(), "{} expects no message", file.display());
        let found = messages.get(file).map_or("", String::as_str);
        for part in expected {
            if !found.contains(part) {
                missing.push_str(&format!("{}: no error has `{part}`; the errors are\n{found}\n", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing}");
    assert_eq!(files.len(), 17);
}

/// The errors in each of the files, as the compiler renders them.
fn messages(files: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let mut root = String::from("#![allow(dead_code)]\n");
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        root.push_str(&format!("#[path = {file:?}]\nmod {name};\n"));
    }
    let out = std::env::temp_dir().join(format!("tidegate-mistakes-{}", std::process::id()));
    fs::create_dir_all(&out).expect("a folder of our own");
    let main = out.join("mistakes.rs");
    fs::write(&main, root).expect("the file is written");
    let found = libraries().iter().find_map(|library| compile(&main, library, &out));
    fs::remove_dir_all(&out).expect("the folder is removed");
    found.expect("a library `tidegate` with HTTP lies beside this test")
}

/// The libraries `tidegate` beside this test, the newest first: there may be others, with other features.
fn libraries() -> Vec<PathBuf> {
    let test = std::env::current_exe().expect("a path");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libtidegate-") && name.ends_with(".rlib")
    };
    let entries = fs::read_dir(test.parent().expect("a folder")).expect("the folder");
    let mut libraries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_library).collect();
    let age = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    libraries.sort_by_key(|path| std::cmp::Reverse(age(path)));
    libraries
}

/// Compiles with one library; `None` if it is not the one of this test.
fn compile(main: &Path, library: &Path, out: &Path) -> Option<BTreeMap<PathBuf, String>> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "--error-format",
            "json",
            "--cap-lints",
        ])
        .args(["allow".as_ref(), "--out-dir".as_ref(), out.as_os_str()])
        .arg("-L")
        .arg(format!("dependency={}", library.parent()?.display()))
        .arg("--extern")
        .arg(format!("tidegate={}", library.display()))
        .arg(main)
        .output()
        .expect("the compiler runs");
    let mut messages: BTreeMap<PathBuf, String> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        // E0433, E0432, E0460, E0463: names and crates that are not found, or that are others.
        let code = message["code"]["code"].as_str().unwrap_or_default();
        if ["E0432", "E0433", "E0460", "E0463"].contains(&code) {
            return None;
        }
        let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(file) =
            spans.iter().find(|span| span["is_primary"] == true).and_then(|span| span["file_name"].as_str())
        else {
            continue;
        };
        messages.entry(file.into()).or_default().push_str(message["rendered"].as_str().unwrap_or_default());
    }
    Some(messages)
}
