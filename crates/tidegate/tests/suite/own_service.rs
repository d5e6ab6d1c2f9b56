//! The unit of docs/guide/own-service.md is one that systemd takes.

use std::process::Command;

#[test]
fn systemd_takes_the_unit_of_the_chapter() {
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/own-service.md");
    let text = std::fs::read_to_string(chapter).expect("the chapter");
    let unit = text.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a unit");
    // Here is no program of this name.
    let unit = unit.replace("/usr/local/bin/own_service", "/bin/true");
    let folder = std::env::temp_dir().join(format!("tidegate-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("own.service");
    std::fs::write(&path, unit).expect("a file");
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output();
    std::fs::remove_dir_all(&folder).expect("it is ours");
    match verified {
        Err(error) => println!("skipped: systemd-analyze: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // It may complain about other units of the machine.
            let ours: Vec<_> = said.lines().filter(|line| line.contains("own.service")).collect();
            assert!(ours.is_empty(), "{ours:#?}");
        }
    }
}
