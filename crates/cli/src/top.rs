//! `tidegate top`: the figures of a running server in the terminal, every second.
//!
//! It asks the administrative server for `/dashboard/snapshot`, and computes rates from two of them. `draw` is free of
//! I/O.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tidegate::Address;

/// The flags of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// The address of --admin of the server
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// Print the figures once, of one second, and exit
    #[arg(long)]
    once: bool,
}

/// Shows the figures until Ctrl-C, or until the server does not respond.
pub(crate) fn run(options: &TopOptions) -> Result<(), Box<dyn Error>> {
    let has_screen = io::stdout().is_terminal() && !options.once;
    let mut before = snapshot(&options.address)?;
    loop {
        std::thread::sleep(INTERVAL);
        let now = snapshot(&options.address)?;
        let text = draw(&before, &now);
        let mut screen = String::new();
        if has_screen {
            screen.push_str(TO_THE_TOP);
            // The rest of each line may have been longer before.
            screen.push_str(&text.replace('\n', "\x1b[K\n"));
            screen.push_str("\x1b[J");
        } else {
            screen.push_str(&text);
        }
        if io::stdout().write_all(screen.as_bytes()).and_then(|()| io::stdout().flush()).is_err() || options.once {
            return Ok(());
        }
        before = now;
    }
}

/// The figures at this moment.
fn snapshot(address: &Address) -> Result<Value, Box<dyn Error>> {
    let failed =
        |error: io::Error| format!("{address}: {error}: is that the address of --admin, and does the server run?");
    let response = request(address).map_err(failed)?;
    let body =
        response.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200 ")).map(|(_, body)| body);
    let wrong = || format!("{address}: this is not the administrative server of tidegate");
    let value: Value = serde_json::from_str(body.ok_or_else(wrong)?).map_err(|_| wrong())?;
    if value["loops"].is_array() { Ok(value) } else { Err(wrong().into()) }
}

fn request(address: &Address) -> io::Result<String> {
    // The server refuses names that it does not know, so the request names an address.
    let host = address.ip().map_or_else(|| "localhost".to_owned(), |address| address.to_string());
    let text = format!("GET /dashboard/snapshot HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    match address.ip() {
        Some(address) => {
            let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &text)
        }
        None => {
            let path = address.to_string();
            let stream = UnixStream::connect(path.strip_prefix("unix:").unwrap_or(&path))?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &text)
        }
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// The figures as text, with rates between two moments.
fn draw(before: &Value, now: &Value) -> String {
    let seconds = (number(&now["at"]) - number(&before["at"])).max(1.0) / 1000.0;
    let mut text = String::new();
    draw_server(&mut text, now);
    draw_rates(&mut text, (before, now), seconds);
    draw_loops(&mut text, (before, now), seconds);
    draw_closed(&mut text, now);
    draw_routes(&mut text, (before, now), seconds);
    draw_upstreams(&mut text, (before, now), seconds);
    text
}

fn draw_server(text: &mut String, now: &Value) {
    let addresses =
        now["listeners"].as_array().into_iter().flatten().flat_map(|one| one["addresses"].as_array()).flatten();
    let addresses: Vec<_> = addresses.filter_map(Value::as_str).collect();
    let state = if now["is_draining"] == true { "draining" } else { "live" };
    let _ = writeln!(
        text,
        "tidegate {} on {} ({}), {state}\n",
        plain(&now["version"]),
        addresses.join(" "),
        plain(&now["backend"])
    );
}

fn draw_rates(text: &mut String, (before, now): (&Value, &Value), seconds: f64) {
    let total = |value: &Value, name: &str| loops(value).iter().map(|one| number(&one[name])).sum::<f64>();
    let rate = |name: &str| (total(now, name) - total(before, name)).max(0.0) / seconds;
    let statuses = difference(&before["requests"]["statuses"], &now["requests"]["statuses"]);
    let latency = difference(&before["requests"]["latency"], &now["requests"]["latency"]);
    let bounds: Vec<f64> = now["requests"]["bounds_us"].as_array().into_iter().flatten().map(number).collect();
    let _ = writeln!(
        text,
        "requests/s {:>10}   4xx/s {:>8}   5xx/s {:>8}   p50 {:>8}   p90 {:>8}   p99 {:>8}",
        count(statuses.iter().sum::<f64>() / seconds),
        count(statuses.get(3).copied().unwrap_or_default() / seconds),
        count(statuses.get(4).copied().unwrap_or_default() / seconds),
        micros(quantile(&latency, &bounds, 0.5)),
        micros(quantile(&latency, &bounds, 0.9)),
        micros(quantile(&latency, &bounds, 0.99)),
    );
    let _ = writeln!(
        text,
        "received/s {:>10}   sent/s {:>10}   accepted/s {:>6}   handshakes/s {:>6}\n",
        bytes(rate("received")),
        bytes(rate("sent")),
        count(rate("accepted")),
        count(rate("handshakes")),
    );
}

