//! The files of settings that come with the program are valid.

use std::path::Path;

use {{crate_name}}::settings::Settings;

#[test]
fn the_file_beside_the_program_has_the_defaults() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("settings.toml");
    assert_eq!(Settings::read(Some(&file)).unwrap(), Settings::default());
}

#[test]
fn the_image_lets_other_machines_reach_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/container.toml");
    let settings = Settings::read(Some(&file)).unwrap();
    assert!(settings.listen.starts_with("0.0.0.0:") && settings.admin_open);
}

#[test]
fn a_key_that_is_not_known_is_an_error() {
    let file = std::env::temp_dir().join(format!("settings-{}.toml", std::process::id()));
    std::fs::write(&file, "listn = \"127.0.0.1:80\"\n").unwrap();
    let error = Settings::read(Some(&file)).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(
        error.contains("line 1") && error.contains("listn"),
        "{error}"
    );
}
