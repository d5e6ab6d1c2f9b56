//! How the loops reach PostgreSQL: by one connection on the tokio runtime for all of them, or each by one of its own.

use std::error::Error;
use std::sync::Arc;

use tidegate::compat::ByteStream;
use tidegate::framing::Raw;
use tidegate::{Client, task};
use tokio::sync::OnceCell;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

use crate::database::Database;

/// How a loop gets its database.
#[derive(Debug, Clone)]
pub enum Connector {
    /// The connection is a tokio task, on a tokio socket. All loops share it.
    TokioRuntime(Arc<Database>),
    /// Each loop has a connection of its own, on a socket of its own, which a task of the loop serves: these are the
    /// settings.
    Loop(String),
}

/// The database of one loop.
#[derive(Debug)]
pub struct Rows {
    connector: Connector,
    database: OnceCell<Arc<Database>>,
}

impl Rows {
    /// One that is not connected.
    #[must_use]
    pub fn new(connector: Connector) -> Self {
        Self { connector, database: OnceCell::new() }
    }

    /// The database. The first call connects; after a failure the next one does.
    ///
    /// # Errors
    /// If PostgreSQL cannot be reached, or refuses a statement.
    pub async fn get(&self) -> Result<&Database, Box<dyn Error>> {
        let connect = async || match &self.connector {
            Connector::TokioRuntime(database) => Ok(database.clone()),
            Connector::Loop(settings) => connect_on_loop(settings).await.map(Arc::new),
        };
        self.database.get_or_try_init(connect).await.map(|database| &**database)
    }
}

/// A client from tokio's ecosystem on a connection of this loop.
async fn connect_on_loop(settings: &str) -> Result<Database, Box<dyn Error>> {
    let config: Config = settings.parse()?;
    let port = config.get_ports().first().unwrap_or(&5432);
    let address = match config.get_hosts().first() {
        Some(Host::Unix(folder)) => format!("unix:{}/.s.PGSQL.{port}", folder.display()),
        Some(Host::Tcp(name)) => format!("{name}:{port}"),
        None => return Err("the settings name no host".into()),
    };
    let stream = ByteStream::new(Client::to(&address)?.connect(Raw).await?);
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    task::spawn(connection);
    Ok(Database::new(client).await?)
}
