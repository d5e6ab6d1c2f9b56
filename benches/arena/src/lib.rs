//! A server for the workloads by which frameworks are compared in public: README.md lists them. It uses nothing but the
//! facade, as an application does.

#![forbid(unsafe_code)]

pub mod connector;
pub mod database;
pub mod files;
pub mod grpc;
pub mod items;
pub mod shared_cache;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tidegate::http::{
    BodyError, Config, ContentType, Files, IntoResponse, Json, Limits, Middleware, Path as PathOf, Query, Request,
    Response, ResponseCompression, Router, State, StatusCode, Version, WebSocketUpgrade,
};
use tidegate::task;
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tidegate::{Bytes, Listener, Server, ServerHandle};

use crate::connector::{Connector, Rows};
use crate::database::{Change, Entry, List, Range};
use crate::items::Item;
use crate::shared_cache::SharedCache;

/// The addresses of the workloads, and their data.
#[derive(Debug, Default)]
pub struct Options<'a> {
    /// `None`: a loop for each core.
    pub loops: Option<usize>,
    /// A second address, where the same is served over TLS.
    pub tls_address: Option<&'a str>,
    /// HTTP/3 at the second address too.
    pub http3: bool,
    /// An address for HTTP/2 alone, by prior knowledge.
    pub http2_address: Option<&'a str>,
    /// Without it the workloads of a database are missing.
    pub database: Option<Connector>,
    /// Single items are cached here, and not in the process.
    pub shared_cache: Option<SharedCache>,
}

/// Starts the server with the files of a folder.
///
/// # Errors
/// A server that does not start, or a folder that cannot be opened.
pub fn start(address: &str, folder: &Path, options: Options<'_>) -> Result<ServerHandle, Box<dyn Error>> {
    let files = Files::new(folder)?.precompressed(true);
    let (database, shared_cache) = (options.database, options.shared_cache);
    let make_router = move || router(files.clone(), database.clone(), shared_cache.clone());
    let mut limits = Limits::default();
    limits.body_bytes_max = 32 * 1024 * 1024;
    let plain = Config::new().limits(limits);
    let server = options.loops.map_or_else(Server::new, |loops| Server::new().loops(loops));
    let mut server = server.listener(plain.clone().serve(Listener::bind(address)?, make_router.clone()));
    if let Some(address) = options.http2_address {
        let make_router = make_router.clone();
        let alone = move || make_router().with(OnlyHttp2);
        server = server.listener(plain.clone().serve(Listener::bind(address)?, alone));
    }
    if let Some(address) = options.tls_address {
        let secure = plain.tls(tls()?);
        let secure = if options.http3 { secure.http3()? } else { secure };
        server = server.listener(secure.serve(Listener::bind(address)?, make_router));
    }
    Ok(server.run()?)
}

/// A certificate that this process has made.
fn tls() -> Result<ServerConfig, Box<dyn Error>> {
    let (provider, made) = (Provider::aws_lc_rs(), rcgen::generate_simple_self_signed(["localhost".to_owned()])?);
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?;
    Ok(ServerConfig::builder(&provider, certificates).build()?)
}

/// All workloads.
#[must_use]
pub fn router(files: Files, database: Option<Connector>, shared_cache: Option<SharedCache>) -> Router {
    let json = Router::with_state(items::items()).get("/{count}", page).with(ResponseCompression::new());
    let router = match database {
        Some(database) => {
            let items = Items { rows: Rows::new(database.clone()), shared_cache };
            Router::new().nest("/crud/items", crud(items)).nest("/async-db", async_db(database))
        }
        None => Router::new(),
    };
    router
        .get("/baseline11", sum)
        .post("/baseline11", sum)
        .get("/baseline2", sum)
        .post("/baseline2", sum)
        .get("/delay/{milliseconds}", delay)
        .get("/ws", echo)
        .get("/pipeline", || "ok")
        .nest("/json", json)
        .post("/upload", upload)
        .post(grpc::PATH, grpc::service())
        .nest_files("/static", files)
}

/// Refuses requests of other versions than HTTP/2.
struct OnlyHttp2;

impl Middleware for OnlyHttp2 {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if request.version() == Version::HTTP_2 {
            return Ok(());
        }
        Err(StatusCode::HTTP_VERSION_NOT_SUPPORTED.into_response())
    }
}

/// A range of the table.
fn async_db(database: Connector) -> Router<Rows> {
    Router::with_state(Rows::new(database)).get("/", async |State(rows): State<Rows>, Query(range): Query<Range>| {
        match rows.get().await {
            Ok(database) => json(database.range(&range).await),
            Err(error) => failed(&*error),
        }
    })
}

/// The table, and where single items of it are cached.
struct Items {
    rows: Rows,
    shared_cache: Option<SharedCache>,
}

