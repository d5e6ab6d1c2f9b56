//! DNS
#![forbid(unsafe_code)]

mod cache;
mod edns;
mod error;
mod header;
mod hosts;
mod layout;
mod limits;
mod message_view;
mod message_writer;
mod name;
mod name_view;
mod numbers;
mod record_data;
mod records;
mod resolv_conf;
mod resolver;
mod stream_codecs;
mod text;

pub use cache::{Cache, CacheConfig, Cached};
pub use edns::{COOKIE, Cookie, EXTENDED_ERROR, Edns, EdnsView, ExtendedError};
pub use error::DnsError;
pub use header::Header;
pub use hosts::Hosts;
pub use limits::{ProtocolLimits, UDP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES_MAX, UDP_PAYLOAD_BYTES_MIN};
pub use message_view::{Message, MessageView, QuestionView, RecordView};
pub use message_writer::{EncodedMessage, MessageWriter, Section};
pub use name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name};
pub use name_view::NameView;
pub use numbers::{Class, Opcode, RecordType, ResponseCode};
pub use record_data::{Naptr, RecordData, Soa, Svcb, Texts};
pub use records::{Question, Rdata, Record};
pub use resolv_conf::{ResolvConf, ServerAddress};
pub use resolver::{
    Answer, Lookup, LookupError, LookupId, Resolver, ResolverConfig, ResolverCounts, ResolverServer, SharedCache,
    Transmit, Transport,
};
pub use stream_codecs::{ClientCodec, ServerCodec, format_error};
