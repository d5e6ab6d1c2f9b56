//! `Variation`: mean, deviation and maximum, as in wrk's `Thread Stats`.

use hdrhistogram::Histogram;

use super::share;

/// The variation of a sample. An empty sample has zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Variation {
    pub(super) mean: f64,
    pub(super) stdev: f64,
    pub(super) max: f64,
    /// The share of values within one standard deviation of the mean, between 0 and 1.
    pub(super) within_stdev: f64,
}

impl Variation {
    pub(super) fn of_histogram(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let (mean, stdev) = (histogram.mean(), histogram.stdev());
        // The cast to an integer saturates at zero, as values do.
        let within = histogram.count_between((mean - stdev).ceil() as u64, (mean + stdev).floor() as u64);
        let within_stdev = share(within as f64, histogram.len() as f64);
        Self { mean, stdev, max: histogram.max() as f64, within_stdev }
    }

    /// Of a sample, so the divisor of the deviation is one less than the count, as in wrk.
    pub(super) fn of_sample(sample: &[f64]) -> Self {
        let count = sample.len() as f64;
        let mean = share(sample.iter().sum(), count);
        let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = share(squares, count - 1.0).sqrt();
        let within = sample.iter().filter(|&&value| (value - mean).abs() <= stdev).count();
        let max = sample.iter().copied().fold(0.0, f64::max);
        Self { mean, stdev, max, within_stdev: share(within as f64, count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_sample_has_a_variation_of_zeros() {
        assert_eq!(Variation::of_sample(&[]), Variation::default());
        assert_eq!(Variation::of_histogram(&Histogram::new(3).expect("three digits")), Variation::default());
    }

    #[test]
    fn a_single_value_is_its_own_mean() {
        let expected = Variation { mean: 1000.0, stdev: 0.0, max: 1000.0, within_stdev: 1.0 };
        assert_eq!(Variation::of_sample(&[1000.0]), expected);
        let mut histogram = Histogram::new(3).expect("three digits");
        histogram.record(1000).expect("it grows");
        assert_eq!(Variation::of_histogram(&histogram), expected);
        histogram.record_n(5_000_000_000, 7).expect("it grows");
        assert!(Variation::of_histogram(&histogram).within_stdev > 0.8);
    }

    #[test]
    fn within_is_the_share_of_values_at_most_one_deviation_away() {
        let spread = Variation::of_sample(&[10.0, 10.0, 10.0, 10.0, 60.0]);
        assert_eq!((spread.mean, spread.max, spread.within_stdev), (20.0, 60.0, 0.8));
        assert!((spread.stdev - 22.36).abs() < 0.01);
        let mut histogram = Histogram::new(3).expect("three digits");
        for value in [10, 10, 10, 10, 60] {
            histogram.record(value).expect("it grows");
        }
        let spread = Variation::of_histogram(&histogram);
        assert_eq!((spread.mean, spread.max, spread.within_stdev), (20.0, 60.0, 0.8));
        assert_eq!(spread.stdev, 20.0);
    }

    #[test]
    fn equal_values_are_all_within_one_deviation() {
        // Wide buckets: the mean of a bucket may differ from all its values.
        for value in [1, 4095, 1_234_567, 98_765_432_101] {
            let mut histogram = Histogram::new(2).expect("two digits");
            histogram.record_n(value, 1000).expect("it grows");
            assert_eq!(Variation::of_histogram(&histogram).within_stdev, 1.0, "{value}");
        }
    }
}
