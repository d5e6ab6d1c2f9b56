//! `/chat` of `tidegate serve`: a page with rooms, and the WebSocket that it opens, `/chat/ws?room=ROOM&name=NAME`.
//!
//! | direction | text | meaning |
//! |---|---|---|
//! | from a browser | any text | a message to the room |
//! | to it | `{"type":"present","name":NAME,"names":[...],"count":N}` | the first one: the own name, and those present |
//! | | `{"type":"message","name":NAME,"text":TEXT,"at":MS}` | a message; the last ones of the room come first |
//! | | `{"type":"joined","name":NAME,"count":N}`, `left` | a guest came or left, in rooms of up to 100 |
//! | | `{"type":"refused","why":TEXT}` | the message was not sent |
//! | | `{"type":"gap"}` | messages before this point are lost |
//! | | `{"type":"offline"}`, `online` | the broker of `--backplane` is not connected, or is again |

mod guest;

use std::cell::RefCell;
use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use tidegate::Encoded;
use tidegate::backplane::Backplane;
use tidegate::codec::{DynOver, Filters};
use tidegate::http1::{RequestHead, Status};
use tidegate::websocket::handshake::Offer;
use tidegate::websocket::{Config, Deflate, Message, WebSocket};
use tidegate::{Context, Outcome, RoomEvent, RoomLimits, Rooms, RoomsSummary, Slow};

use self::guest::Guest;
use crate::site_codec::SiteCodec;
use crate::web_socket;

/// The page.
pub(crate) const PAGE: &str = include_str!("chat.html");

/// The flags of the chat.
#[derive(Debug, Args)]
pub struct ChatOptions {
    /// Messages of a room of /chat that a newcomer sees; 0 for none [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1000))]
    chat_history: Option<u16>,
    /// Messages per second that a connection may send to /chat, and twice as many at once [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chat_rate: Option<u32>,
    // Not a comment of documentation, where an address has to be a link.
    #[arg(
        long,
        value_name = "ORIGIN",
        help = "A site whose pages may use /chat, such as https://sea.example; may be repeated. * allows all [default: this \
                server's own page, in clear at an IP address or localhost, over TLS at any name]"
    )]
    chat_origin: Vec<String>,
    /// Share the rooms of /chat with other processes through a Redis server, redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE],
    /// a Redis cluster, redis://HOST:PORT,HOST:PORT, or a NATS server with JetStream, nats://[USER:PASSWORD@]HOST[:PORT].
    /// They have the same --chat-history. While the server is not connected, /ready of --admin answers 503
    #[arg(long, value_name = "URL")]
    backplane: Option<String>,
}

impl ChatOptions {
    /// The connection to the broker that the flags name.
    ///
    /// # Errors
    ///
    /// Returns a line for the user if the address is invalid or no thread can be made.
    pub fn backplane(&self) -> Result<Option<Backplane>, Box<dyn Error>> {
        let Some(url) = &self.backplane else { return Ok(None) };
        // A password has no place in a log.
        let shown = url.rsplit_once('@').map_or(&**url, |(_, servers)| servers);
        let builder = Backplane::at(url).map_err(|error| format!("--backplane {shown}: {error}"))?;
        Ok(Some(builder.spawn()?))
    }

    /// The rooms of a server; `has_tls` says whether browsers have checked its name.
    #[must_use]
    pub fn open(&self, has_tls: bool, backplane: Option<&Backplane>) -> Chat {
        let mut limits = RoomLimits::default();
        limits.history_max = self.chat_history.unwrap_or(HISTORY).into();
        let rate = self.chat_rate.unwrap_or(RATE);
        let (origins, rooms) = (self.chat_origin.clone(), Rooms::new(Slow::Skip, limits).encoding(encoded_event));
        let rooms = match backplane {
            Some(backplane) => rooms.with(backplane),
            None => rooms,
        };
        Chat(Arc::new(ChatState { rooms, rate, origins, has_tls, guests: AtomicU32::new(0) }))
    }
}

/// The rooms of a server; clones are the same.
#[derive(Clone)]
pub struct Chat(Arc<ChatState>);

struct ChatState {
    rooms: Rooms<DynOver<WebSocket>, Arc<str>>,
    rate: u32,
    origins: Vec<String>,
    has_tls: bool,
    /// The number of the last guest without a name.
    guests: AtomicU32,
}

thread_local! {
    /// The rooms, for the connections of the loop of this thread. A connection has no room for it.
    static CHAT: RefCell<Option<Chat>> = const { RefCell::new(None) };
}

impl Chat {
    /// The rooms for an operator, with so many of the largest by name.
    #[must_use]
    pub fn summary(&self, largest_max: usize) -> RoomsSummary {
        self.0.rooms.summary(largest_max)
    }

    /// Has the loop of this thread serve the rooms.
    pub(crate) fn serve(&self) {
        CHAT.set(Some(self.clone()));
    }

