//! The live table: the figures so far, on a terminal that has room for it.

use super::{errors_by_kind, human};
use crate::counters::LiveFigures;

/// The lines of the table, without the bar above them.
pub(super) fn lines(figures: &LiveFigures, requests: u64, rate: f64) -> String {
    let mut lines = vec![
        row("Requests", &[("so far", human::count(requests)), ("a second", human::short(rate))]),
        match figures.latency.as_ref().filter(|latency| !latency.is_empty()) {
            Some(latency) => {
                let at = |quantile| human::time(latency.value_at_quantile(quantile) as f64);
                let max = human::time(latency.max() as f64);
                row("Latency", &[("50%", at(0.5)), ("90%", at(0.9)), ("99%", at(0.99)), ("max", max)])
            }
            None => row("Latency", &[("no response", "yet".to_owned())]),
        },
    ];
    // The most frequent ones have room.
    let mut statuses: Vec<_> = figures.statuses.iter().collect();
    statuses.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(**count));
    statuses.truncate(COLUMNS);
    statuses.sort_unstable();
    if !statuses.is_empty() {
        let names: Vec<_> = statuses.into_iter().map(|(status, count)| (status.to_string(), *count)).collect();
        let cells: Vec<_> = names.iter().map(|(name, count)| (&**name, human::count(*count))).collect();
        lines.push(row("Status", &cells));
    }
    let mut errors: Vec<_> = errors_by_kind(&figures.errors).into_iter().filter(|(_, count)| *count > 0).collect();
    errors.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<_> = errors.into_iter().take(COLUMNS).map(|(name, count)| (name, human::count(count))).collect();
    lines.push(if shown.is_empty() { row("Errors", &[("", "none".to_owned())]) } else { row("Errors", &shown) });
    lines.join("\n")
}

fn row(name: &str, cells: &[(&str, String)]) -> String {
    let cells: String =
        cells.iter().map(|(name, value)| format!("{:<15} ", format!("{name} {value}").trim_start())).collect();
    format!("{name:<10}{}", cells.trim_end())
}

/// The most cells of a row.
const COLUMNS: usize = 4;

/// The columns and rows of a terminal with room for the table.
pub(super) const ROOM: (u16, u16) = (76, 8);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::samples::busy;
    use super::*;
    use crate::results::Errors;

    #[test]
    fn the_table_has_the_figures_so_far_and_fits() {
        let busy = busy();
        let statuses = BTreeMap::from([(200, 12_000_000), (404, 7), (500, 9), (503, 1), (418, 2)]);
        let errors = Errors { status: 19, timeout: 3, ..Errors::default() };
        let figures = LiveFigures { latency: Some(busy.latency), statuses, errors };
        let text = lines(&figures, 12_000_019, 87_000.0);
        let expected = "Requests  so far 12,000,019 a second 87k\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\nStatus    200 12,000,000  404 7           418 2           500 9\n"), "{text}");
        assert!(text.ends_with("\nErrors    status 19       timeout 3"), "{text}");
        assert!(
            text.lines().count() < usize::from(ROOM.1) && text.lines().all(|line| line.len() < usize::from(ROOM.0))
        );
        let empty = lines(&LiveFigures::default(), 0, 0.0);
        assert_eq!(empty, "Requests  so far 0        a second 0\nLatency   no response yet\nErrors    none");
    }
}
