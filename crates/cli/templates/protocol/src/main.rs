//! Starts the server, and stops it gracefully at SIGTERM or Ctrl-C.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;

use tidegate::Server;
use tidegate::admin::Admin;

use {{crate_name}}::handler::Connection;
use {{crate_name}}::protocol::ServerCodec;
use {{crate_name}}::settings::Settings;
use {{crate_name}}::store::Store;

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
    let store = Store::default();
    let server = server.start(move || (ServerCodec::default(), Connection::new(store.clone())))?;
    let admin = settings.start_admin(Admin::new(&server))?;
    tracing::info!(
        "{} serves, http://{}/dashboard shows",
        server.address(),
        admin.address()
    );

    server.run_until_signal(settings.drain())?;
    Ok(())
}
