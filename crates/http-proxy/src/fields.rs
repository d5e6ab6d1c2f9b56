//! Which fields of a message are for the next hop, after edits.
//!
//! Fields that are for one connection alone are not passed on (RFC 9110 §7.6.1), nor is any field that `Connection`
//! names. The codec writes the framing anew, so it never depends on another parser's reading.
//! Names that servers read alike are those of `gateway::is_same`.

use std::cmp::Ordering;

use tidegate_http::gateway::is_of_connection;
pub(super) use tidegate_http::gateway::{has_prefix, is_same};
use tidegate_http::{Edit, TemplateValues};
use tidegate_http1::client::ResponseHead;
use tidegate_http1::{Fields, Headers};

/// The names of fields that `Connection` lists, but for those that are never passed on.
///
/// There are at most as many as fields, however many names are listed, and a name is found by a binary search: a head with
/// thousands of names and hundreds of fields costs no product of both.
#[derive(Debug, Default)]
struct Nominated<'a>(Vec<&'a [u8]>);

impl<'a> Nominated<'a> {
    fn of(headers: Headers<'a>) -> Self {
        // Usually there is none, or one with `keep-alive` or `close` alone.
        if headers.clone().all(|(name, value)| !may_nominate(name, value)) {
            return Self::default();
        }
        let is_option = |name: &[u8]| name.is_empty() || name.eq_ignore_ascii_case(b"close") || is_of_connection(name);
        let connection = headers.clone().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
        if connection.clone().all(|(_, value)| list(value).all(is_option)) {
            return Self::default();
        }
        let listed = connection.flat_map(|(_, value)| list(value)).filter(|name| !is_option(name));
        let mut fields = headers.map(|(name, _)| (name, false)).collect::<Vec<_>>();
        fields.sort_unstable_by(|(one, _), (other, _)| compare(one, other));
        fields.dedup_by(|(one, _), (other, _)| compare(one, other).is_eq());
        for name in listed {
            if let Ok(place) = fields.binary_search_by(|(field, _)| compare(field, name)) {
                fields[place].1 = true;
            }
        }
        Self(fields.into_iter().filter(|(_, is_listed)| *is_listed).map(|(name, _)| name).collect())
    }

    fn contains(&self, name: &[u8]) -> bool {
        self.0.binary_search_by(|other| compare(other, name)).is_ok()
    }
}

/// Whether a field is `Connection`, and may name other fields.
fn may_nominate(name: &[u8], value: &[u8]) -> bool {
    name.len() == 10
        && name.eq_ignore_ascii_case(b"connection")
        && !(value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close"))
}

/// The order of names in which `Nominated` searches. Case does not matter.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    let by_bytes = || one.iter().map(u8::to_ascii_lowercase).cmp(other.iter().map(u8::to_ascii_lowercase));
    one.len().cmp(&other.len()).then_with(by_bytes)
}

/// The members of a list, without the white space around them.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a list names a member. Case does not matter.
pub(super) fn has_member(headers: Headers<'_>, name: &[u8], member: &[u8]) -> bool {
    let mut values = headers.filter(|(found, _)| found.eq_ignore_ascii_case(name)).flat_map(|(_, value)| list(value));
    values.any(|found| found.eq_ignore_ascii_case(member))
}

/// The fields of a head that decide how a request is passed on, found in one pass: a search for a field that is not there
/// costs as much as one for a field that is.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Present {
    /// `Connection`, with more than `keep-alive` or `close`.
    pub(super) connection: bool,
    pub(super) date: bool,
    pub(super) te: bool,
    pub(super) upgrade: bool,
    pub(super) via: bool,
}

impl Present {
    pub(super) fn of(headers: Headers<'_>) -> Self {
        let mut present = Self::default();
        for (name, value) in headers {
            let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
            match name.len() {
                2 if is(b"te") => present.te = true,
                3 if is(b"via") => present.via = true,
                4 if is(b"date") => present.date = true,
                7 if is(b"upgrade") => present.upgrade = true,
                10 if may_nominate(name, value) => present.connection = true,
                _ => {}
            }
        }
        present
    }
}

/// The fields of a head that are for the next hop, but for those that `is_dropped` names, with edits. `Upgrade` is not
/// among them.
pub(super) fn passed_on(headers: Headers<'_>, edits: &[Edit], is_dropped: impl Fn(&[u8]) -> bool) -> Fields {
    let nominated = Nominated::of(headers.clone());
    passed_on_but(&nominated, headers, edits, is_dropped)
}

