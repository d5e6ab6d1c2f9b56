//! The memcached protocol: text and meta commands, in both roles.
//!
//! | for | there is |
//! |---|---|
//! | a server | [`ServerCodec`]: [`Command`]s in, [`Response`]s out |
//! | a client | [`ClientCodec`]: [`Response`]s in, [`Command`]s out |
//! | a command | [`Command`], with a [`Key`] or [`Keys`]; [`MetaCommand`] with its [`MetaFlags`] |
//! | a line of a response, with its value | [`Response`] and [`MetaResponse`] |
//! | bounds | [`ProtocolLimits`] |
//! | errors | [`MemcachedError`], sorted by blame |
//!
//! Both codecs are free of I/O. Keys and values of a received message are views of the received bytes. The binary
//! protocol, which memcached itself has given up, is not there.
//!
//! ```
//! use tidegate::memcached::{Command, Key, Response, ServerCodec};
//! use tidegate_testkit::CodecHarness;
//!
//! let mut server = CodecHarness::new(ServerCodec::default());
//! server.receive(b"set tide 0 60 3\r\nebb\r\nget tide\r\n");
//! let tidegate::codec::Step::Message(Command::Store(store)) = server.step()? else { panic!("a store") };
//! assert_eq!((store.key.as_ref(), store.value.as_ref(), store.expiry), (&b"tide"[..], &b"ebb"[..], 60));
//! server.encode(Response::Stored)?;
//! # Ok::<(), tidegate::memcached::MemcachedError>(())
//! ```
//!
//! Source: [`doc/protocol.txt`](https://github.com/memcached/memcached/blob/master/doc/protocol.txt) of memcached.
//!
//! Read next: `command.rs`, then `server_codec.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | `Command`: a request of each kind |
//! | `key.rs` | `Key` and `Keys` |
//! | `meta.rs` | `MetaCommand`, `MetaResponse`, `MetaFlags` |
//! | `response.rs` | `Response`: a line of a response |
//! | `line.rs` | the end of a line, its words, numbers |
//! | `limits.rs` | `ProtocolLimits` |
//! | `parse.rs` | a command line as a `Command` |
//! | `server_codec.rs` | `ServerCodec`, the codec of a server |
//! | `client_codec.rs` | `ClientCodec`, the codec of a client |
//! | `error.rs` | errors by blame |

#![forbid(unsafe_code)]

mod client_codec;
mod command;
mod error;
mod key;
mod limits;
mod line;
mod meta;
mod parse;
mod response;
mod server_codec;

pub use client_codec::ClientCodec;
pub use command::{Arithmetic, Command, Retrieval, Store, StoreMode};
pub use error::MemcachedError;
pub use key::{Key, Keys};
pub use limits::ProtocolLimits;
pub use meta::{MetaCommand, MetaFlags, MetaResponse, MetaStatus, MetaVerb};
pub use response::Response;
pub use server_codec::ServerCodec;