fn draw_loops(text: &mut String, (before, now): (&Value, &Value), seconds: f64) {
    let _ = writeln!(text, "loop  connections  streams  busy  turns/s   longest  stalls  memory beside budget");
    for (number_of_loop, one) in loops(now).iter().enumerate() {
        let was = |name: &str| loops(before).get(number_of_loop).map_or(0.0, |before| number(&before[name]));
        let busy = (number(&one["busy_us"]) - was("busy_us")) / 1e4 / seconds;
        let budget = one["budget"].as_f64().map_or_else(|| "no budget".to_owned(), bytes);
        let _ = writeln!(
            text,
            "{number_of_loop:>4}  {:>11}  {:>7}  {busy:>3.0}%  {:>7}  {:>8}  {:>6}  {} of {budget}",
            count(number(&one["connections"])),
            count(number(&one["streams"])),
            count((number(&one["turns"]) - was("turns")) / seconds),
            micros(Some(number(&one["longest_turn_us"]))),
            count(number(&one["stalls"])),
            bytes(number(&one["memory"])),
        );
    }
}

fn draw_closed(text: &mut String, now: &Value) {
    let closed = now["closed"].as_object().into_iter().flatten().filter(|(_, count)| number(count) > 0.0);
    let closed: Vec<_> = closed
        .map(|(cause, total)| format!("{} {}", plain(&Value::from(cause.as_str())), count(number(total))))
        .collect();
    let _ = writeln!(text, "\nclosed: {}", if closed.is_empty() { "none".to_owned() } else { closed.join(", ") });
}

fn draw_routes(text: &mut String, (before, now): (&Value, &Value), seconds: f64) {
    let _ = writeln!(text, "\nmethod   total      a second   route");
    for route in now["requests"]["routes"].as_array().into_iter().flatten().take(ROUTES_SHOWN_MAX) {
        let same = |one: &&Value| one["route"] == route["route"] && one["method"] == route["method"];
        let was = before["requests"]["routes"].as_array().into_iter().flatten().find(same);
        let sum = |value: &Value| value.as_array().into_iter().flatten().map(number).sum::<f64>();
        let total = sum(&route["statuses"]);
        let a_second = was.map_or(0.0, |was| (total - sum(&was["statuses"])) / seconds);
        let name = if route["route"] == "" { "(no route)".to_owned() } else { plain(&route["route"]) };
        let _ = writeln!(text, "{:<7}  {:<9}  {:<9}  {name}", plain(&route["method"]), count(total), count(a_second));
    }
}

/// The upstreams of a gateway, if the server is one.
fn draw_upstreams(text: &mut String, (before, now): (&Value, &Value), seconds: f64) {
    let rows = |snapshot: &Value| snapshot["upstreams"]["rows"].as_array().cloned().unwrap_or_default();
    let (before, bounds) = (rows(before), &now["requests"]["bounds_us"]);
    let bounds: Vec<f64> = bounds.as_array().into_iter().flatten().map(number).collect();
    let rows = rows(now);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nstate     in progress  a second  failures  retries       p50       p99  upstream");
    for row in rows.iter().take(ROUTES_SHOWN_MAX) {
        let was = before.iter().find(|one| one["name"] == row["name"] && one["group"] == row["group"]);
        let a_second = was.map_or(0.0, |was| (number(&row["attempts"]) - number(&was["attempts"])).max(0.0) / seconds);
        // The sum of no numbers would be -0.
        let failures = row["failures"].as_object().into_iter().flatten().fold(0.0, |sum, (_, more)| sum + number(more));
        let latency = difference(was.map_or(&Value::Null, |was| &was["latency"]), &row["latency"]);
        let _ = writeln!(
            text,
            "{:<8}  {:>11}  {:>8}  {:>8}  {:>7}  {:>8}  {:>8}  {} {}",
            plain(&row["state"]),
            count(number(&row["in_progress"])),
            count(a_second),
            count(failures),
            count(number(&row["retries"])),
            micros(quantile(&latency, &bounds, 0.5)),
            micros(quantile(&latency, &bounds, 0.99)),
            plain(&row["group"]),
            plain(&row["name"]),
        );
    }
}

