//! A gateway in front: the workloads `gateway` and `production-stack`, by `edge/start`, which starts the programs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tidegate::http::client::Response;
use tidegate::http::{Client, Version};
use tidegate::tls::{ClientConfig, Provider};
use tidegate_testkit::Postgres;

use crate::static_files::FOLDER;

/// The gateway and the server behind it, in a folder of their own.
struct Programs {
    start: Child,
    folder: PathBuf,
    address: String,
    root: CertificateDer<'static>,
}

impl Programs {
    /// `None`, with a line, where the program is not built: `cargo test -p tidegate-arena` does not build it.
    fn start(kind: &str, variables: &[(&str, &str)]) -> Option<Self> {
        let built = Path::new(env!("CARGO_BIN_EXE_arena")).parent().expect("a folder");
        let gateway = built.join("tidegate");
        if !gateway.exists() {
            assert!(!is_required(), "{} is not built", gateway.display());
            println!("skipped: {} is not built", gateway.display());
            return None;
        }
        let folder = folder();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(folder.join("chain.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.join("secret"), SECRET).unwrap();
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/edge/start"));
        command.arg(kind).arg(&folder).env("ARENA", env!("CARGO_BIN_EXE_arena")).env("TIDEGATE", gateway);
        command.env("FILES", &*FOLDER).env("LOOPS", "1").envs(variables.iter().copied());
        // A group, so that its end is that of all programs.
        let mut start = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(start.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the gateway says where it listens").unwrap();
            if let Some((_, rest)) = line.split_once("https://") {
                break rest.split_whitespace().next().expect("an address").to_owned();
            }
        };
        Some(Self { start, folder, address, root: made.cert.der().clone() })
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let group = format!("-{}", self.start.id());
        drop(Command::new("kill").args(["-TERM", "--", &group]).status());
        drop(self.start.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The gateway, and a client that trusts it.
struct Edge {
    programs: Programs,
    client: Client,
}

impl Edge {
    fn new(programs: Programs) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(programs.root.clone()).unwrap();
        let tls = ClientConfig::builder(&Provider::aws_lc_rs(), roots).unwrap().build().unwrap();
        Self { programs, client: Client::builder().tls(tls).build() }
    }

    fn url(&self, target: &str) -> String {
        format!("https://{}{target}", self.programs.address)
    }

    async fn get(&self, target: &str) -> Response {
        self.client.get(self.url(target)).send().await.unwrap()
    }

    async fn text(&self, target: &str) -> String {
        self.get(target).await.text().await.unwrap()
    }
}

/// A redis-server on a Unix socket.
struct Redis {
    child: Child,
    folder: PathBuf,
}

impl Redis {
    fn start() -> Option<Self> {
        let folder = folder();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(folder.join("socket"));
        match command.current_dir(&folder).stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Self { child, folder }),
            Err(error) => {
                assert!(!is_required(), "redis-server: {error}");
                println!("skipped: redis-server: {error}");
                drop(fs::remove_dir_all(&folder));
                None
            }
        }
    }

    fn url(&self) -> String {
        format!("unix:{}", self.folder.join("socket").display())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn is_required() -> bool {
    std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1")
}

/// A folder whose path is short enough for a socket.
fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-edge-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The requirements of the gateway, which both set-ups have.
async fn check_gateway(edge: &Edge) {
    let response = edge.get("/baseline2?a=13&b=42").await;
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
    assert_eq!(response.text().await.unwrap(), "55");
    let posted = edge.client.post(edge.url("/baseline11?a=13&b=42")).body("20").send().await.unwrap();
    assert_eq!(posted.text().await.unwrap(), "75");
    let page: Value = serde_json::from_str(&edge.text("/json/3?m=2").await).unwrap();
    assert_eq!((&page["count"], page["items"].as_array().unwrap().len()), (&json!(3), 3));
    for (name, length) in arena::files::FILES {
        let plain = edge.get(&format!("/static/{name}")).await;
        assert_eq!(plain.status().as_u16(), 200, "{name}");
        assert!(plain.bytes().await.unwrap() == arena::files::content(name, *length), "{name}");
    }
    let request = edge.client.get(edge.url("/static/app.js")).header("accept-encoding", "br;q=1, gzip;q=0.8");
    let packed = request.send().await.unwrap();
    assert_eq!(packed.header_str("content-encoding"), Some("br"));
    let variant = fs::read(FOLDER.join("app.js.br")).unwrap();
    assert!(packed.bytes().await.unwrap() == variant, "the variant is sent as it is");
    let body = vec![7; 20_000_000];
    let uploaded = edge.client.post(edge.url("/upload")).body(body).send().await.unwrap();
    assert_eq!(uploaded.text().await.unwrap(), "20000000");
    for target in ["/nothing", "/static/nothing.css"] {
        assert_eq!(edge.get(target).await.status().as_u16(), 404, "{target}");
    }
}

#[tidegate::test]
async fn a_gateway_serves_files_and_passes_everything_else_on() -> Result<(), Box<dyn std::error::Error>> {
    let Some(programs) = tidegate::blocking(|| Programs::start("gateway", &[])).await? else { return Ok(()) };
    let edge = Edge::new(programs);
    check_gateway(&edge).await;
    tidegate::blocking(move || drop(edge.programs)).await?;
    Ok(())
}

#[tidegate::test]
async fn a_stack_has_users_a_table_and_a_cache() -> Result<(), Box<dyn std::error::Error>> {
    let Some(postgres) = tidegate::blocking(Postgres::start).await? else { return Ok(()) };
    let Some(redis) = Redis::start() else { return Ok(()) };
    let (database, url) = (postgres.settings(), redis.url());
    let start = move || Programs::start("stack", &[("DATABASE", &database), ("REDIS", &url)]);
    let Some(programs) = tidegate::blocking(start).await? else { return Ok(()) };
    let edge = Edge::new(programs);
    check_gateway(&edge).await;
    let found: Value = serde_json::from_str(&edge.text("/async-db?min=10&max=50&limit=5").await)?;
    assert_eq!(found["count"], 5);
    check_users(&edge).await;
    check_items(&edge).await;
    tidegate::blocking(move || drop((edge.programs, redis, postgres))).await?;
    Ok(())
}

/// The table is for users alone.
async fn check_users(edge: &Edge) {
    let target = "/crud/items/7";
    assert_eq!(edge.get(target).await.status().as_u16(), 401);
    let forged = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    for (token, status) in [(TOKEN, 200), (&*forged, 401)] {
        let response = edge.client.get(edge.url(target)).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status);
    }
}

/// An item is cached until it changes, or its 200 ms are over.
async fn check_items(edge: &Edge) {
    let get = async || {
        let response = edge.client.get(edge.url("/crud/items/9")).bearer_auth(TOKEN).send().await.unwrap();
        let is_hit = response.header_str("x-cache") == Some("HIT");
        (is_hit, response.json::<Value>().await.unwrap())
    };
    let mut is_hit = false;
    // A slow machine may need more than those between two requests.
    for _ in 0..1_000 {
        let (from_cache, item) = get().await;
        assert_eq!(item["id"], 9);
        is_hit = from_cache;
        if is_hit {
            break;
        }
    }
    assert!(is_hit, "no read came from the cache");
    for name in ["Gong", "Bell"] {
        let change = json!({"name": name, "price": 6, "quantity": 1});
        let request = edge.client.put(edge.url("/crud/items/9")).bearer_auth(TOKEN).json(&change);
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
        assert_eq!(get().await.1["name"], name, "a change removes the cached item");
    }
}

/// The key of the tokens.
const SECRET: &str = "a secret of at least thirty-two bytes";

/// HS256 of `{"sub":"maren","exp":4102444800}` with that key.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJtYXJlbiIsImV4cCI6NDEwMjQ0NDgwMH0.BHjGlrRqatacZ2ZBkVC21xJqVSgiH1fEa8NEP6Y4GWA";
