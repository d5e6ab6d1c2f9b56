//! tokio-postgres within functions, and a real PostgreSQL.

use std::sync::mpsc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::get;
use tidegate::http::{Limits, Server};
use tidegate::{ServerHandle, TokioRuntime, tower};
use tidegate_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

use crate::tokio_runtime::requests;

/// A client whose connection is a task of the tokio_runtime.
async fn connect(settings: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(settings, NoTls).await.expect("PostgreSQL accepts");
    tokio::spawn(connection);
    client
}

async fn square(
    State(client): State<std::sync::Arc<Client>>,
    Path(number): Path<i64>,
) -> Result<String, axum::http::StatusCode> {
    let row = client.query_one("SELECT $1::int8 * $1::int8", &[&number]).await;
    let row = row.map_err(|_| axum::http::StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(row.get::<_, i64>(0).to_string())
}

fn serve(tokio_runtime: &TokioRuntime, client: Client, limits: Limits) -> ServerHandle {
    let router = axum::Router::new().route("/square/{number}", get(square)).with_state(client.into());
    let server = Server::bind("127.0.0.1:0").unwrap().limits(limits).loops(2).tokio_runtime(tokio_runtime.clone());
    server.serve(tower::function(router)).unwrap()
}

#[test]
fn functions_query_postgresql_through_the_tokio_runtime() {
    let Some(postgres) = Postgres::start() else { return };
    let tokio_runtime = TokioRuntime::with_threads(1);
    let client = tokio_runtime.handle().unwrap().block_on(connect(&postgres.settings()));
    let server = serve(&tokio_runtime, client, Limits::default());
    for number in 0..50 {
        assert_eq!(requests::get(&server, &format!("/square/{number}")), (number * number).to_string());
    }
    // Out of range for the database: an error of the function, and of nothing else.
    let response = requests::receive(requests::send(&server, "/square/9223372036854775807")).unwrap();
    assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
    assert_eq!(requests::get(&server, "/square/3"), "9");
}

/// The connection of a client may be a task of a loop as well: then no other thread is between it and the function.
#[test]
fn a_connection_to_postgresql_is_served_by_a_task_of_the_loop() {
    let Some(postgres) = Postgres::start() else { return };
    let settings = postgres.settings();
    let router = move || {
        let (sender, receiver) = tokio::sync::watch::channel(None);
        let settings = settings.clone();
        tidegate::task::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.expect("PostgreSQL accepts");
            let _ = sender.send(Some(std::rc::Rc::new(client)));
            let _ = connection.await;
        });
        tidegate::http::Router::new().get("/", async move || {
            let mut receiver = receiver.clone();
            let client = receiver.wait_for(Option::is_some).await.expect("the task runs").clone().expect("it is some");
            client.query_one("SELECT 6 * 7", &[]).await.map(|row| row.get::<_, i32>(0).to_string()).unwrap_or_default()
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router_on_loop(router)).unwrap();
    for _ in 0..10 {
        assert_eq!(requests::get(&server, "/"), "42");
    }
}

/// `start` calls its function once on the thread of its caller, where no loop runs.
fn router_on_loop(
    make: impl Fn() -> tidegate::http::Router + Send + Sync + 'static,
) -> impl Fn() -> tidegate::http::Router + Send + Sync + 'static {
    let caller = std::thread::current().id();
    move || if std::thread::current().id() == caller { tidegate::http::Router::new() } else { make() }
}

/// The database stops in the middle: requests are answered by the limit, other requests as usual, and all goes on when
/// the database does.
#[test]
fn a_database_that_hangs_costs_the_requests_that_need_it() {
    let Some(postgres) = Postgres::start() else { return };
    let mut limits = Limits::default();
    limits.request_timeout = Duration::from_millis(500);
    let tokio_runtime = TokioRuntime::with_threads(1);
    let client = tokio_runtime.handle().unwrap().block_on(connect(&postgres.settings()));
    let server = serve(&tokio_runtime, client, limits);
    // The first query may take longer than the limit on a busy machine, and so may the first one after the pause.
    let until_answered = |path: &str, answer: &str| {
        let begun = std::time::Instant::now();
        loop {
            let response = requests::receive(requests::send(&server, path)).unwrap();
            if response.ends_with(&format!("\r\n\r\n{answer}")) {
                break;
            }
            assert!(begun.elapsed() < requests::PATIENCE, "{response}");
        }
    };
    until_answered("/square/2", "4");
    postgres.pause(true);
    let response = requests::receive(requests::send(&server, "/square/2")).unwrap();
    postgres.pause(false);
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    until_answered("/square/5", "25");
}

/// A tokio runtime that ends takes its tasks with it: a query fails, and does not wait for ever.
#[test]
fn a_query_fails_when_the_connection_ends() {
    let Some(postgres) = Postgres::start() else { return };
    let tokio_runtime = TokioRuntime::with_threads(1);
    let (sender, receiver) = mpsc::channel();
    let settings = postgres.settings();
    tokio_runtime.handle().unwrap().block_on(async move {
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.expect("PostgreSQL accepts");
        let connection = tokio::spawn(connection);
        let _ = sender.send((client, connection.abort_handle()));
    });
    let (client, connection) = receiver.recv().unwrap();
    let server = serve(&tokio_runtime, client, Limits::default());
    assert_eq!(requests::get(&server, "/square/2"), "4");
    connection.abort();
    let response = requests::receive(requests::send(&server, "/square/2")).unwrap();
    assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
}
