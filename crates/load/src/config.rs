//! Makes the configuration of the threads from the flags, and refuses flags that do not fit together.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate::http3;
use tidegate::tls::{ClientConfig, KeyLogFile, Provider};

use super::options::Options;
use super::redis::{CommandMix, CommandPlan, CommandTemplate, PublishPlan, parse_commands};
use super::request::RequestTemplate;
use super::results::{HttpVersion, Protocol};
use super::shared_stats::SharedStats;
use super::sources::RequestSource;
use super::stamp::STAMP_BYTES;
use super::traffic::TrafficPlan;
use super::url::Url;
use super::worker::WorkerConfig;

/// The TLS configuration, with the name that the server's certificate must have; `None` for plain HTTP.
fn tls(options: &Options) -> Result<Option<(ClientConfig, String)>, Box<dyn Error>> {
    let url = options.url();
    if !url.is_secure() {
        return Ok(None);
    }
    let provider = Provider::aws_lc_rs();
    let builder = match &options.root {
        Some(path) => ClientConfig::builder_with_root_file(&provider, path)?,
        None if options.insecure => ClientConfig::dangerous_builder_without_verification(&provider),
        None => ClientConfig::builder_with_platform_roots(&provider)
            .map_err(|error| format!("{error}: use --root FILE with those to trust, or --insecure"))?,
    };
    let builder = match options.version() {
        HttpVersion::Http1 => builder,
        HttpVersion::Http2 => builder.alpn(["h2"]),
        HttpVersion::Http3 => builder.alpn(["h3"]),
    };
    let builder = match &options.tls_key_log {
        Some(path) => {
            let log = KeyLogFile::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
            builder.key_log(Arc::new(log))
        }
        None => builder,
    };
    let config = builder.handshake_timeout(options.timeout).build()?;
    // Errors in the name are reported here, before the threads start.
    config.connect(url.host())?;
    Ok(Some((config, url.host().to_owned())))
}

/// The configuration of the threads.
///
/// # Errors
/// Those that the user can correct.
pub(crate) fn config(options: &Options) -> Result<WorkerConfig, Box<dyn Error>> {
    check(options)?;
    let traffic = match options.url().protocol() {
        Protocol::Redis => TrafficPlan::Redis(Arc::new(commands(options)?)),
        Protocol::Http | Protocol::WebSocket => TrafficPlan::Http(requests(options)?.into()),
    };
    // Each thread encodes its own requests; errors in them are reported here, before the threads start.
    traffic.encode()?;
    // Different requests have different responses.
    let any_length = options.any_length || matches!(&traffic, TrafficPlan::Http(requests) if requests.len() > 1);
    Ok(WorkerConfig {
        traffic,
        depth: options.pipeline,
        addresses: options.url().resolve(options.resolver)?,
        tls: tls(options)?,
        backend: options.backend,
        duration: options.duration(),
        ramp: options.ramp.unwrap_or_default(),
        timeout: options.timeout,
        never_read: options.never_read,
        broadcast: options.broadcast,
        listeners: options.listeners(),
        streams: options.streams,
        limits_of_http3: http3::Limits {
            head_bytes_max: 32 * 1024,
            qpack_table_bytes_max: options.qpack_max_table_capacity.unwrap_or(0),
            qpack_blocked_streams_max: options.qpack_blocked_streams.map_or(0, u32::from),
            qpack_encoder_bytes_max: options.qpack_encoder_table_capacity.unwrap_or(0),
            ..http3::Limits::default()
        },
        connections: options.connections(),
        shared: Arc::new(SharedStats::new(any_length, options.total)),
        stop: Arc::new(AtomicBool::new(false)),
    })
}

