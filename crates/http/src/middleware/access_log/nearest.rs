//! The known name that a mistyped one is nearest to.

/// The name of `known` that takes the fewest edits, if these are few for its length.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.map(|known| (distance(name.as_bytes(), known.as_bytes()), known));
    let (edits, nearest) = distances.min_by_key(|(edits, _)| *edits)?;
    (edits <= nearest.len().div_ceil(3)).then_some(nearest)
}

/// How many bytes have to be inserted, removed, replaced or swapped with their neighbour.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let one = &one[..one.len().min(NAME_BYTES_MAX)];
    let mut before_last = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, byte) in one.iter().enumerate() {
        let mut line = vec![row + 1; other.len() + 1];
        for (column, known) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(byte != known);
            line[column + 1] = replaced.min(last[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && *byte == other[column - 1] && one[row - 1] == *known {
                line[column + 1] = line[column + 1].min(before_last[column - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, line);
    }
    last[other.len()]
}

/// Bytes of a mistyped name that are compared.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_recognised_and_a_strange_one_is_not() {
        let known = || ["client.ip", "client.port", "request.host", "upstream.address"].into_iter();
        for (name, expected) in [
            ("client.pi", Some("client.ip")),
            ("clientip", Some("client.ip")),
            ("upstream.adress", Some("upstream.address")),
            ("request_host", Some("request.host")),
            ("moon", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known()), expected, "{name}");
        }
    }
}
