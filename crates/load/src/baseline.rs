//! `Baseline`: the results of an earlier load, from the output of its `--json`. `report/comparison.rs` compares with them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// The results of an earlier load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Baseline {
    pub(crate) name: String,
    /// In the order of [`FIGURES`].
    pub(crate) values: Vec<f64>,
    /// The parameters that decide whether the loads are comparable.
    pub(crate) parameters: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// More is better.
    Rate,
    /// Nanoseconds.
    Time,
    Count,
}

impl Baseline {
    /// Reads the output of `--json` of a load with this protocol.
    ///
    /// # Errors
    /// If the file is no such output, or one of another version or another protocol.
    pub(crate) fn read(path: &Path, protocol: &str) -> Result<Self, String> {
        let name = path.display().to_string();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(BASELINE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| format!("cannot read the baseline '{name}': {error}"))?;
        Self::parse(&text, &name, protocol).map_err(|why| format!("the baseline '{name}' {why}"))
    }

    /// Parses the output of `--json`.
    pub(crate) fn parse(text: &str, name: &str, protocol: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        if value["format"] != FORMAT {
            return Err(match &value["format"] {
                Value::Null => "is no output of --json, or one of an earlier version: measure it again".into(),
                other => format!("has the format {other}, and this program writes {FORMAT}: measure it again"),
            });
        }
        let before = value["protocol"].as_str().unwrap_or_default();
        if before != protocol {
            return Err(format!("is a load of {before}, and this one is of {}", protocol));
        }
        let values = FIGURES.map(|(_, path, unit)| {
            let number = value.pointer(path).and_then(Value::as_f64).filter(|number| *number >= 0.0);
            number.map(|number| if unit == Unit::Time { number * 1e3 } else { number })
        });
        let errors = value["errors"].as_object().map(|errors| errors.values().filter_map(Value::as_f64).sum());
        let values: Option<Vec<f64>> = values.into_iter().chain([errors]).collect();
        let Some(values) = values else { return Err("lacks a figure: measure it again".into()) };
        let parameters = PARAMETERS.map(|name| (name, value[name].clone())).to_vec();
        Ok(Self { name: name.to_owned(), values, parameters })
    }
}

/// The figures that are compared, and where they are in the output of `--json`.
pub(crate) const FIGURES: [(&str, &str, Unit); 7] = [
    (RATE, "/requests_per_second", Unit::Rate),
    ("bytes a second", "/bytes_per_second", Unit::Rate),
    ("latency 50%", "/latency/percentiles/50", Unit::Time),
    ("latency 90%", "/latency/percentiles/90", Unit::Time),
    (TAIL, "/latency/percentiles/99", Unit::Time),
    ("latency 99.9%", "/latency/percentiles/99.9", Unit::Time),
    ("latency maximum", "/latency/max", Unit::Time),
];

pub(crate) const RATE: &str = "requests a second";
pub(crate) const TAIL: &str = "latency 99%";

/// The parameters that are compared.
pub(crate) const PARAMETERS: [&str; 7] =
    ["connections", "pipeline", "version", "streams", "rate", "threads", "backend"];

/// The version of the output: another one is no baseline.
pub(crate) const FORMAT: u64 = 2;

/// The maximum length of a baseline.
const BASELINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