/// The same for a head that may have no `Connection`, as `present` has it.
pub(super) fn end_to_end_fields(
    present: Present,
    headers: Headers<'_>,
    edits: &[Edit],
    is_dropped: impl Fn(&[u8]) -> bool,
) -> Fields {
    let nominated = if present.connection { Nominated::of(headers.clone()) } else { Nominated::default() };
    passed_on_but(&nominated, headers, edits, is_dropped)
}

/// The fields of a response that are for the next hop. `Date` is among them, since `Age` and `Expires` refer to it (RFC 9111
/// §4.2.3), and a proxy does not change it (RFC 9110 §6.6.1).
pub(super) fn passed_on_of_response(head: &ResponseHead, edits: &[Edit], is_dropped: impl Fn(&[u8]) -> bool) -> Fields {
    let nominated = if head.has_connection_options() { Nominated::of(head.headers()) } else { Nominated::default() };
    let mut fields = Fields::new();
    fields.extend_from_response(head.headers(), |name| {
        let is_date = name.eq_ignore_ascii_case(b"date");
        (is_date || !is_of_connection(name)) && is_wanted(name, &nominated, edits, &is_dropped)
    });
    fields
}

fn passed_on_but(
    nominated: &Nominated<'_>,
    headers: Headers<'_>,
    edits: &[Edit],
    is_dropped: impl Fn(&[u8]) -> bool,
) -> Fields {
    let mut fields = Fields::new();
    fields.extend_from(headers, |name| !is_of_connection(name) && is_wanted(name, nominated, edits, &is_dropped));
    fields
}

/// Whether nothing that a message or a setting says keeps a field from being passed on.
#[inline]
fn is_wanted(name: &[u8], nominated: &Nominated<'_>, edits: &[Edit], is_dropped: impl Fn(&[u8]) -> bool) -> bool {
    !(nominated.contains(name) || is_dropped(name) || edits.iter().any(|edit| edit.replaces(name)))
}

/// Adds `Date` of a request, which the codec of a server writes and that of a client does not: a signature of the request
/// may cover it.
pub(super) fn pass_date_on(fields: &mut Fields, mut headers: Headers<'_>, edits: &[Edit]) {
    if edits.iter().any(|edit| edit.replaces(b"date")) {
        return;
    }
    if let Some((_, value)) = headers.find(|(name, _)| name.eq_ignore_ascii_case(b"date")) {
        // The parser has accepted it.
        let _ = fields.push_request_date(value);
    }
}

/// Adds the fields that edits set. `values` makes the values of templates.
#[inline]
pub(super) fn add_edits<'a>(fields: &mut Fields, edits: &[Edit], values: impl Fn() -> TemplateValues<'a>) {
    for edit in edits {
        edit.add_to(fields, &values);
    }
}

/// Adds a field that a parser has accepted. One that cannot be sent is left out.
pub(super) fn push(fields: &mut Fields, name: &[u8], value: &[u8]) {
    if let Ok(name) = std::str::from_utf8(name) {
        let _ = fields.push(name, value);
    }
}

