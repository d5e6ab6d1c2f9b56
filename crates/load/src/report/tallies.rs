//! Responses by status, and replies of Redis by command: a table in the terminal, and one in the page.

use std::fmt::{self, Write};

use super::{human, per_second, share, units};
use crate::results::{LoadResults, Protocol};

/// The table of statuses or commands; nothing if there is none.
pub(super) fn write(text: &mut String, figures: &LoadResults) -> fmt::Result {
    match figures.parameters.protocol {
        Protocol::Redis => commands(text, figures),
        Protocol::Http | Protocol::WebSocket => statuses(text, figures),
    }
}

fn statuses(text: &mut String, figures: &LoadResults) -> fmt::Result {
    if figures.statuses.is_empty() {
        return Ok(());
    }
    let all: u64 = figures.statuses.values().sum();
    let seconds = figures.elapsed.as_secs_f64();
    writeln!(text, "Status      Responses     Share   A second")?;
    for (status, count) in &figures.statuses {
        let percent = 100.0 * share(*count as f64, all as f64);
        let rate = units::metric(per_second(*count, seconds));
        writeln!(text, "  {status:<6}{:>13}{percent:9.2}%{rate:>11}", human::count(*count))?;
    }
    Ok(())
}

fn commands(text: &mut String, figures: &LoadResults) -> fmt::Result {
    let redis = &figures.redis;
    let all: u64 = redis.commands.iter().map(|command| command.replies).sum();
    let longest = redis.commands.iter().map(|command| command.name.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(8, NAME_CHARS_MAX);
    writeln!(text, "{:<width$}        Replies     Share          Nil       Errors", "Command")?;
    for command in &redis.commands {
        let percent = 100.0 * share(command.replies as f64, all as f64);
        let [replies, nulls, errors] = [command.replies, command.nulls, command.errors].map(human::count);
        let name: String = command.name.chars().take(width).collect();
        writeln!(text, "  {name:<width$}{replies:>13}{percent:9.2}%{nulls:>13}{errors:>13}")?;
    }
    for (word, (count, example)) in &redis.errors.0 {
        writeln!(text, "Error replies: {} {word}, for instance '{example}'", human::count(*count))?;
    }
    Ok(())
}

/// Which deliveries came, if messages were published.
pub(super) fn deliveries(figures: &LoadResults) -> Option<String> {
    let (parameters, redis) = (&figures.parameters, &figures.redis);
    if parameters.subscribers == 0 {
        return None;
    }
    let published: u64 = redis.commands.iter().map(|command| command.replies - command.errors).sum();
    Some(format!(
        "{} messages were published to {} subscribers; the server counted {} receivers, and {} deliveries came",
        human::count(published),
        human::count(parameters.subscribers as u64),
        human::count(redis.receivers),
        human::count(figures.requests)
    ))
}

/// The version of the protocol that the connections of Redis speak.
pub(super) fn version(figures: &LoadResults) -> &'static str {
    match (figures.redis.resp3, figures.redis.resp2) {
        (0, 0) => "no connection was opened",
        (_, 0) => "RESP3",
        (0, _) => "RESP2, since the server refused HELLO",
        _ => "RESP3, and RESP2 on some connections, where the server refused HELLO",
    }
}

/// Rows for the page: the responses by status, or the replies by command.
pub(super) fn rows(figures: &LoadResults) -> Vec<(String, String)> {
    let with_share =
        |count: u64, all: u64| format!("{} ({})", human::count(count), human::percent(share(count as f64, all as f64)));
    if figures.parameters.protocol == Protocol::Redis {
        let all: u64 = figures.redis.commands.iter().map(|command| command.replies).sum();
        let rows = figures.redis.commands.iter().flat_map(|command| {
            let mut rows = vec![(command.name.clone(), with_share(command.replies, all))];
            for (name, count) in [("nil", command.nulls), ("errors", command.errors)] {
                if count > 0 {
                    rows.push((format!("{}: {name}", command.name), human::count(count)));
                }
            }
            rows
        });
        return rows.collect();
    }
    let all: u64 = figures.statuses.values().sum();
    figures.statuses.iter().map(|(status, count)| (status.to_string(), with_share(*count, all))).collect()
}

/// The longest name of a command in the table.
const NAME_CHARS_MAX: usize = 40;