/// Lists, reads, adds and changes items of the table.
fn crud(items: Items) -> Router<Items> {
    Router::with_state(items)
        .get("/", async |State(items): State<Items>, Query(list): Query<List>| match items.rows.get().await {
            Ok(database) => json(database.list(&list).await),
            Err(error) => failed(&*error),
        })
        .get("/{id}", async |State(items): State<Items>, PathOf(id): PathOf<i32>| {
            items.read(id).await.unwrap_or_else(|error| failed(&*error))
        })
        .post("/", async |State(items): State<Items>, Json(entry): Json<Entry>| {
            items.upsert(&entry).await.unwrap_or_else(|error| failed(&*error))
        })
        .put("/{id}", async |State(items): State<Items>, PathOf(id): PathOf<i32>, Json(change): Json<Change>| {
            items.update(id, &change).await.unwrap_or_else(|error| failed(&*error))
        })
}

impl Items {
    async fn read(&self, id: i32) -> Result<Response, Box<dyn Error>> {
        let Some((item, is_hit)) = self.find(id).await? else { return Ok(StatusCode::NOT_FOUND.into_response()) };
        let response = Response::new().content_type(ContentType::JSON).body(item);
        Ok(response.header("x-cache", if is_hit { "HIT" } else { "MISS" })?)
    }

    /// An item as JSON, and whether it was cached.
    async fn find(&self, id: i32) -> Result<Option<(Bytes, bool)>, Box<dyn Error>> {
        let Some(cache) = &self.shared_cache else {
            let found = self.rows.get().await?.read_cached(id).await?;
            return Ok(found.map(|(item, is_hit)| (item.into(), is_hit)));
        };
        if let Some(item) = cache.item(id).await {
            return Ok(Some((item, true)));
        }
        let Some(item) = self.rows.get().await?.read(id).await? else { return Ok(None) };
        cache.keep(id, &item);
        Ok(Some((item.into(), false)))
    }

    async fn upsert(&self, entry: &Entry) -> Result<Response, Box<dyn Error>> {
        let id = self.rows.get().await?.upsert(entry).await?;
        self.forget(id).await;
        Ok(StatusCode::CREATED.into_response())
    }

    async fn update(&self, id: i32, change: &Change) -> Result<Response, Box<dyn Error>> {
        let is_there = self.rows.get().await?.update(id, change).await?;
        self.forget(id).await;
        Ok(if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND }.into_response())
    }

    async fn forget(&self, id: i32) {
        if let Some(cache) = &self.shared_cache {
            cache.remove(id).await;
        }
    }
}

/// JSON that is ready.
fn json(body: Result<Vec<u8>, tokio_postgres::Error>) -> Response {
    match body {
        Ok(body) => Response::new().content_type(ContentType::JSON).body(body),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn Error) -> Response {
    eprintln!("a query failed: {error}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// The sum of the integers in the query and in the body.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn sum(request: Request) -> Result<String, StatusCode> {
    let mut sum = 0_i64;
    let values = request.query().into_iter().flat_map(|query| query.split('&'));
    let values = values.filter_map(|pair| pair.split_once('=').map(|(_, value)| value));
    let body = std::str::from_utf8(request.bytes()).map_err(|_| StatusCode::BAD_REQUEST)?.trim();
    for value in values.chain(Some(body).filter(|body| !body.is_empty())) {
        let value = value.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
        sum = i64::checked_add(sum, value).ok_or(StatusCode::BAD_REQUEST)?;
    }
    Ok(sum.to_string())
}

/// Answers after a time.
async fn delay(PathOf(milliseconds): PathOf<u64>) -> Result<String, StatusCode> {
    if milliseconds > DELAY_MAX {
        return Err(StatusCode::BAD_REQUEST);
    }
    task::sleep(Duration::from_millis(milliseconds)).await;
    Ok(milliseconds.to_string())
}

/// Sends every message back.
fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.channel(async |mut channel| {
        while let Some(message) = channel.recv().await? {
            channel.send(message)?;
        }
        Ok::<_, Box<dyn Error>>(())
    })
}

/// The first items, each with its total.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn page(State(items): State<Vec<Item>>, request: Request) -> Result<Response, StatusCode> {
    let count = request.parameter("count").and_then(|count| count.parse().ok());
    let count = count.filter(|count| (1..=items.len()).contains(count)).ok_or(StatusCode::BAD_REQUEST)?;
    let multiplier = request.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("m=")));
    let multiplier = multiplier.map_or(Ok(1), str::parse).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Json(items::page(&items, count, multiplier)).into_response())
}

/// The length of the body, counted as it arrives.
async fn upload(mut request: Request) -> Result<String, BodyError> {
    let mut bytes = 0;
    while let Some(piece) = request.body_mut().next().await {
        bytes += piece?.len();
    }
    Ok(bytes.to_string())
}

/// The longest delay, in milliseconds: it is below the timeout of requests.
const DELAY_MAX: u64 = 10_000;
