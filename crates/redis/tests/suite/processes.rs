//! Processes of redis-server with a port, where it is installed.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_redis::{Client, ClientBuilder};

/// A redis-server on the loopback address. It ends when it is dropped.
pub(crate) struct RedisProcess {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl RedisProcess {
    /// `None`, with a line, if there is no redis-server.
    pub(crate) fn start(name: &str, port: u16, arguments: &[&str]) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("tidegate-redis-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new("redis-server");
        // A sentinel has its configuration in a file, which comes first.
        if let Some(file) = arguments.first().filter(|argument| argument.ends_with(".conf")) {
            command.arg(file);
        } else {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        let rest = arguments.iter().filter(|argument| !argument.ends_with(".conf"));
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).args(rest).arg("--dir").arg(&directory);
        match command.stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Self { child, directory, port }),
            Err(error) => {
                println!("skipped: there is no redis-server: {error}");
                None
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = Client::to(&self.address()).expect("an address");
        builder.timeout(Duration::from_secs(60)).backoff(Duration::from_millis(1), Duration::from_millis(20))
    }

    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// A port that nothing listens on, with another one 10,000 above it for the bus of a cluster.
pub(crate) fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|bus| TcpListener::bind(("127.0.0.1", bus)).is_ok()) {
            return port;
        }
    }
}
