//! A service with PostgreSQL: an axum router on our loops, with an unchanged tokio-postgres.
//!
//! ```text
//! cargo run --example crud                                  # starts a PostgreSQL, checks itself, and ends
//! cargo run --example crud -- 127.0.0.1:8080 'host=/run/postgresql user=postgres'
//! curl -X PUT -H 'Content-Type: application/json' -d '{"level": 412}' http://127.0.0.1:8080/harbours/brest
//! curl http://127.0.0.1:8080/harbours/brest
//! curl http://127.0.0.1:8080/harbours
//! curl -X DELETE http://127.0.0.1:8080/harbours/brest
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tidegate::{blocking, tower};
use tidegate_testkit::Postgres;
use tokio_postgres::{Client, NoTls, Row};

/// The level of the water in a harbour, in centimetres.
#[derive(Serialize, Deserialize)]
struct Report {
    level: i32,
}

/// A harbour with its level.
#[derive(Serialize)]
struct Harbour {
    name: String,
    level: i32,
}

impl Harbour {
    fn new(row: &Row) -> Result<Self, Failure> {
        Ok(Self { name: row.try_get(0)?, level: row.try_get(1)? })
    }
}

/// Why a request fails.
enum Failure {
    NoSuchHarbour,
    Database(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::NoSuchHarbour => (StatusCode::NOT_FOUND, "there is no such harbour\n").into_response(),
            Self::Database(error) => {
                eprintln!("a query failed: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

type Database = State<Arc<Client>>;

/// `GET /harbours`: at most a hundred.
async fn list(State(client): Database) -> Result<Json<Vec<Harbour>>, Failure> {
    let rows = client.query("SELECT name, level FROM harbours ORDER BY name LIMIT 100", &[]).await?;
    Ok(Json(rows.iter().map(Harbour::new).collect::<Result<_, _>>()?))
}

/// `GET /harbours/{name}`
async fn read(State(client): Database, Path(name): Path<String>) -> Result<Json<Harbour>, Failure> {
    let row = client.query_opt("SELECT name, level FROM harbours WHERE name = $1", &[&name]).await?;
    Ok(Json(Harbour::new(&row.ok_or(Failure::NoSuchHarbour)?)?))
}

/// `PUT /harbours/{name}`
async fn write(
    State(client): Database,
    Path(name): Path<String>,
    Json(report): Json<Report>,
) -> Result<StatusCode, Failure> {
    let upsert = "INSERT INTO harbours VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET level = $2";
    client.execute(upsert, &[&name, &report.level]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /harbours/{name}`
async fn delete(State(client): Database, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    match client.execute("DELETE FROM harbours WHERE name = $1", &[&name]).await? {
        0 => Err(Failure::NoSuchHarbour),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// The routes, with one connection for all of them: it takes queries before the earlier ones are answered.
async fn router(settings: &str) -> Result<Router, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(settings, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS harbours (name text PRIMARY KEY, level int4 NOT NULL)").await?;
    Ok(Router::new()
        .route("/harbours", get(list))
        .route("/harbours/{name}", get(read).put(write).delete(delete))
        .with_state(Arc::new(client)))
}

#[tidegate::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(address) = arguments.next() else { return check().await };
    let settings = arguments.next().ok_or("usage: crud ADDRESS DATABASE")?;
    let server = tower::serve(&address, router(&settings).await?)?;
    println!("listening on http://{}", server.address());
    server.ended().await;
    Ok(())
}

/// Starts a PostgreSQL, and asks a server of it.
async fn check() -> Result<(), Box<dyn Error>> {
    let Some(postgres) = blocking(Postgres::start).await? else { return Ok(()) };
    let server = tower::serve("127.0.0.1:0", router(&postgres.settings()).await?)?;
    let address = server.address().ip().ok_or("an IP address")?;
    blocking(move || ask(address)).await??;
    server.drained(Duration::from_secs(10)).await;
    println!("all responses are as expected");
    Ok(())
}

/// Sends one request after the other, and compares.
fn ask(address: SocketAddr) -> io::Result<()> {
    for (request, body, response) in [
        ("GET /harbours", "", "200 []"),
        ("GET /harbours/brest", "", "404 there is no such harbour\n"),
        ("PUT /harbours/brest", r#"{"level":412}"#, "204 "),
        ("PUT /harbours/ostend", r#"{"level":98}"#, "204 "),
        ("PUT /harbours/brest", r#"{"level":409}"#, "204 "),
        ("GET /harbours/brest", "", r#"200 {"name":"brest","level":409}"#),
        ("GET /harbours", "", r#"200 [{"name":"brest","level":409},{"name":"ostend","level":98}]"#),
        ("DELETE /harbours/brest", "", "204 "),
        ("DELETE /harbours/brest", "", "404 there is no such harbour\n"),
        // A name is a parameter of a query, and never a part of it.
        ("PUT /harbours/'%3B%20DROP%20TABLE%20harbours", r#"{"level":1}"#, "204 "),
        ("GET /harbours/ostend", "", r#"200 {"name":"ostend","level":98}"#),
    ] {
        let mut stream = TcpStream::connect(address)?;
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        write!(stream, "{request} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{fields}\r\n\r\n{body}")?;
        let mut received = String::new();
        stream.read_to_string(&mut received)?;
        let (head, body) = received.split_once("\r\n\r\n").unwrap_or((&received, ""));
        let status = head.split(' ').nth(1).unwrap_or_default();
        assert_eq!(format!("{status} {body}"), response, "the response to {request}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tidegate::test]
    async fn it_creates_reads_updates_and_deletes() {
        super::check().await.unwrap();
    }
}
