//! Outputs made of the flags: `completions` and `man`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::program::{Directory, run};

#[test]
fn completions_know_the_flags_and_are_valid() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, lines, errors) = run(&["completions", shell]);
        assert_eq!((code, errors.len()), (Some(0), 0), "{shell}: {errors:?}");
        assert!(lines.iter().any(|line| line.contains("admin-open")), "{shell}");
        if shell == "bash" {
            let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash is there");
            bash.stdin.take().expect("it is piped").write_all(lines.join("\n").as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success());
        }
    }
    let (code, _, errors) = run(&["completions", "abacus"]);
    assert!(code == Some(2) && errors[0].contains("abacus"), "{errors:?}");
}

#[test]
fn each_subcommand_has_a_page_of_the_manual() {
    let (code, lines, _) = run(&["man"]);
    assert!(code == Some(0) && lines.iter().any(|line| line.starts_with(".TH tidegate 1")), "{lines:?}");
    let directory = Directory::new();
    let (code, _, errors) = run(&["man", "--out", &directory.path("")]);
    assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
    for (name, flag) in
        [("tidegate", "serve"), ("tidegate-serve", "admin"), ("tidegate-proxy", "upstream"), ("tidegate-top", "once")]
    {
        let page = std::fs::read_to_string(directory.path(&format!("{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(flag), "{name}");
    }
    let (code, _, errors) = run(&["man", "--out", &directory.path("nowhere")]);
    assert!(code == Some(2) && errors[0].contains("nowhere"), "{errors:?}");
}
