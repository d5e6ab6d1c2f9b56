//! The cost of finding a head's parts: `heads [SCANNER [HEAD [ROUNDS [DEPTH]]]]`.
//!
//! The scanner is `best`, `avx2`, `ssse3`, `portable` or `httparse`, the head `plaintext`, `short` or `browser`, and
//! as many as the depth lie behind each other. All find the method, the target and its check, the version, and the
//! places of all fields, in memory that is not cleared before.
//!
//! Under `valgrind --tool=callgrind`, two runs with different numbers of rounds give instructions per head.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

use tidegate_scan::{Field, Level, Scanner, Stop, Task, run};

const PLAINTEXT: &[u8] = b"GET /plaintext HTTP/1.1\r\n\
    Host: localhost\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Connection: keep-alive\r\n\r\n";

const BROWSER: &[u8] = include_bytes!("../tests/suite/support/browser.txt");

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let argument = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let number = |index, default| argument(index, default).parse::<usize>().expect("a number");
    let (scanner, rounds, depth) = (argument(0, "best"), number(2, "100000"), number(3, "16"));
    let head = match argument(1, "plaintext") {
        "plaintext" => PLAINTEXT.to_vec(),
        "short" => b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n".to_vec(),
        "browser" => [b"GET /products/overview?category=books&page=3 HTTP/1.1\r\n", BROWSER].concat(),
        other => panic!("no head is called {other}"),
    };
    let wire = head.repeat(depth);
    let start = Instant::now();
    let found = match scanner {
        "httparse" => scan(&wire, rounds, by_httparse),
        "best" => scan(&wire, rounds, |bytes| by_scanner(|task| run(task), bytes)),
        name => {
            let level = Level::all().into_iter().find(|level| level.name() == name).expect("a level of this processor");
            scan(&wire, rounds, |bytes| by_scanner(|task| level.run(task), bytes))
        }
    };
    let nanoseconds = start.elapsed().as_nanos() as f64 / (rounds * depth) as f64;
    println!("{scanner}: {} heads, {found} fields, {nanoseconds:.1} ns each", rounds * depth);
}

/// Scans all heads of `wire`, so many times, and counts their fields.
fn scan(wire: &[u8], rounds: usize, one: impl Fn(&[u8]) -> (usize, usize)) -> usize {
    let mut count = 0;
    for _ in 0..rounds {
        let mut rest = black_box(wire);
        while !rest.is_empty() {
            let (length, fields) = one(rest);
            rest = &rest[length..];
            count += fields;
        }
    }
    count
}

#[inline(never)]
fn by_httparse(bytes: &[u8]) -> (usize, usize) {
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(length)) = request.parse_with_uninit_headers(bytes, &mut headers) else {
        panic!("a whole head");
    };
    black_box((request.method, request.path, request.version, &*request.headers));
    (length, request.headers.len())
}

#[inline(never)]
fn by_scanner<'b>(run: impl FnOnce(Head<'b, '_>) -> Option<(usize, usize)>, bytes: &'b [u8]) -> (usize, usize) {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let head = Head { bytes, fields: &mut fields };
    let found = run(head).expect("a whole head");
    black_box(&fields);
    found
}

/// A head, and room for the places of its fields.
struct Head<'b, 'f> {
    bytes: &'b [u8],
    fields: &'f mut [MaybeUninit<Field<'b>>; FIELDS_MAX],
}

impl Task for Head<'_, '_> {
    type Output = Option<(usize, usize)>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Option<(usize, usize)> {
        let Self { bytes, fields } = self;
        // Compared as a whole: a pattern would compare byte by byte.
        let is_get = bytes.first_chunk() == Some(b"GET ");
        let method_end = if is_get { 3 } else { scanner.token_end(bytes, 0) };
        let path_end = scanner.path_end(bytes, method_end + 1);
        let has_query = bytes.get(path_end) == Some(&b'?');
        let target_end = if has_query { scanner.target_end(bytes, path_end) } else { path_end };
        let is_line = method_end > 0 && bytes.get(method_end) == Some(&b' ') && target_end > method_end + 1;
        if !is_line || bytes.get(target_end..)?.first_chunk() != Some(b" HTTP/1.1\r\n") {
            return None;
        }
        black_box((method_end, path_end, target_end));
        let mut count = 0;
        let end = scanner.fields(bytes, target_end + 11, |field| {
            fields.get_mut(count).ok_or(TooMany)?.write(field);
            count += 1;
            Ok(())
        });
        match end {
            Ok(end) => Some((end, count)),
            Err(Stop::Refused(TooMany) | Stop::Partial | Stop::Flawed(_)) => None,
        }
    }
}

struct TooMany;

const FIELDS_MAX: usize = 64;