/// The fields after a body that may be passed on, but for those that `is_dropped` names. Edits of a head do not apply
/// to them: a server may add them to the head.
pub(super) fn trailers(trailers: Headers<'_>, edits: &[Edit], is_dropped: impl Fn(&[u8]) -> bool) -> Fields {
    let mut fields = Fields::new();
    fields.extend_from(trailers, |name| {
        let is_edited = edits.iter().any(|edit| edit.is_about(name));
        !(is_of_connection(name) || is_edited || is_dropped(name))
    });
    fields
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How many names were compared.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Lines as a parser has accepted them, which may hold any name.
    fn head(lines: &str) -> tidegate_http1::RequestHead {
        use tidegate_buffer::{Outbound, Pool};
        use tidegate_codec::{Codec, Input, Output, Step, Time};
        let (pool, time) = (Pool::new(), Time::new(std::time::Instant::now(), std::time::SystemTime::UNIX_EPOCH));
        let (mut input, mut queue) = (Input::new(), Outbound::new(&pool));
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        input.append(pool.copy(text.as_bytes()), &pool);
        let limits = tidegate_http1::Limits { head_bytes_max: 60_000, headers_max: 5_000, ..Default::default() };
        let mut server = tidegate_http1::Server::new(std::sync::Arc::new(tidegate_http1::Config::new(limits)));
        match server.decode(&mut input, &mut Output::new(&mut queue, &pool, &time)) {
            Ok(Step::Message(tidegate_http1::Incoming::Head(head))) => head,
            other => panic!("{other:?}"),
        }
    }

    fn pass(lines: &str, edits: &[Edit]) -> String {
        let request = crate::test_request("GET", "/", "");
        let head = head(lines);
        let mut fields = passed_on(head.headers(), edits, |_| false);
        add_edits(&mut fields, edits, || TemplateValues::new(&request));
        String::from_utf8(fields.bytes().to_vec()).unwrap()
    }

    #[test]
    fn fields_of_the_connection_stay_behind() {
        let lines = "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\n\
                     Connection: keep-alive, TE, Upgrade\r\nAccept: */*\r\nExpect: 100-continue\r\nX: 1\r\n";
        assert_eq!(pass(lines, &[]), "Accept: */*\r\nX: 1\r\n");
    }

    #[test]
    fn fields_that_connection_names_stay_behind() {
        let lines =
            "Connection: close, x-Secret\r\nX-Secret: 1\r\nconnection: COOKIE ,,\r\nCookie: a\r\nX-Other: 2\r\n";
        assert_eq!(pass(lines, &[]), "X-Other: 2\r\n");
    }

    #[test]
    fn many_names_in_connection_and_many_fields_cost_no_product() {
        let (names, fields) = (5_000, 1_000);
        let mut lines = String::from("Connection: ");
        (0..names).for_each(|number| lines += &format!("a{number:04},"));
        lines += "A0001,b0002\r\n";
        (0..fields)
            .for_each(|number| lines += &format!("{}{number:04}: 1\r\n", if number % 2 == 0 { 'A' } else { 'c' }));
        COMPARED.set(0);
        let passed = pass(&lines, &[]);
        assert_eq!(passed.lines().count(), fields / 2);
        assert!(passed.lines().all(|line| line.starts_with('c')), "{passed}");
        // The logarithm of the fields, for each name and each field, and to sort the fields.
        let bound = (names + 3 * fields) * 11;
        assert!(COMPARED.get() <= bound, "{} comparisons", COMPARED.get());
    }

    #[test]
    fn a_head_without_nominated_fields_compares_none() {
        COMPARED.set(0);
        assert_eq!(pass("Connection: keep-alive, close\r\nAccept: a\r\n", &[]), "Accept: a\r\n");
        assert_eq!(COMPARED.get(), 0);
    }

    #[test]
    fn a_field_that_a_server_reads_as_one_of_the_connection_is_one() {
        for name in ["Content_Length", "transfer_encoding", "Transfer.Encoding", "KEEP_ALIVE", "Proxy+Connection"] {
            assert_eq!(pass(&format!("{name}: 1\r\nX_Other: 2\r\n"), &[]), "X_Other: 2\r\n", "{name}");
            assert_eq!(Edit::set(name, "1"), Err(tidegate_http1::InvalidField::Reserved), "{name}");
        }
        for name in ["Content0Length", "Transfer-Encoding_", "ContentLength", "Keep--Alive"] {
            assert_eq!(pass(&format!("{name}: 1\r\n"), &[]), format!("{name}: 1\r\n"));
        }
    }

    #[test]
    fn edits_replace_add_and_remove() {
        let edits = [Edit::set("X-A", "new").unwrap(), Edit::add("X-B", "more").unwrap(), Edit::remove("x-c")];
        let lines = "x-a: 1\r\nX_A: 2\r\nX-B: 3\r\nX-C: 4\r\nX-D: 5\r\n";
        assert_eq!(pass(lines, &edits), "X-B: 3\r\nX-D: 5\r\nX-A: new\r\nX-B: more\r\n");
    }

    #[test]
    fn a_list_has_a_member_in_any_line() {
        let head = head("TE: gzip;q=0.5\r\nTE: , Trailers\r\n");
        assert!(has_member(head.headers(), b"te", b"trailers") && !has_member(head.headers(), b"te", b"gzip"));
    }
}