/// Refuses flags that do not fit the protocol, or each other.
fn check(options: &Options) -> Result<(), String> {
    let (protocol, url) = (options.url().protocol(), options.url());
    if let Some(other) = options.urls.iter().find(|other| other.server() != url.server()) {
        return Err(format!("a load is on one server: '{url}' and '{other}' are on two"));
    }
    if let Some(other) = options.sources.iter().map(|source| &source.url).find(|other| other.server() != url.server()) {
        return Err(format!("a load is on one server: '{url}' and '{other}' are on two"));
    }
    if !options.sources.is_empty() && protocol != Protocol::Http {
        return Err("--requests, --har and --curl are for HTTP: give a URL of http or https".into());
    }
    let is_several = options.urls.len() > 1;
    if is_several && (protocol != Protocol::Http || options.urls.iter().any(|url| url.protocol() != protocol)) {
        return Err("several URLs are for HTTP: give one of ws or redis".into());
    }
    if let (Some(total), Some(connections)) = (options.total, options.connections)
        && total < connections as u64
    {
        return Err(format!("{total} requests (-n) need no {connections} connections: use -c {total} or fewer"));
    }
    if options.ramp.is_some_and(|ramp| ramp > options.duration()) {
        return Err("--ramp is longer than the load: give a longer --duration".into());
    }
    check_protocol(options)?;
    check_http3(options)
}

/// Refuses flags that do not fit HTTP/3.
fn check_http3(options: &Options) -> Result<(), String> {
    if !options.http3 {
        return Ok(());
    }
    if options.http2 {
        return Err("--http2 and --http3 are two versions: give one of them".into());
    }
    if options.pipeline > 1 {
        return Err("--pipeline is for HTTP/1.1: with --http3 give streams, by -m N".into());
    }
    let url = options.url();
    if url.protocol() == Protocol::WebSocket {
        return Err("--http3 is for HTTP: a WebSocket of the load is on a connection of its own".into());
    }
    if !url.is_secure() {
        return Err(format!("--http3 is always encrypted: give a URL of https in place of '{url}'"));
    }
    Ok(())
}

/// Refuses flags that are for another protocol.
fn check_protocol(options: &Options) -> Result<(), String> {
    let protocol = options.url().protocol();
    let is_redis = protocol == Protocol::Redis;
    let redis_flags = [
        ("--commands", !options.commands.is_empty()),
        ("--keys", options.keys.is_some()),
        ("--value-bytes", options.value_bytes.is_some()),
        ("--subscribers", options.subscribers.is_some()),
    ];
    if let Some((flag, _)) = redis_flags.into_iter().find(|(_, is_given)| *is_given && !is_redis) {
        return Err(format!("{flag} is for Redis: give a URL of redis or rediss"));
    }
    let http_flags = [
        ("--http2", options.http2),
        ("--http3", options.http3),
        ("--never-read", options.never_read),
        ("--broadcast", options.broadcast),
        ("--header", !options.headers.is_empty()),
        ("--method", options.method.is_some()),
        ("--body", options.body.is_some()),
    ];
    if let Some((flag, _)) = http_flags.into_iter().find(|(_, is_given)| *is_given && is_redis) {
        return Err(format!("{flag} is not for Redis: leave it out, or give a URL of http or ws"));
    }
    if options.message_bytes.is_some() && protocol == Protocol::Http {
        return Err("--broadcast and --message-bytes are for WebSockets: give a URL of ws or wss".into());
    }
    if options.message_bytes.is_some() && is_redis && options.subscribers.is_none() {
        return Err(
            "--message-bytes is for messages that are published: give --subscribers too, or --value-bytes".into()
        );
    }
    if options.broadcast && protocol != Protocol::WebSocket {
        return Err("--broadcast and --message-bytes are for WebSockets: give a URL of ws or wss".into());
    }
    if protocol == Protocol::WebSocket && options.http2 {
        return Err("--http2 is for HTTP: a WebSocket of the load is on a connection of its own".into());
    }
    if protocol == Protocol::WebSocket && options.never_read {
        return Err("--never-read is for HTTP: a WebSocket begins with a response that has to be read".into());
    }
    Ok(())
}

