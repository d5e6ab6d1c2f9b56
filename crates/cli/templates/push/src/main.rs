//! Starts the service, and stops it gracefully at SIGTERM or Ctrl-C.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;

use tidegate::admin::Admin;
use tidegate::http::Server;
use tidegate::metrics::HttpMetrics;

use {{crate_name}}::settings::Settings;
use {{crate_name}}::{rooms, router};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let file = std::env::args_os().nth(1);
    let settings = Settings::read(file.as_deref().map(Path::new))?;

    // The listeners that a service manager passes, or else one of its own.
    let server = match Server::from_environment()? {
        Some(server) => server,
        None => Server::bind(&settings.listen)?,
    };
    let (rooms, metrics) = (rooms(), HttpMetrics::new());
    let server = server
        .metrics(&metrics)
        .start(move || router(rooms.clone()))?;
    let admin = settings.start_admin(Admin::new(&server).requests(&metrics))?;
    tracing::info!(
        "http://{} serves, http://{}/dashboard shows",
        server.address(),
        admin.address()
    );

    server.run_until_signal(settings.drain())?;
    Ok(())
}
