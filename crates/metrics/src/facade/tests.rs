use metrics::{counter, describe_counter, gauge, histogram, with_local_recorder};

use super::*;
use crate::Format;

fn text(recorder: &FacadeRecorder) -> String {
    let mut text = MetricsText::new(Format::Prometheus);
    recorder.write(&mut text);
    text.finish()
}

/// The text after this was recorded.
fn recorded(recorder: &FacadeRecorder, record: impl FnOnce()) -> String {
    with_local_recorder(recorder, record);
    text(recorder)
}

fn refused(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("tidegate_application_series_refused_total "));
    line.expect("it is always written").parse().expect("a number")
}

#[test]
fn each_kind_is_written_with_its_description() {
    let recorder = FacadeRecorder::with(8, &[1.0, 10.0]);
    let text = recorded(&recorder, || {
        describe_counter!("tides_total", "Tides that\ncame in.");
        let tides = counter!("tides_total", "harbour" => "Brest", "coast" => "west");
        tides.increment(2);
        // The order of labels is none.
        counter!("tides_total", "coast" => "west", "harbour" => "Brest").increment(3);
        tides.absolute(4);
        let level = gauge!("level");
        level.set(2.5);
        level.increment(1.0);
        level.decrement(4.0);
        let waves = histogram!("waves");
        for height in [0.5, 1.0, 2.0, 20.0, f64::INFINITY, f64::NAN] {
            waves.record(height);
        }
    });
    let expected = "\
        # HELP level Recorded by the application.\n# TYPE level gauge\nlevel -0.5\n\
        # HELP tides_total Tides that\\ncame in.\n# TYPE tides_total counter\n\
        tides_total{coast=\"west\",harbour=\"Brest\"} 5\n\
        # HELP waves Recorded by the application.\n# TYPE waves histogram\nwaves_bucket{le=\"1\"} 2\n\
        waves_bucket{le=\"10\"} 3\nwaves_bucket{le=\"+Inf\"} 5\nwaves_sum +Inf\nwaves_count 5\n";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(refused(&text), 0);
}

#[test]
fn names_and_values_cannot_break_the_text() {
    let recorder = FacadeRecorder::new();
    let text = recorded(&recorder, || {
        counter!("a.b c{}\n1", "le vel\n" => "x\"} 9\ny\\").increment(1);
        counter!("1", "é" => "é").increment(1);
        counter!("", "" => "").increment(1);
        counter!("tidegate_accepted").increment(1);
        counter!("_total").increment(1);
        histogram!("h", "le" => "1").record(1e9);
        gauge!("g").set(f64::NEG_INFINITY);
        gauge!("n").set(f64::NAN);
    });
    for line in [
        "a_b_c___1_total{le_vel_=\"x\\\"} 9\\ny\\\\\"} 1",
        "_1_total{_=\"é\"} 1",
        "__total{_=\"\"} 1",
        "application_tidegate_accepted_total 1",
        "_total_total 1",
        "h_bucket{le_=\"1\",le=\"+Inf\"} 1",
        "g -Inf",
        "n NaN",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} in\n{text}");
    }
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut apart = names.clone();
    apart.dedup();
    assert_eq!(names, apart, "each family once");
}

#[test]
fn keys_that_become_one_name_are_one_series() {
    let recorder = FacadeRecorder::new();
    let text = recorded(&recorder, || {
        counter!("a.b", "c.d" => "1", "c_d" => "2").increment(1);
        counter!("a_b", "c_d" => "1").increment(1);
    });
    assert!(text.contains("a_b_total{c_d=\"1\"} 2\n"), "{text}");
}

#[test]
fn a_name_has_one_kind() {
    let recorder = FacadeRecorder::new();
    let text = recorded(&recorder, || {
        counter!("a").increment(1);
        gauge!("a").set(7.0);
        histogram!("a").record(7.0);
        gauge!("a_total").set(7.0);
    });
    assert!(text.contains("a_total 1\n") && !text.contains('7'), "{text}");
    assert_eq!(refused(&text), 3);
}

#[test]
fn series_beyond_the_bound_are_counted_together_and_their_memory_has_a_bound() {
    let recorder = FacadeRecorder::with(10, &FACADE_BUCKETS);
    let text = recorded(&recorder, || {
        for peer in 0..1000 {
            counter!("requests", "peer" => peer.to_string()).increment(1);
        }
        // A new label each time: there is no room for all of them, either.
        for name in 0..100 {
            counter!("names", format!("label{name}") => "x").increment(1);
        }
    });
    let samples = text.lines().filter(|line| line.starts_with("requests_total{")).count();
    assert_eq!(samples, 11, "{text}");
    assert!(text.contains("requests_total{peer=\"other\"} 990\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("names_total{")).count(), 9, "{text}");
    assert_eq!(refused(&text), 91);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let recorder = FacadeRecorder::new();
    let long = "é".repeat(100_000);
    let text = recorded(&recorder, || {
        let labels: Vec<_> = (0..100).map(|number| (format!("label{number:03}"), long.clone())).collect();
        counter!(long.clone(), &labels).increment(1);
    });
    assert!(text.len() < 8 * 1024, "{} bytes", text.len());
    assert_eq!(text.matches("label").count(), LABELS_MAX);
    assert!(text.contains(&format!("\"{}\"", "é".repeat(TEXT_BYTES_MAX / 2))));
}

#[test]
fn threads_lose_nothing() {
    let recorder = FacadeRecorder::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                with_local_recorder(&recorder, || {
                    for number in 0..1000 {
                        counter!("c", "n" => (number % 7).to_string()).increment(1);
                        gauge!("g").increment(1.0);
                        histogram!("h").record(1.0);
                    }
                });
            });
        }
    });
    let text = text(&recorder);
    let counted =
        text.lines().filter_map(|line| line.strip_prefix("c_total{")?.split(' ').next_back()?.parse::<u64>().ok());
    assert_eq!(counted.sum::<u64>(), 4000);
    assert!(text.contains("g 4000\n") && text.contains("h_sum 4000\nh_count 4000\n"), "{text}");
}
