//! nats-py against the broker, where it is installed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_nats::Broker;

use crate::support::serve;

#[test]
fn nats_py_and_the_broker_understand_each_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Where `cargo xtask ci` installs nats-py.
    let installed = folder.join("../../target/tools/nats-py/bin/python3");
    let python = if installed.exists() { installed } else { "python3".into() };
    let has_client = Command::new(&python).args(["-c", "import nats"]).output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "nats-py is missing");
        println!("skipped: there is no nats-py");
        return;
    }
    let broker = Broker::default();
    let server = serve(&broker);
    let port = server.address().ip().expect("an IP address").port().to_string();
    let output = Command::new(&python).arg(folder.join("tests/suite/nats_py.py")).arg(port).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.ends_with(b"ok\n"), "{text}");
    assert_eq!(broker.counts().slow_consumers, 0);
    server.drain(Duration::ZERO);
}
