use std::time::Duration;

use super::super::samples::{busy, empty, redis};
use super::*;
use crate::results::{CpuTime, Errors, HeldConnections};

/// The output of `wrk -d2 -c256 -t1 --latency`, and its figures.
#[test]
fn the_table_is_wrks_to_the_column() {
    let mut text = String::new();
    for (name, spread, unit) in [
        ("Latency", (2.97e6, 1.88e6, 15.82e6, 0.7699), units::time as fn(f64) -> String),
        ("Req/Sec", (54_550.0, 15_550.0, 86_380.0, 0.65), units::metric),
        ("Latency", (453_690.0, 523_850.0, 4_370_000.0, 0.8110), units::time),
        ("Req/Sec", (3_680.0, 2_630.0, 11_430.0, 0.8571), units::metric),
        ("Latency", (0.0, 0.0, 0.0, 1.0), units::time),
        ("Req/Sec", (1.0, 0.0, 1.0, 1.0), units::metric),
        ("Latency", (1.26e9, 301.77e6, 1.9e9, 0.5), units::time),
    ] {
        let (mean, stdev, max, within_stdev) = spread;
        spread_line(&mut text, name, &Variation { mean, stdev, max, within_stdev }, unit).expect("a string");
    }
    let expected = "    Latency     2.97ms    1.88ms  15.82ms   76.99%
    Req/Sec    54.55k    15.55k   86.38k    65.00%
    Latency   453.69us  523.85us   4.37ms   81.10%
    Req/Sec     3.68k     2.63k   11.43k    85.71%
    Latency     0.00us    0.00us   0.00us  100.00%
    Req/Sec     1.00      0.00     1.00    100.00%
    Latency     1.26s   301.77ms   1.90s    50.00%
";
    assert_eq!(text, expected);
}

#[test]
fn a_whole_table_reads_as_wrks_with_two_more_percentiles() {
    let mut figures = empty();
    figures.elapsed = Duration::from_millis(2040);
    (figures.requests, figures.good) = (109_459, 109_459);
    figures.bytes_read = 14_554_235;
    figures.latency.record_n(2_530_000, 99).expect("it grows");
    figures.latency.record(15_812_000).expect("it grows");
    figures.thread_rates = vec![54_000.0, 54_000.0];
    let text = table(&figures, true);
    let expected = "Running 2s test @ http://127.0.0.1:8080/plaintext
  1 threads and 256 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.66ms    1.32ms  15.82ms   99.00%
    Req/Sec    54.00k     0.00    54.00k   100.00%
  Latency Distribution
     50%    2.53ms
     75%    2.53ms
     90%    2.53ms
     99%    2.53ms
   99.9%   15.82ms
  99.99%   15.82ms
  109459 requests in 2.04s, 13.88MB read
Requests/sec:  53656.37
Transfer/sec:      6.80MB
";
    assert_eq!(text, expected);
    // Without --latency there is no distribution, and the rest is the same.
    let without = table(&figures, false);
    let (head, rest) = expected.split_once("  Latency Distribution\n").expect("it is there");
    let (_, tail) = rest.split_at(rest.find("  109459").expect("it is there"));
    assert_eq!(without, format!("{head}{tail}"));
}

#[test]
fn errors_are_printed_only_if_there_are_any() {
    assert!(!table(&busy(), true).to_lowercase().contains("error"));
    let mut figures = busy();
    figures.errors = Errors { timeout: 3, status: 7, ..Errors::default() };
    let text = table(&figures, false);
    assert!(text.contains("\n  Socket errors: connect 0, read 0, write 0, timeout 3\n"), "{text}");
    assert!(text.contains("\n  Non-2xx or 3xx responses: 7\nRequests/sec: "), "{text}");
    assert!(!text.contains("Other errors"));
    figures.errors = Errors { closed: 2, ..Errors::default() };
    let text = table(&figures, false);
    assert!(text.ends_with("\nOther errors: length 0, invalid 0, closed 2\n"), "{text}");
    assert!(!text.contains("Socket errors"));
}

