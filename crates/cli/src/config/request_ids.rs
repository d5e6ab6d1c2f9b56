//! The key `request-id`: a number for each request, in its response, for the upstream and in the log.

use tidegate::IpNet;
use tidegate::http::{InvalidField, RequestIds};
use tidegate::proxy_protocol::Networks;

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use super::reader::Reader;
use super::value::{Data, Value};

/// A number for each request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestIdRule {
    place: Place,
    header: Option<String>,
    accept: AcceptedIds,
}

/// The peers whose numbers are kept.
#[derive(Debug, Clone, Default)]
enum AcceptedIds {
    #[default]
    None,
    All,
    Of(Vec<IpNet>),
}

impl Keys for RequestIdRule {
    const TITLE: &'static str = "request-id";
    const TEXT: &'static str = "A number for each request: its response and the request to the upstream have it as a field, the log and \
         `{request.id}` name it.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "header",
            Kind::Text,
            "The name of the field.",
            |to, value, reader| to.header = Some(reader.text(value)),
        )
        .default("\"X-Request-Id\"")
        .known_as(&["field", "name"]),
        Key::<Self>::new(
            "accept",
            Kind::OneOrMore(&Kind::Text),
            "The peers whose numbers are kept: `none`, `all`, or networks of proxies in front. All others get new ones.",
            |to, value, reader| match &value.data {
                Data::Text { text, .. } if text == "none" => to.accept = AcceptedIds::None,
                Data::Text { text, .. } if text == "all" => to.accept = AcceptedIds::All,
                _ => to.accept = AcceptedIds::Of(reader.networks(value)),
            },
        )
        .default("\"none\"")
        .known_as(&["trusted", "trust"]),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if let Err(error) = self.ids() {
            let name = self.header.as_deref().unwrap_or_default();
            mistakes.add(self.place, format!("`{}`: {error}", name.escape_debug()));
        }
    }
}

impl RequestIdRule {
    /// `true`, or a table.
    pub(super) fn read(value: &Value, reader: &mut Reader<'_>) -> Option<Self> {
        match &value.data {
            Data::Table(_) => Some(reader.table(value)),
            _ => reader.boolean(value).then(Self::default),
        }
    }

    /// The middleware of one loop.
    pub(crate) fn ids(&self) -> Result<RequestIds, InvalidField> {
        let ids = match &self.header {
            Some(name) => RequestIds::new().field(name)?,
            None => RequestIds::new(),
        };
        Ok(match &self.accept {
            AcceptedIds::All => ids,
            AcceptedIds::None => ids.ignoring_peers(),
            AcceptedIds::Of(networks) => {
                let networks = networks.iter();
                ids.trusting(networks.fold(Networks::default(), |all, one| all.and(one.addr(), one.prefix_len())))
            }
        })
    }
}
