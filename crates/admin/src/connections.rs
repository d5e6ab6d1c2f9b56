//! The list of connections: read from the loops page by page, searched, and sorted.
//!
//! The loops only describe; everything else happens on the loop of the administrative server. A row is searched when
//! its page arrives, so no turn of any loop has more than one page to deal with, except for the sort at the end.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_engine::{ConnectionCursor, ConnectionInfo, ServerHandle, task};

/// The connections to list.
#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    #[serde(default)]
    sort: SortBy,
    /// The smallest first.
    #[serde(default)]
    ascending: bool,
    /// A text that a row has to contain, in any case.
    #[serde(default)]
    search: String,
    #[serde(default = "default_rows")]
    rows: usize,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SortBy {
    #[default]
    Age,
    Peer,
    Protocol,
    State,
    Inbound,
    Outbound,
    Loop,
}

/// The rows of a list, and sums over all connections.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ConnectionRows {
    /// All connections.
    total: usize,
    /// Those that match the search.
    matching: usize,
    /// There are more connections than are listed.
    is_cut: bool,
    /// Loops that hang: their connections, or the rest of them, are missing.
    silent_loops: Vec<usize>,
    inbound: u64,
    outbound: u64,
    by_state: BTreeMap<&'static str, u64>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "loop")]
    event_loop: usize,
    /// As a text: numbers of JavaScript are too short.
    id: String,
    peer: String,
    /// Seconds.
    age: u64,
    protocol: String,
    state: &'static str,
    is_accepted: bool,
    inbound: u64,
    outbound: u64,
}

fn default_rows() -> usize {
    100
}

/// Lists connections. `None` if too many lists are made at the moment.
pub(crate) async fn list(server: &ServerHandle, busy: &Rc<Cell<usize>>, listing: Listing) -> Option<ConnectionRows> {
    let _place = ListPlace::take(busy)?;
    let search = listing.search.to_ascii_lowercase();
    let mut listed = ConnectionRows::default();
    let mut found: Vec<ConnectionInfo> = Vec::new();
    let mut text = String::new();
    for event_loop in 0..server.loops() {
        let mut cursor = Some(ConnectionCursor::default());
        while let Some(at) = cursor {
            let page = match task::timeout(PAGE_TIMEOUT, server.connections(event_loop, at)).await {
                Ok(Some(page)) => page,
                // A loop that has ended has no connections.
                Ok(None) => break,
                Err(_) => {
                    listed.silent_loops.push(event_loop);
                    break;
                }
            };
            for connection in page.connections {
                listed.total += 1;
                listed.inbound += connection.inbound_bytes;
                listed.outbound += connection.outbound_bytes;
                *listed.by_state.entry(connection.state.name()).or_default() += 1;
                if !search.is_empty() && !contains(&connection, &search, &mut text) {
                    continue;
                }
                listed.matching += 1;
                if found.len() < LISTED_MAX {
                    found.push(connection);
                } else {
                    listed.is_cut = true;
                }
            }
            cursor = page.next;
        }
    }
    let rows = listing.rows.min(ROWS_MAX);
    sort(&mut found, &listing, rows);
    listed.rows = found.iter().take(rows).map(Row::of).collect();
    Some(listed)
}

fn contains(connection: &ConnectionInfo, search: &str, text: &mut String) -> bool {
    text.clear();
    let _ = write!(text, "{} {} {}", connection.peer, connection.protocols, connection.state.name());
    text.make_ascii_lowercase();
    text.contains(search)
}

/// Brings the first rows of the order to the front, in order.
fn sort(found: &mut [ConnectionInfo], listing: &Listing, rows: usize) {
    match listing.sort {
        SortBy::Age => sort_by(found, listing, rows, |row| row.age),
        SortBy::Protocol => sort_by(found, listing, rows, |row| row.protocols),
        SortBy::State => sort_by(found, listing, rows, |row| row.state),
        SortBy::Inbound => sort_by(found, listing, rows, |row| row.inbound_bytes),
        SortBy::Outbound => sort_by(found, listing, rows, |row| row.outbound_bytes),
        SortBy::Loop => sort_by(found, listing, rows, |row| row.event_loop),
        SortBy::Peer => sort_by(found, listing, rows, peer_order),
    }
}

/// Addresses by number, then paths by letter.
fn peer_order(row: &ConnectionInfo) -> (Option<SocketAddr>, Option<String>) {
    let address = row.peer.ip();
    (address, address.is_none().then(|| row.peer.to_string()))
}

fn sort_by<K: Ord>(found: &mut [ConnectionInfo], listing: &Listing, rows: usize, key: impl Fn(&ConnectionInfo) -> K) {
    // Rows that are equal otherwise keep their place from one list to the next.
    let of = |row: &ConnectionInfo| (key(row), row.event_loop, row.id);
    let order = |one: &ConnectionInfo, other: &ConnectionInfo| match listing.ascending {
        true => of(one).cmp(&of(other)),
        false => Reverse(of(one)).cmp(&Reverse(of(other))),
    };
    if rows > 0 && rows < found.len() {
        found.select_nth_unstable_by(rows - 1, order);
    }
    let shown = rows.min(found.len());
    found[..shown].sort_unstable_by(order);
}

impl Row {
    fn of(connection: &ConnectionInfo) -> Self {
        let peer = connection.peer.to_string();
        Self {
            event_loop: connection.event_loop,
            id: connection.id.to_string(),
            peer: if peer == "unix:" { "unix (unnamed)".to_owned() } else { peer },
            age: connection.age.as_secs(),
            protocol: connection.protocols.to_string(),
            state: connection.state.name(),
            is_accepted: connection.is_accepted,
            inbound: connection.inbound_bytes,
            outbound: connection.outbound_bytes,
        }
    }
}

/// One of the lists that may be made at once.
struct ListPlace(Rc<Cell<usize>>);

impl ListPlace {
    fn take(busy: &Rc<Cell<usize>>) -> Option<Self> {
        if busy.get() >= LISTS_MAX {
            return None;
        }
        busy.set(busy.get() + 1);
        Some(Self(busy.clone()))
    }
}

impl Drop for ListPlace {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How long a loop may take for a page. It takes a fraction of a millisecond, unless it hangs.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Lists that are made at once: each has the rows of all connections for a moment.
const LISTS_MAX: usize = 4;

/// Connections that one list sorts: 15 MB. It counts the others.
const LISTED_MAX: usize = 100_000;

/// Rows of a list.
const ROWS_MAX: usize = 1000;