    /// Whether a page of this site may use the rooms. A client that is no browser sends no origin.
    fn allows(&self, origin: Option<&[u8]>, host: &str) -> bool {
        let Some(origin) = origin else { return true };
        let is_own = [&b"http://"[..], b"https://"]
            .into_iter()
            .any(|scheme| origin.strip_prefix(scheme).is_some_and(|own| own.eq_ignore_ascii_case(host.as_bytes())));
        let is_listed = |allowed: &String| allowed == "*" || origin.eq_ignore_ascii_case(allowed.as_bytes());
        is_own && self.knows(host) || self.0.origins.iter().any(is_listed)
    }

    /// Whether a page at this host is one of this server. Without TLS a name says nothing: a page of another site may make
    /// its own name resolve to this machine (DNS rebinding). Over TLS the browser has checked that the name is ours.
    fn knows(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let is_address = match name.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
            None => name.parse::<Ipv4Addr>().is_ok(),
        };
        self.0.has_tls || is_address || name.trim_end_matches('.').eq_ignore_ascii_case("localhost")
    }
}

/// The target that a handshake's query names.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Target {
    room: String,
    name: String,
}

/// Accepts the handshake of a guest, or refuses it: 403 for a page of another site, 400 for a name that cannot be one,
/// 503 if there are too many rooms.
#[inline(never)]
pub(crate) fn accept<C: SiteCodec>(head: &RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
    web_socket::accept(head, cx, &CONFIG, |offer| guest(head, offer))
}

fn guest(head: &RequestHead, offer: &Offer) -> Result<Guest, Status> {
    let chat = CHAT.with_borrow(Clone::clone).ok_or(Status::NOT_FOUND)?;
    if !chat.allows(offer.origin(), head.host()) {
        return Err(Status::FORBIDDEN);
    }
    let target: Target =
        serde_html_form::from_str(head.query().unwrap_or_default()).map_err(|_| Status::BAD_REQUEST)?;
    let name = match target.name.trim() {
        "" => format!("guest {}", chat.0.guests.fetch_add(1, Ordering::Relaxed).wrapping_add(1)),
        name => name.to_owned(),
    };
    let room = match target.room.trim() {
        "" => "lobby",
        room => room,
    };
    let is_name = |name: &str| name.chars().count() <= NAME_CHARACTERS_MAX && !name.chars().any(char::is_control);
    if !is_name(&name) || !is_name(room) {
        return Err(Status::BAD_REQUEST);
    }
    let room = chat.0.rooms.room(room).ok_or(Status::SERVICE_UNAVAILABLE)?;
    Ok(Guest::new(name.into(), room, chat.0.rate))
}

/// An event of a room as a message to its guests.
fn encoded_event(event: RoomEvent<'_>) -> Option<Encoded<DynOver<WebSocket>>> {
    match event {
        RoomEvent::Message { bytes, .. } => encoded_text(std::str::from_utf8(bytes).ok()?),
        RoomEvent::Gap { .. } => encoded(&json!({ "type": "gap" })),
        RoomEvent::Down => encoded(&json!({ "type": "offline" })),
        RoomEvent::Up => encoded(&json!({ "type": "online" })),
        _ => None,
    }
}

/// A message to many guests, encoded and compressed once.
fn encoded(message: &serde_json::Value) -> Option<Encoded<DynOver<WebSocket>>> {
    encoded_text(&message.to_string())
}

fn encoded_text(text: &str) -> Option<Encoded<DynOver<WebSocket>>> {
    let mut codec = Filters::default().stack(WebSocket::server(CONFIG.clone(), None));
    Encoded::new(&mut codec, Message::from(text.to_owned())).ok()
}

/// Messages up to 4 KiB, and compression where the browser offers it.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let mut config = Config::default();
    config.message_bytes_max = 4 * 1024;
    config.deflate = Some(Deflate::default());
    Arc::new(config)
});

/// The defaults of the flags.
const HISTORY: u16 = 20;
const RATE: u32 = 5;

/// The length of the name of a guest, and of a room.
const NAME_CHARACTERS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_server_and_of_listed_sites_may_use_the_rooms() {
        let options = |origins: &[&str]| ChatOptions {
            chat_history: None,
            chat_rate: None,
            backplane: None,
            chat_origin: origins.iter().map(ToString::to_string).collect(),
        };
        for (origins, origin, is_allowed) in [
            (&[][..], None, true),
            (&[], Some("http://sea.example:8080"), true),
            (&[], Some("https://SEA.example:8080"), true),
            (&[], Some("http://sea.example"), false),
            (&[], Some("null"), false),
            (&["https://reef.example"], Some("https://reef.example"), true),
            (&["https://reef.example"], Some("http://reef.example"), false),
            (&["*"], Some("null"), true),
        ] {
            let allows = options(origins).open(true, None).allows(origin.map(str::as_bytes), "sea.example:8080");
            assert_eq!(allows, is_allowed, "{origin:?} with {origins:?}");
        }
        for (host, is_known) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("LocalHost.", true),
            ("sea.example:8080", false),
            ("127.0.0.1.sea.example", false),
            ("", false),
        ] {
            let origin = format!("http://{host}");
            let allows = |origins| options(origins).open(false, None).allows(Some(origin.as_bytes()), host);
            assert_eq!((allows(&[]), allows(&["*"])), (is_known, true), "{host} in clear");
        }
    }
}
