//! The site of `tidegate serve`: /, /plaintext, /json, /bytes/N, /stream/N, /address, /echo, /sum, /ws and /chat, for
//! demonstrations and measurements.
//!
//! It is an ordinary application: it uses only the facade crate. It is a crate apart from the program, since its connections are
//! on the path of data, and the rest of the program is not: the profile `release` compiles the program without optimisation.
//!
//! Read next: `site_config.rs` starts the site, `handler.rs` answers requests.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `site_config.rs` | `SiteConfig`: which pipeline a connection has |
//! | `handler.rs` | `Site`: the responses |
//! | `site_codec.rs` | their requirements on the codec, with or without a PROXY header in front |
//! | `metrics.rs` | counts of its requests |
//! | `web_socket.rs` | WebSocket handshakes; /ws: an echo |
//! | `chat/` | /chat: its flags, rooms and protocol (`mod.rs`), a connection in a room (`guest.rs`), the page (`chat.html`) |
//! | `sum.rs` | `Sum`: the response of /sum |
//! | `byte_log.rs` | `ByteLogs`: a filter that logs the bytes of connections |

#![forbid(unsafe_code)]

mod byte_log;
mod chat;
mod handler;
mod metrics;
mod site_codec;
mod site_config;
mod sum;
mod web_socket;

pub use byte_log::ByteLogs;
pub use chat::{Chat, ChatOptions};
pub use site_config::SiteConfig;
