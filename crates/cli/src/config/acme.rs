//! The key `acme` of a listener: a certificate that an authority issues and renews.

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use crate::acme::{self, AcmeSettings, KindName};

impl Keys for AcmeSettings {
    const TITLE: &'static str = "acme";
    const TEXT: &'static str = "A certificate that an authority issues and renews while the server runs (RFC 8555), in place of `certificates`. \
         To use it is to agree to the authority's terms of service.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "names",
            Kind::OneOrMore(&Kind::Text),
            "The names in the certificate. The authority validates each of them at its port 443, or 80 with `http-01`.",
            |to, value, reader| to.names = reader.texts(value).into_iter().map(|name| name.value).collect(),
        )
        .required()
        .known_as(&["domains", "hosts"]),
        Key::<Self>::new(
            "directory",
            Kind::Text,
            "The URL of the authority's directory, such as `https://acme-v02.api.letsencrypt.org/directory`.",
            |to, value, reader| to.directory = reader.text(value),
        )
        .required()
        .known_as(&["ca", "server"]),
        Key::<Self>::new(
            "folder",
            Kind::Path,
            "Where the account, keys and orders are kept; only its owner may read it.",
            |to, value, reader| to.folder = reader.path(value).value,
        )
        .required()
        .known_as(&["storage"]),
        Key::<Self>::new(
            "contact",
            Kind::OneOrMore(&Kind::Text),
            "URLs at which the authority reaches the owner of the account, such as `mailto:admin@example.org`.",
            |to, value, reader| to.contacts = reader.texts(value).into_iter().map(|contact| contact.value).collect(),
        )
        .known_as(&["email"]),
        Key::<Self>::new(
            "challenges",
            Kind::OneOrMore(&Kind::Choice(&["tls-alpn-01", "http-01", "dns-01"])),
            "How names are validated; of several kinds each attempt has the next one. The http listeners of the file answer \
             `http-01`, one of which has to be reached at port 80.",
            |to, value, reader| {
                let kind = |text: &str| match text {
                    "http-01" => KindName::Http01,
                    "dns-01" => KindName::Dns01,
                    _ => KindName::TlsAlpn01,
                };
                to.kinds = reader.texts(value).into_iter().map(|text| kind(&text.value)).collect();
            },
        )
        .default("\"tls-alpn-01\""),
        Key::<Self>::new(
            "dns-exec",
            Kind::Path,
            "The program for `dns-01`, which wildcards need. `PROGRAM set NAME VALUE` adds a TXT record and ends once the name servers have it; \
             `PROGRAM remove NAME VALUE` removes it.",
            |to, value, reader| to.dns_exec = Some(reader.path(value).value),
        ),
        Key::<Self>::new(
            "root",
            Kind::Path,
            "Certificates (PEM) that vouch for the authority's own server; those that the system trusts, unless set.",
            |to, value, reader| to.root = Some(reader.path(value).value),
        ),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if self.kinds.is_empty() {
            self.kinds.push(KindName::TlsAlpn01);
        }
        let is_complete = !self.names.is_empty() && !self.directory.is_empty() && !self.folder.as_os_str().is_empty();
        if is_complete && let Err(error) = acme::check(self) {
            mistakes.add(self.place, format!("acme: {error}"));
        }
    }
}
