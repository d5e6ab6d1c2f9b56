//! Outputs made of the flags, `completions` and `man`; and `check-config`.

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

#[test]
fn a_configuration_is_checked_without_a_server() {
    let directory = Directory::new();
    let file = directory.path("site.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&["check-config", &file])
    };
    let root = directory.path("");
    let (code, lines, errors) = check(&format!("[[site]]\nroot = {root:?}\n"));
    assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
    assert!(lines[0].contains("ok for tidegate serve --config: 1 sites"), "{lines:?}");
    let (code, lines, errors) =
        check("[[upstream]]\nname = \"a\"\nservers = [\"http://192.0.2.1:80\"]\n[[route]]\nupstream = \"a\"\n");
    assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
    assert!(lines[0].contains("1 upstreams, 1 routes"), "{lines:?}");
    for (text, expected) in [
        ("[[site]]\nroot = \"/nowhere/at/all\"\n", "/nowhere/at/all"),
        ("[[site]]\nrot = \"/\"\n", "rot"),
        ("[[route]]\nupstream = \"b\"\n", "b"),
        (
            "[[upstream]]\nname = \"a\"\nservers = [\"https://192.0.2.1\"]\n\
             ca = \"/nowhere/ca.pem\"\n[[route]]\nupstream = \"a\"\n",
            "/nowhere/ca.pem",
        ),
        ("[[site]\n", "1"),
        ("\0", "1"),
    ] {
        let (code, lines, errors) = check(text);
        assert_eq!((code, lines.len()), (Some(2), 0), "{text}: {errors:?}");
        assert!(
            errors.len() == 1 && errors[0].starts_with("tidegate: ") && errors[0].contains(expected),
            "{text}: {errors:?}"
        );
    }
    let (code, _, errors) = run(&["check-config", &directory.path("none.toml")]);
    assert!(code == Some(2) && errors[0].contains("none.toml"), "{errors:?}");
}