fn loops(snapshot: &Value) -> &[Value] {
    snapshot["loops"].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// A text without control sequences for the terminal.
fn plain(value: &Value) -> String {
    value.as_str().unwrap_or_default().chars().filter(|letter| !letter.is_control()).collect()
}

fn difference(before: &Value, now: &Value) -> Vec<f64> {
    let before = before.as_array().map_or(&[][..], Vec::as_slice);
    let now = now.as_array().into_iter().flatten().enumerate();
    now.map(|(at, value)| (number(value) - before.get(at).map_or(0.0, number)).max(0.0)).collect()
}

/// The time below which this share of events lies, in microseconds.
fn quantile(buckets: &[f64], bounds: &[f64], share: f64) -> Option<f64> {
    let total: f64 = buckets.iter().sum();
    let mut left = share * total;
    for (at, &count) in buckets.iter().enumerate() {
        if count > 0.0 && count >= left {
            let low = at.checked_sub(1).and_then(|before| bounds.get(before)).copied().unwrap_or_default();
            let high = bounds.get(at).copied().unwrap_or(low * 2.0);
            return Some(low + (high - low) * (left / count));
        }
        left -= count;
    }
    None
}

fn count(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{:.1}G", value / 1e9),
        _ if value >= 1e6 => format!("{:.1}M", value / 1e6),
        _ if value >= 1e5 => format!("{:.0}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

fn bytes(mut value: f64) -> String {
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{value:.*} {unit}", usize::from(unit != "B" && value < 100.0));
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

fn micros(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 1e3 => format!("{value:.0} us"),
        Some(value) if value < 1e6 => format!("{:.1} ms", value / 1e3),
        Some(value) => format!("{:.1} s", value / 1e6),
    }
}

/// How often the figures are shown.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the server may take to respond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A response is shorter.
const RESPONSE_BYTES_MAX: u64 = 4 * 1024 * 1024;

const ROUTES_SHOWN_MAX: usize = 10;

/// Moves the cursor of a terminal.
const TO_THE_TOP: &str = "\x1b[H";

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at: u64, requests: u64) -> Value {
        let mut latency = vec![0; 42];
        latency[3] = requests;
        serde_json::json!({
            "at": at, "version": "0.1.0", "backend": "epoll", "is_draining": false,
            "listeners": [{ "addresses": ["127.0.0.1:1"] }],
            "loops": [{ "connections": 7, "turns": requests, "busy_us": at * 500, "memory": 2048, "budget": 4096 }],
            "closed": { "done": 3, "shed": 0 },
            "requests": {
                "statuses": [0, requests, 0, 0, 0], "latency": latency, "bounds_us": [16, 24, 32, 48],
                "routes": [{ "route": "/\u{1b}[31mred", "method": "GET", "statuses": [0, requests, 0, 0, 0] }],
            },
            "upstreams": { "rows": [{
                "group": "app", "name": "http://10.0.0.1:80", "state": "ejected", "in_progress": 3,
                "attempts": requests, "retries": 1, "failures": { "connect": 2, "body": 3 }, "latency": [0, requests],
            }] },
        })
    }

    #[test]
    fn rates_are_those_between_two_snapshots() {
        let text = draw(&snapshot(1000, 100), &snapshot(3000, 700));
        for expected in
            ["requests/s        300", "p50    40 us", "closed: done 3\n", "50%", "2.0 KiB of 4.0 KiB", "(epoll), live"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn upstreams_are_shown_with_their_state_and_their_failures() {
        let text = draw(&snapshot(1000, 100), &snapshot(3000, 700));
        let row = text.lines().find(|line| line.contains("10.0.0.1")).expect(&text);
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["ejected", "3", "300", "5", "1", "20", "us", "24", "us", "app", "http://10.0.0.1:80"]);
    }

    #[test]
    fn a_text_of_the_server_cannot_control_the_terminal() {
        let text = draw(&snapshot(0, 0), &snapshot(1000, 1));
        assert!(text.contains("/[31mred") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn a_snapshot_without_figures_breaks_nothing() {
        draw(&Value::Null, &Value::Null);
        draw(
            &serde_json::json!({ "loops": [1, "x"], "requests": 7 }),
            &serde_json::json!({ "loops": [{}], "closed": [] }),
        );
    }
}
