//! `tidegate new`: a program of one's own from a template.
//!
//! The templates lie in `templates/`, and the program contains them. `cargo generate` reads the same files, so they have its
//! variables: `{{project-name}}`, `{{crate_name}}`, and `{{tidegate}}` with `{{tidegate-testkit}}` for the content of the
//! two dependencies. A template that is not there, a name that cargo refuses, and a folder that exists are errors, and
//! nothing is written.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// The flags of `new`.
#[derive(Debug, Args)]
pub(crate) struct NewOptions {
    /// The name of the program, and of the folder that is made
    #[arg(value_name = "NAME")]
    name: String,
    /// The kind of the program
    #[arg(long, value_enum)]
    template: Template,
    /// A checkout of Tidegate that the program depends on, in place of the version on crates.io
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// A template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Template {
    /// An HTTP service: JSON, settings, an access log, metrics, tests on a simulated network
    Http,
    /// A push server: rooms over WebSockets, with tokens
    Push,
    /// A protocol of one's own: a codec for each side, a handler, a client
    Protocol,
    /// A gateway: a reverse proxy with code of its own
    Gateway,
}

impl Template {
    const fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Http => HTTP,
            Self::Push => PUSH,
            Self::Protocol => PROTOCOL,
            Self::Gateway => GATEWAY,
        }
    }
}

/// Writes the files of a template into a new folder.
pub(crate) fn run(options: &NewOptions) -> Result<(), Box<dyn Error>> {
    check_name(&options.name)?;
    let [tidegate, testkit] = dependencies(options.path.as_deref())?;
    let variables = [
        ("{{project-name}}", options.name.clone()),
        ("{{crate_name}}", options.name.replace('-', "_")),
        ("{{tidegate}}", tidegate),
        ("{{tidegate-testkit}}", testkit),
    ];
    let render =
        |text: &str| variables.iter().fold(text.to_owned(), |text, (variable, value)| text.replace(variable, value));
    let folder = Path::new(&options.name);
    let failed = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{}: is there already; choose another name", folder.display()),
        _ => failed(folder, &error),
    })?;
    for (name, content) in options.template.files() {
        let path = folder.join(render(name.trim_end_matches(".liquid")));
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| failed(&path, &error))?;
        fs::write(&path, render(content)).map_err(|error| failed(&path, &error))?;
    }
    // A closed standard output is no error.
    let _ = writeln!(
        io::stdout(),
        "{0}/ is made. Next:\n  cd {0}\n  cargo test\n  cargo run -- settings.toml",
        options.name
    );
    if options.path.is_none() {
        let _ = writeln!(
            io::stdout(),
            "It depends on tidegate {VERSION} of crates.io; --path CHECKOUT names a checkout instead."
        );
    }
    Ok(())
}

/// A name that cargo takes for a package whose library has it as well.
fn check_name(name: &str) -> Result<(), String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || !name.bytes().all(is_word) {
        return Err(format!("{name:?} is no name of a package: letters, digits, - and _, with a letter first"));
    }
    if RESERVED.contains(&name) {
        return Err(format!("{name:?} is a word of Rust or a crate that the program uses; choose another name"));
    }
    Ok(())
}

/// The content of the two dependencies: a version, or folders of a checkout.
fn dependencies(checkout: Option<&Path>) -> Result<[String; 2], String> {
    let Some(checkout) = checkout else {
        return Ok([format!("version = \"{VERSION}\""), format!("version = \"{VERSION}\"")]);
    };
    let wrong = || format!("{}: is no checkout of Tidegate: it has no crates/tidegate", checkout.display());
    let folder = |name: &str| -> Result<String, String> {
        let folder = fs::canonicalize(checkout.join("crates").join(name)).map_err(|_| wrong())?;
        let text = folder.to_str().ok_or_else(|| format!("{}: is no UTF-8", folder.display()))?;
        // A string of JSON is one of TOML as well.
        Ok(format!("path = {}", serde_json::Value::from(text)))
    };
    if !checkout.join("crates/tidegate/Cargo.toml").is_file() {
        return Err(wrong());
    }
    Ok([folder("tidegate")?, folder("testkit")?])
}

/// The version of the program is that of the libraries.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Names that would not compile: keywords, names of cargo, crates that a template imports.
const RESERVED: &[&str] = &[
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tidegate",
    "tidegate-testkit",
    "toml",
    "tracing",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// The files of a template: their names, and their contents.
macro_rules! files {
    ($template:literal: $($file:literal)*) => {
        &[
            $(($file, include_str!(concat!("../templates/", $template, "/", $file))),)*
            (".gitignore", include_str!(concat!("../templates/", $template, "/.gitignore"))),
            ("Cargo.toml.liquid", include_str!(concat!("../templates/", $template, "/Cargo.toml.liquid"))),
            ("README.md", include_str!(concat!("../templates/", $template, "/README.md"))),
            ("deploy/Containerfile", include_str!(concat!("../templates/", $template, "/deploy/Containerfile"))),
            ("deploy/container.toml", include_str!(concat!("../templates/", $template, "/deploy/container.toml"))),
            (
                "deploy/{{project-name}}.service",
                include_str!(concat!("../templates/", $template, "/deploy/{{project-name}}.service")),
            ),
            ("settings.toml", include_str!(concat!("../templates/", $template, "/settings.toml"))),
            ("src/lib.rs", include_str!(concat!("../templates/", $template, "/src/lib.rs"))),
            ("src/main.rs", include_str!(concat!("../templates/", $template, "/src/main.rs"))),
            ("src/settings.rs", include_str!(concat!("../templates/", $template, "/src/settings.rs"))),
            ("tests/settings.rs", include_str!(concat!("../templates/", $template, "/tests/settings.rs"))),
        ]
    };
}

const HTTP: &[(&str, &str)] = files!("http": "src/notes.rs" "tests/service.rs");
const PUSH: &[(&str, &str)] = files!("push": "src/subscriber.rs" "src/tokens.rs" "tests/rooms.rs");
const PROTOCOL: &[(&str, &str)] = files!("protocol": "src/client.rs" "src/handler.rs" "src/protocol.rs" "src/store.rs" "tests/codec.rs" "tests/server.rs");
const GATEWAY: &[(&str, &str)] = files!("gateway": "tests/gateway.rs");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names_in(folder: &Path, below: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names_in(&path, below, names);
            } else {
                names.insert(path.strip_prefix(below).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn the_program_contains_each_file_of_the_templates() {
        for template in Template::value_variants() {
            let name = template.to_possible_value().unwrap();
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates").join(name.get_name());
            let mut names = BTreeSet::new();
            names_in(&folder, &folder, &mut names);
            assert!(names.remove("cargo-generate.toml"), "cargo generate alone reads it");
            let contained: BTreeSet<_> = template.files().iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(contained, names, "{template:?}");
        }
    }

    #[test]
    fn a_name_that_cargo_refuses_is_an_error() {
        for name in ["", "1st", "-x", "a b", "a/b", "..", "tröt", "test", "fn", "tidegate"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["demo", "my-demo", "my_demo2", "D"] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn a_folder_that_is_no_checkout_is_an_error() {
        let error = dependencies(Some(Path::new("/nowhere"))).unwrap_err();
        assert_eq!(error, "/nowhere: is no checkout of Tidegate: it has no crates/tidegate");
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let [tidegate, testkit] = dependencies(Some(&checkout)).unwrap();
        assert!(tidegate.starts_with("path = \"/") && tidegate.ends_with("/crates/tidegate\""), "{tidegate}");
        assert!(testkit.ends_with("/crates/testkit\""), "{testkit}");
    }
}
