//! Passes the compiler's version to the program: figures of different compilers cannot be compared.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").expect("cargo names the compiler");
    let output = Command::new(rustc).arg("--version").output().expect("the compiler prints its version");
    println!("cargo::rustc-env=RUSTC_VERSION={}", String::from_utf8_lossy(&output.stdout).trim());
    println!("cargo::rerun-if-changed=build.rs");
}