/// The HTTP requests, or the message for a WebSocket connection.
fn requests(options: &Options) -> Result<Vec<RequestTemplate>, Box<dyn Error>> {
    let body = match options.body.as_deref().map(|body| body.strip_prefix('@').ok_or(body)) {
        None => Vec::new(),
        Some(Err(text)) => text.into(),
        Some(Ok(path)) => fs::read(path).map_err(|error| format!("cannot read the body from '{path}': {error}"))?,
    };
    let is_websocket = options.url().protocol() == Protocol::WebSocket;
    let body = match options.message_bytes.unwrap_or(MESSAGE_BYTES) {
        bytes if is_websocket && options.body.is_none() => vec![b'x'; bytes as usize],
        _ => body,
    };
    if !options.sources.is_empty() {
        return Ok(options.sources.iter().map(|source| of_source(options, source)).collect());
    }
    // Several requests are written one by one.
    let depth = if options.urls.len() > 1 { 1 } else { options.pipeline };
    let template = |url: &Url| RequestTemplate {
        url: url.clone(),
        method: method(options).to_owned(),
        headers: options.headers.clone(),
        body: body.clone(),
        depth,
        version: options.version(),
    };
    Ok(options.urls.iter().map(template).collect())
}

/// A request of a file or of a line of curl, with the fields of all requests.
fn of_source(options: &Options, source: &RequestSource) -> RequestTemplate {
    RequestTemplate {
        url: source.url.clone(),
        method: source.method.clone(),
        headers: options.headers.iter().chain(&source.headers).cloned().collect(),
        body: source.body.clone(),
        depth: if options.sources.len() > 1 { 1 } else { options.pipeline },
        version: options.version(),
    }
}

/// The commands of Redis, or the messages to publish.
fn commands(options: &Options) -> Result<CommandPlan, String> {
    let usual = [COMMANDS.to_owned()];
    let given = if options.commands.is_empty() { &usual[..] } else { &options.commands };
    let value_bytes = options.value_bytes.unwrap_or(VALUE_BYTES) as usize;
    let mix = CommandMix::new(parse_commands(given)?, options.keys.unwrap_or(KEYS), value_bytes);
    let longest = mix.commands.iter().map(CommandTemplate::wire_bytes).max().unwrap_or(0) as u64;
    let message_bytes = options.message_bytes.unwrap_or(MESSAGE_BYTES) as usize;
    let batch_bytes = longest.max(message_bytes as u64) * u64::from(options.pipeline);
    if batch_bytes > BATCH_BYTES_MAX {
        return Err(format!("{batch_bytes} bytes at once are more than {BATCH_BYTES_MAX}: pipeline fewer commands"));
    }
    let publish = match options.subscribers {
        Some(0) => return Err("--subscribers 0 has no connection that messages are delivered to".into()),
        Some(_) if message_bytes < STAMP_BYTES => {
            return Err(format!(
                "--message-bytes is at least {STAMP_BYTES} here: a message has the time of its sending"
            ));
        }
        // A channel of its own, so that no other load is counted.
        Some(_) => Some(PublishPlan { message_bytes, channel: format!("tidegate-load-{}", std::process::id()) }),
        None => None,
    };
    Ok(CommandPlan { mix, login: options.url().login().clone(), database: options.url().database(), publish })
}

/// The method of the requests, unless each has its own.
pub(crate) fn method(options: &Options) -> &str {
    let has_body = options.body.is_some() && options.url().protocol() != Protocol::WebSocket;
    if let [source, others @ ..] = &*options.sources {
        return if others.is_empty() { &source.method } else { "Several" };
    }
    options.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" })
}

/// The default lengths of a message and of a value, in bytes.
const MESSAGE_BYTES: u32 = 64;
const VALUE_BYTES: u32 = 64;

/// The default commands and number of keys.
const COMMANDS: &str = "get:80,set:20";
const KEYS: u64 = 100_000;

/// The maximum length of the commands that a connection sends at once.
const BATCH_BYTES_MAX: u64 = 256 * 1024 * 1024;
