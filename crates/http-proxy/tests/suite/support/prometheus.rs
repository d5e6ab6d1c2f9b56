//! A strict reader of the text format of Prometheus (version 0.0.4).

use std::collections::{BTreeMap, HashSet};

/// The samples of a text by name and labels, as they stand there.
pub(crate) type Samples = BTreeMap<String, f64>;

/// Reads a text, and checks all that a scraper relies on: a family has its help, its type and its samples together and
/// once, names and labels have the allowed characters, no sample comes twice, and the buckets of a histogram add up.
pub(crate) fn read(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line has an end");
    let (mut samples, mut families) = (Samples::new(), HashSet::new());
    let (mut family, mut kind, mut help) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split(' ').next().expect("a name").to_owned();
            assert!(families.insert(help.clone()), "{help} comes twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of_kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, help, "the help is before the type");
            assert!(["counter", "gauge", "histogram"].contains(&of_kind), "{line}");
            (family, kind) = (name.to_owned(), of_kind.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} in {family}");
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            check_labels(series);
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(value >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
        }
    }
    check_histograms(&samples);
    samples
}

fn check_labels(series: &str) {
    let is_name = |name: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        name.bytes().next().is_some_and(is_letter) && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
    };
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    assert!(is_name(name), "{series}");
    let mut rest = labels.strip_suffix('}').expect(series);
    let mut known = HashSet::new();
    while !rest.is_empty() {
        let (label, behind) = rest.split_once("=\"").expect(series);
        assert!(is_name(label) && known.insert(label), "{series}");
        let mut is_escaped = false;
        let end = behind.find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        let behind = &behind[end.expect(series) + 1..];
        rest = behind.strip_prefix(',').unwrap_or(behind);
    }
}

fn check_histograms(samples: &Samples) {
    for (series, count) in samples.iter().filter(|(series, _)| series.split('{').next().unwrap().ends_with("_count")) {
        let (name, labels) = series.split_once('{').expect(series);
        let prefix = format!("{}_bucket{{{},le=\"", name.strip_suffix("_count").unwrap(), &labels[..labels.len() - 1]);
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|(series, events)| {
                let bound = series.strip_prefix(&prefix)?.strip_suffix("\"}")?;
                Some((if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect(series) }, *events))
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{series}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
        assert!(samples.contains_key(&series.replacen("_count", "_sum", 1)), "{series}");
    }
}
