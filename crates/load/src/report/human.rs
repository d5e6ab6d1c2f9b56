//! Formats figures for people: three significant digits, a space before the unit, and thousands separators.

/// A duration in nanoseconds.
pub(super) fn time(ns: f64) -> String {
    let (amount, unit) = match ns {
        _ if ns < 999.5 => (ns, "ns"),
        _ if ns < 999.5e3 => (ns / 1e3, "µs"),
        _ if ns < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if ns <= 0.0 { "0".to_owned() } else { format!("{} {unit}", digits(amount)) }
}

/// Seconds on a time axis: in minutes if the whole axis has many minutes.
pub(super) fn clock(seconds: f64, whole: f64) -> String {
    if whole > 300.0 { format!("{} min", trimmed(seconds / 60.0)) } else { format!("{} s", trimmed(seconds)) }
}

/// A count, with thousands separators.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number, in thousands, millions or billions if it is that large.
pub(super) fn short(number: f64) -> String {
    match number {
        _ if number < 999.5 => digits(number),
        _ if number < 999.5e3 => format!("{}k", digits(number / 1e3)),
        _ if number < 999.5e6 => format!("{}M", digits(number / 1e6)),
        _ => format!("{}G", digits(number / 1e9)),
    }
}

/// A number of bytes, in binary units.
pub(super) fn bytes(number: f64) -> String {
    let (mut amount, mut unit) = (number, "bytes");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if amount < 1000.0 {
            break;
        }
        (amount, unit) = (amount / 1024.0, next);
    }
    format!("{} {unit}", digits(amount))
}

/// A share between 0 and 1.
pub(super) fn percent(share: f64) -> String {
    format!("{}%", digits(share * 100.0))
}

/// Three significant digits, without trailing zeros.
fn digits(number: f64) -> String {
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    let text = format!("{number:.decimals$}");
    if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A round number, with as many decimals as it needs.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        for (ns, expected) in [
            (0.0, "0"),
            (640.0, "640 ns"),
            (1_000.0, "1 µs"),
            (151_230.0, "151 µs"),
            (999_400.0, "999 µs"),
            (999_600.0, "1 ms"),
            (1_494_000.0, "1.49 ms"),
            (15_530_000.0, "15.5 ms"),
            (301_770_000.0, "302 ms"),
            (1.26e9, "1.26 s"),
            (120e9, "120 s"),
        ] {
            assert_eq!(time(ns), expected, "{ns}");
        }
        assert_eq!([clock(0.5, 2.0), clock(30.0, 120.0), clock(900.0, 3600.0)], ["0.5 s", "30 s", "15 min"]);
    }

    #[test]
    fn numbers_are_short_and_counts_are_whole() {
        assert_eq!([0, 7, 999, 1_000, 3_040_101].map(count), ["0", "7", "999", "1,000", "3,040,101"]);
        assert_eq!(
            [0.0, 512.0, 20_000.0, 86_940.0, 3_040_101.0, 2.5e9].map(short),
            ["0", "512", "20k", "86.9k", "3.04M", "2.5G"]
        );
        assert_eq!([0.0, 13.0, 1024.0, 11_534_336.0].map(bytes), ["0 bytes", "13 bytes", "1 KiB", "11 MiB"]);
        assert_eq!([0.0, 0.05, 0.7699, 1.0].map(percent), ["0%", "5%", "77%", "100%"]);
    }
}
