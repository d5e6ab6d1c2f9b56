//! Formats figures as wrk does: two decimals, and the next unit from 85 % of it on, so that `980us` reads `0.98ms`.
//! There is no space between the number and its unit, and units of bytes are binary.

/// A duration in nanoseconds, in `us`, `ms` or `s`, and from 51 s on in minutes and hours.
pub fn time(ns: f64) -> String {
    let us = ns / 1e3;
    if us >= 1e6 { scaled(us / 1e6, 60.0, "s", &["m", "h"]) } else { scaled(us, 1e3, "us", &["ms"]) }
}

/// A number, in thousands, millions and so on.
pub fn metric(number: f64) -> String {
    scaled(number, 1e3, "", &["k", "M", "G", "T"])
}

/// A number of bytes, without the `B`.
pub fn binary(bytes: f64) -> String {
    scaled(bytes, 1024.0, "", &["K", "M", "G", "T"])
}

/// The duration of a load, which in wrk is whole seconds: without decimals unless they are needed.
pub(super) fn whole_time(seconds: f64) -> String {
    let text = time(seconds * 1e9);
    text.replace(".00", "")
}

fn scaled(number: f64, step: f64, base: &'static str, units: &[&'static str]) -> String {
    let (mut amount, mut unit) = (number, base);
    for next in units {
        if amount < step * NEXT_UNIT_FROM {
            break;
        }
        (amount, unit) = (amount / step, next);
    }
    format!("{amount:.2}{unit}")
}

const NEXT_UNIT_FROM: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_wrk_writes_them() {
        for (ns, expected) in [
            (0.0, "0.00us"),
            (151e3, "151.00us"),
            (849_990.0, "849.99us"),
            (850_000.0, "0.85ms"),
            (999_000.0, "1.00ms"),
            (1_490_000.0, "1.49ms"),
            (15_530_000.0, "15.53ms"),
            (301_770_000.0, "301.77ms"),
            (999_990_000.0, "999.99ms"),
            (1_260_000_000.0, "1.26s"),
            (50.9e9, "50.90s"),
            (51e9, "0.85m"),
            (7200e9, "2.00h"),
        ] {
            assert_eq!(time(ns), expected, "{ns}");
        }
        for (number, expected) in [
            (0.0, "0.00"),
            (849.0, "849.00"),
            (850.0, "0.85k"),
            (182_930.0, "182.93k"),
            (1_200_000.0, "1.20M"),
            (6.1e9, "6.10G"),
        ] {
            assert_eq!(metric(number), expected);
        }
        assert_eq!(binary(1.23 * 1024.0 * 1024.0), "1.23M");
        assert_eq!(binary(870.0), "870.00");
        assert_eq!(binary(871.0), "0.85K");
    }

    #[test]
    fn a_whole_duration_has_no_decimals() {
        for (seconds, expected) in [(2.0, "2s"), (30.0, "30s"), (120.0, "2m"), (0.5, "500ms"), (2.5, "2.50s")] {
            assert_eq!(whole_time(seconds), expected);
        }
    }
}
