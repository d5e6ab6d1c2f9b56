//! Passes the compiler's version and the name of the profile to the program: figures of different compilers cannot be
//! compared, and each profile has figures of its own.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").expect("cargo names the compiler");
    let output = Command::new(rustc).arg("--version").output().expect("the compiler prints its version");
    println!("cargo::rustc-env=RUSTC_VERSION={}", String::from_utf8_lossy(&output.stdout).trim());
    // As in `target/dist/build/tidegate-instructions-0123456789abcdef/out`: cargo names only the profile's root, `release`.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder"));
    let profile = out.ancestors().nth(3).and_then(|folder| folder.file_name()).unwrap_or_default();
    println!("cargo::rustc-env=BUILD_PROFILE={}", profile.to_string_lossy());
    println!("cargo::rerun-if-changed=build.rs");
}
