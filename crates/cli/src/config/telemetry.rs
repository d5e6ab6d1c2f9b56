//! The key `telemetry`: spans for a collector of OpenTelemetry.

use super::keys::{Key, Keys, Kind};
use crate::telemetry::{ExportHeaders, TelemetrySettings, endpoint};

impl Keys for TelemetrySettings {
    const TITLE: &'static str = "[telemetry]";
    const TEXT: &'static str = "Spans for a collector of OpenTelemetry, by OTLP over HTTP: one for each request, and one for each attempt at an \
         upstream. The context of a request (W3C Trace Context) goes on to its upstream.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "otlp",
            Kind::Text,
            "The URL of the collector, such as `http://127.0.0.1:4318`; one without a path gets `/v1/traces`.",
            |to, value, reader| match endpoint(&reader.text(value)) {
                Ok(url) => to.endpoint = url,
                Err(error) => reader.mistake(value.place, format!("`otlp`: {error}")),
            },
        )
        .required()
        .known_as(&["endpoint", "url", "collector"]),
        Key::<Self>::new(
            "percent",
            Kind::Percent,
            "The share of the requests without a context that get spans. A request with a context gets some if its sender records.",
            |to, value, reader| to.percent = reader.percent(value),
        )
        .default("100")
        .known_as(&["ratio", "sample", "sampler"]),
        Key::<Self>::new(
            "requested-per-second",
            Kind::Integer { min: 0, max: 1_000_000 },
            "Requests in a second that get spans because a peer outside of `trusted` records them; beyond that their context counts as \
             none, so that clients cannot fill the collector.",
            |to, value, reader| to.requested_per_second = reader.count(value),
        )
        .default("100"),
        Key::<Self>::new(
            "trusted",
            Kind::OneOrMore(&Kind::Text),
            "Networks of peers whose decision to record counts without that limit; those of the file, unless set.",
            |to, value, reader| to.trusted = Some(reader.networks(value)),
        ),
        Key::<Self>::new(
            "service",
            Kind::Text,
            "The name of this service for the collector.",
            |to, value, reader| to.service = reader.text(value),
        )
        .default("\"tidegate\"")
        .known_as(&["service-name", "name"]),
        Key::<Self>::new(
            "headers-file",
            Kind::Path,
            "A file with fields for each export, such as `Authorization: Bearer …`; one a line.",
            |to, value, reader| match ExportHeaders::read(&reader.path(value).value) {
                Ok(headers) => to.headers = headers,
                Err(error) => reader.mistake(value.place, error),
            },
        )
        .known_as(&["headers"]),
        Key::<Self>::new(
            "ca",
            Kind::Path,
            "Certificates (PEM) that vouch for an https collector; those that the system trusts, unless set.",
            |to, value, reader| to.ca = Some(reader.path(value).value),
        )
        .known_as(&["root"]),
    ];
}
