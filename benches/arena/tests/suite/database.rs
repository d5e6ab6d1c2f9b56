//! The workloads of a database, beyond speed: with the connection on the tokio runtime, and on each loop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use arena::Options;
use arena::connector::Connector;
use arena::database::{Database, ROWS};
use serde_json::{Value, json};
use tidegate::{ServerHandle, blocking};
use tidegate_testkit::Postgres;

/// The status and the head of a response, and its body as JSON, or null.
fn request(server: &ServerHandle, request: &str, body: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let fields = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
    write!(stream, "{request} HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n{fields}\r\n\r\n{body}").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn get(server: &ServerHandle, target: &str) -> Value {
    let (status, head, body) = request(server, &format!("GET {target}"), "");
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    body
}

fn check(server: &ServerHandle) {
    ranges(server);
    pages(server);
    items(server);
}

fn ranges(server: &ServerHandle) {
    let found = get(server, "/async-db?min=10&max=50&limit=20");
    let items = found["items"].as_array().unwrap();
    assert_eq!((items.len(), &found["count"]), (20, &json!(20)));
    assert!(items.iter().all(|item| (10..=50).contains(&item["price"].as_i64().unwrap())), "{found}");
    assert!(items.iter().all(|item| item["tags"].is_array() && item["rating"]["score"].is_i64()), "{found}");
    assert_eq!(get(server, "/async-db?min=9000&max=9001")["count"], 0);
    assert_eq!(get(server, "/async-db?limit=1000")["count"], 50, "the limit has a bound");
    assert_eq!(get(server, "/async-db?limit=-1")["count"], 1);
    assert_eq!(request(server, "GET /async-db?min=ten", "").0, 400);
}

fn pages(server: &ServerHandle) {
    let page = get(server, "/crud/items?category=deck&page=2&limit=5");
    assert_eq!((&page["total"], &page["page"], &page["limit"]), (&json!(ROWS / 5), &json!(2), &json!(5)));
    let ids: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [30, 35, 40, 45, 50]);
    assert_eq!(get(server, "/crud/items?category=none")["items"], json!([]));
    assert_eq!(request(server, "GET /crud/items", "").0, 400, "a category is required");
}

fn items(server: &ServerHandle) {
    let (status, head, item) = request(server, "GET /crud/items/7", "");
    assert_eq!((status, &item["name"]), (200, &json!("Item 7")));
    assert!(head.contains("x-cache: "), "{head}");
    assert_eq!(request(server, "GET /crud/items/0", "").0, 404);
    assert_eq!(request(server, "GET /crud/items/seven", "").0, 400);
    let entry = r#"{"id":200001,"name":"Bell","category":"bell","price":3,"quantity":4}"#;
    assert_eq!(request(server, "POST /crud/items", entry).0, 201);
    let again = entry.replace("\"price\":3", "\"price\":5");
    assert_eq!(request(server, "POST /crud/items", &again).0, 201);
    assert_eq!(get(server, "/crud/items/200001")["price"], 5, "the second replaces the first");
    assert_eq!(request(server, "PUT /crud/items/200001", r#"{"name":"Gong","price":6,"quantity":1}"#).0, 200);
    assert_eq!(get(server, "/crud/items/200001")["name"], "Gong", "a change removes the cached item");
    assert_eq!(request(server, "PUT /crud/items/0", r#"{"name":"","price":1,"quantity":1}"#).0, 404);
    assert_ne!(request(server, "POST /crud/items", "{").0, 201);
}

/// One loop: the cache of items belongs to the loop where each has its own connection.
fn options(database: Connector) -> Options<'static> {
    Options { loops: Some(1), database: Some(database), ..Options::default() }
}

#[tidegate::test]
async fn both_ways_to_the_database_answer_alike() -> Result<(), Box<dyn std::error::Error>> {
    let Some(postgres) = blocking(Postgres::start).await? else { return Ok(()) };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-database");
    arena::files::write(&folder)?;
    let database = Arc::new(Database::connect(&postgres.settings()).await?);
    for connector in [Connector::TokioRuntime(database), Connector::Loop(postgres.settings())] {
        let server = arena::start("127.0.0.1:0", &folder, options(connector))?;
        let asked = server.clone();
        blocking(move || check(&asked)).await?;
        server.drained(Duration::from_secs(10)).await;
    }
    Ok(())
}

/// Where PostgreSQL does not listen, requests for it fail, and all others are answered.
#[test]
fn a_database_that_is_not_there_costs_its_own_workloads_only() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-no-database");
    arena::files::write(&folder).unwrap();
    let nowhere = Connector::Loop(format!("host={} user=postgres", folder.display()));
    let server = arena::start("127.0.0.1:0", &folder, options(nowhere)).unwrap();
    assert_eq!(request(&server, "GET /async-db", "").0, 500);
    assert_eq!(request(&server, "GET /pipeline", "").0, 200);
    server.drain(Duration::ZERO);
}
