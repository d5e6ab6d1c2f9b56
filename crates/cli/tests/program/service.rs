//! Under a service manager: its notifications, and the files in `deploy/`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Directory, PATIENCE, Program, can_use, tidegate};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &str) -> Self {
        Self::new(UnixDatagram::bind(path).unwrap())
    }

    fn new(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// The next notification that is none of the watchdog.
    fn next(&self) -> String {
        loop {
            let text = self.any();
            if text != "WATCHDOG=1" {
                return text;
            }
        }
    }

    fn any(&self) -> String {
        let mut text = [0; 1024];
        let length = self.0.recv(&mut text).expect("a notification");
        String::from_utf8(text[..length].to_vec()).unwrap()
    }
}

fn serve(environment: &[(&str, &str)]) -> Program {
    let mut command = tidegate(&["serve", "--listen", "127.0.0.1:0", "--loops", "1"]);
    command.envs(environment.iter().copied());
    Program::start(command).unwrap_or_else(|stderr| panic!("it did not start: {stderr:?}"))
}

#[test]
fn a_service_manager_is_notified_of_the_start_and_the_end() {
    let directory = Directory::new();
    let path = directory.path("notify");
    let manager = Manager::at(&path);
    let mut program = serve(&[("NOTIFY_SOCKET", &path)]);
    let ready = manager.next();
    assert!(ready.starts_with("READY=1\n") && ready.contains(&program.ip().to_string()), "{ready}");
    // A request that is not complete keeps the server in its drain.
    let mut busy = Peer::connect(&program);
    busy.get("/plaintext");
    busy.send("GET /plaintext HTTP/1.1\r\n");
    program.signal(Signal::TERM);
    assert!(manager.next().starts_with("STOPPING=1\n"));
    busy.send("Host: a\r\n\r\n");
    assert!(program.until_ended().success());
}

#[test]
fn the_watchdog_is_fed_while_the_loops_get_on() {
    let name = format!("tidegate-watchdog-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager::new(UnixDatagram::bind_addr(&address).unwrap());
    let program = serve(&[("NOTIFY_SOCKET", &format!("@{name}")), ("WATCHDOG_USEC", "200000")]);
    for _ in 0..3 {
        while manager.any() != "WATCHDOG=1" {}
    }
    drop(program);
}

#[test]
fn a_watchdog_that_is_meant_for_another_process_is_not_fed() {
    let directory = Directory::new();
    let path = directory.path("notify");
    let manager = Manager::at(&path);
    let mut program = serve(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")]);
    assert!(manager.any().starts_with("READY=1"));
    program.signal(Signal::TERM);
    assert!(program.until_ended().success());
    manager.0.set_nonblocking(true).unwrap();
    let mut text = [0; 64];
    while let Ok(length) = manager.0.recv(&mut text) {
        assert_ne!(&text[..length], b"WATCHDOG=1");
    }
}

#[test]
fn a_manager_that_is_not_there_and_a_wrong_interval_stop_nothing() {
    for environment in [
        [("NOTIFY_SOCKET", "/nowhere/at/all"), ("WATCHDOG_USEC", "1000")],
        [("NOTIFY_SOCKET", ""), ("WATCHDOG_USEC", "0")],
        [("NOTIFY_SOCKET", "@"), ("WATCHDOG_USEC", "often")],
    ] {
        let mut program = serve(&environment);
        assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
        program.signal(Signal::TERM);
        assert!(program.until_ended().success());
    }
}

#[test]
fn the_unit_files_are_valid_and_hardened() {
    if !can_use("systemd-analyze", &["--version"]) {
        return;
    }
    let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let directory = Directory::new();
    let names = ["tidegate.service", "tidegate.socket", "tidegate-https.socket", "tidegate-http3.socket"];
    // The program that the unit names need not be installed for this test.
    for name in names {
        let text = std::fs::read_to_string(deploy.join(name)).unwrap();
        let text = text.replace("/usr/local/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
        std::fs::write(directory.path(name), text).unwrap();
    }
    let units = names.map(|name| directory.path(name));
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    let ours: Vec<_> = said.lines().filter(|line| line.contains("tidegate")).collect();
    assert!(verify.status.success() && ours.is_empty(), "{said}");
    let security = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(&units[0])
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&security.stdout).into_owned();
    assert!(
        security.status.success(),
        "the exposure is above 2.0:\n{table}\n{}",
        String::from_utf8_lossy(&security.stderr)
    );
}
