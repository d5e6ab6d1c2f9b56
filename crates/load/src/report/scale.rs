//! `Axis`: the range of values of a chart, and its round tick values.

/// One axis of a chart, linear or logarithmic from `from` to `to`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) is_log: bool,
    /// Tick values and their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to the first round value that is at least `max`.
    pub(super) fn from_zero(max: f64, write: impl Fn(f64) -> String) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = round_step(max / TICKS);
        let count = (max / step - TOLERANCE).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|n| f64::from(n) * step).map(|value| (value, write(value))).collect();
        Self { from: 0.0, to: count * step, is_log: false, ticks }
    }

    /// From zero to `to` itself, with round ticks.
    pub(super) fn up_to(to: f64, step: f64, write: impl Fn(f64) -> String) -> Self {
        let to = if to > 0.0 { to } else { 1.0 };
        let count = (to / step + TOLERANCE).floor();
        let ticks = (0..=count as u32).map(|n| f64::from(n) * step).map(|value| (value, write(value))).collect();
        Self { from: 0.0, to, is_log: false, ticks }
    }

    /// Logarithmic from `from` to `to`, both above zero. Ticks are powers of ten, with round values between them if
    /// there is room, and multiples of a round step if the range includes hardly a power of ten.
    pub(super) fn log(from: f64, to: f64, write: impl Fn(f64) -> String) -> Self {
        let decades = (to / from).log10();
        let factors: &[f64] = match decades {
            _ if decades < 2.0 => &[1.0, 2.0, 5.0],
            _ if decades < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = (from.log10().floor() as i32..=to.log10().ceil() as i32).step_by((decades / 7.0).ceil() as usize);
        let mut values: Vec<f64> = powers
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(|value| (from..=to).contains(value))
            .collect();
        if decades < 0.9 {
            let step = round_step((to - from) / TICKS);
            let first = (from / step).ceil();
            values = (0..=2 * TICKS as u32).map(|n| (first + f64::from(n)) * step).take_while(|v| *v <= to).collect();
        }
        let ticks = values.into_iter().map(|value| (value, write(value))).collect();
        Self { from, to, is_log: true, ticks }
    }

    /// The position of a value, between 0 and 1. Values beyond an end are clamped.
    pub(super) fn place(&self, value: f64) -> f64 {
        let at = if self.is_log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        at.clamp(0.0, 1.0)
    }
}

/// The smallest value not below, among 1, 2 and 5 times a power of ten.
pub(super) fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= least * (1.0 - TOLERANCE))
        .unwrap_or(least)
}

/// A round step of time, in seconds.
pub(super) fn round_seconds(least: f64) -> f64 {
    if least <= 10.0 { round_step(least) } else { CLOCK.into_iter().find(|step| *step >= least).unwrap_or(least) }
}

/// The maximum number of steps.
const TICKS: f64 = 5.0;
/// Tolerance for floating-point error, so that three steps of 0.1 do not exceed 0.3.
const TOLERANCE: f64 = 1e-9;
const CLOCK: [f64; 12] = [15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0];

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_greatest_value() {
        for (max, expected) in [
            (87_000.0, &["0", "20000", "40000", "60000", "80000", "100000"][..]),
            (5.0, &["0", "1", "2", "3", "4", "5"]),
            (0.3, &["0", "0.1", "0.2", "0.30000000000000004"]),
            (0.0, &["0", "0.2", "0.4", "0.6000000000000001", "0.8", "1"]),
        ] {
            let axis = Axis::from_zero(max, |value| value.to_string());
            assert_eq!(written(&axis), expected);
            assert!(axis.to >= max && axis.place(max) <= 1.0);
        }
    }

    #[test]
    fn logarithms_have_ticks_at_any_width() {
        for (from, to, expected) in [
            (1.0, 1e9, &["1", "100", "10000", "1000000", "100000000"][..]),
            (1e3, 2e7, &["1000", "10000", "100000", "1000000", "10000000"]),
            (2e3, 1e6, &["3000", "10000", "30000", "100000", "300000", "1000000"]),
            (90.0, 2100.0, &["100", "200", "500", "1000", "2000"]),
            (110.0, 180.0, &["120", "140", "160", "180"]),
        ] {
            assert_eq!(written(&Axis::log(from, to, |value| value.to_string())), expected);
        }
    }

    #[test]
    fn places_lie_between_the_ends() {
        let linear = Axis::up_to(30.0, 10.0, |value| value.to_string());
        assert_eq!(written(&linear), ["0", "10", "20", "30"]);
        assert_eq!([-1.0, 0.0, 15.0, 30.0, 99.0].map(|value| linear.place(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        let log = Axis::log(1.0, 10_000.0, |value| value.to_string());
        assert_eq!([0.0, 1.0, 100.0, 10_000.0, 1e9].map(|value| log.place(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn time_goes_in_steps_of_a_clock() {
        for (least, expected) in [(0.07, 0.1), (3.1, 5.0), (11.0, 15.0), (31.0, 60.0), (700.0, 1200.0), (1e6, 1e6)] {
            assert!((round_seconds(least) / expected - 1.0).abs() < 1e-9, "{least}");
        }
    }
}