#[test]
fn figures_that_wrk_lacks_follow_its_table() {
    let mut figures = empty();
    figures.elapsed = Duration::from_secs(2);
    (figures.requests, figures.good) = (1980, 1980);
    figures.parameters.rate = Some(1000.0);
    figures.parameters.idle = 10_000;
    figures.idle.held = 9_999;
    figures.idle.lost = 1;
    figures.cpu = CpuTime { user: Duration::from_millis(900), system: Duration::from_secs(1) };
    let text = table(&figures, true);
    let (_, below) = text.split_once("Transfer/sec:       0.00B\n").expect("wrk's last line");
    assert_eq!(
        below,
        "Idle connections: held 9999 of 10000, lost 1
Rate: 990.00 of 1000.00 requested (99.0%), 0 due and not sent
Latency counts from when a request was due (corrected for coordinated omission)
The load was the bottleneck: it used 0.95 of 1 core; the server may be faster
"
    );
    // With a little less CPU time the load generator is no bottleneck.
    figures.cpu.user = Duration::from_millis(890);
    assert!(!table(&figures, true).contains("bottleneck"));
    figures.parameters.never_read = true;
    figures.stuck.held = 255;
    assert!(table(&figures, true).contains("\nConnections never read: held 255 of 256, lost 0\n"));
    // The line is printed as well if no connection succeeded.
    figures.idle = HeldConnections::default();
    assert!(table(&figures, true).contains("\nIdle connections: held 0 of 10000, lost 0\n"));
}

#[test]
fn statuses_are_counted_in_a_table() {
    let mut figures = empty();
    (figures.elapsed, figures.requests, figures.good) = (Duration::from_secs(2), 14_004, 4);
    figures.statuses = [(200, 4), (401, 14_000)].into();
    let text = table(&figures, false);
    assert!(text.contains("\n  14004 requests in 2.00s, 0.00B read\nRequests/sec:   7002.00\n"), "{text}");
    let expected = "Status      Responses     Share   A second
  200               4     0.03%       2.00
  401          14,000    99.97%      7.00k
";
    assert!(text.ends_with(expected), "{text}");
    figures.good = 0;
    assert!(table(&figures, false).contains("No successful response arrived"));
}

#[test]
fn replies_of_redis_are_counted_by_command() {
    let text = table(&redis(), false);
    let expected = "Requests are commands of Redis (RESP3)
Command         Replies     Share          Nil       Errors
  get            80,000    80.00%       60,000            0
  incr           20,000    20.00%            0            7
Error replies: 7 WRONGTYPE, for instance 'WRONGTYPE Operation against a key holding the wrong kind of value'
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn no_response_at_all_is_reported_with_the_requests_in_flight() {
    let mut figures = empty();
    let message = |figures: &LoadResults| {
        table(figures, false).lines().find(|line| line.contains("response arrived")).map(str::to_owned)
    };
    assert_eq!(message(&figures).as_deref(), Some("No successful response arrived"));
    (figures.unanswered, figures.connecting) = (16, 1);
    let expected = "No successful response arrived; at the end 16 requests were in flight and 1 connection attempt was in progress";
    assert_eq!(message(&figures).as_deref(), Some(expected));
    // No message if other requests were answered, or if connections never read.
    (figures.requests, figures.good) = (1, 1);
    assert_eq!(message(&figures), None);
    (figures.good, figures.parameters.never_read) = (0, true);
    assert_eq!(message(&figures), None);
}

#[test]
fn empty_figures_are_a_table_of_zeros() {
    let text = table(&empty(), true);
    assert!(text.contains("    Latency     0.00us    0.00us   0.00us    0.00%\n"), "{text}");
    assert!(text.contains("\n  0 requests in 0.00us, 0.00B read\nRequests/sec:      0.00\n"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
