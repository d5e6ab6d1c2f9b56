//! `FileService`: from a request to the response that has the file.
//!
//! It runs within the dispatch of the connection: opening a file and asking for its length are system calls that the
//! loop waits for. Nothing else is done for most requests: the fields of a response are kept while the file stays the
//! same.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;
use tidegate_buffer::FileRegion;
use tidegate_engine::task;
use tidegate_http_message::Body;
use tidegate_http_message::negotiate::Encoding;
use tidegate_http1::{Fields, Method, Status};

use super::conditional::{FileConditions, Validators, Verdict};
use super::entries::{Entries, Entry, Known};
use super::listing::{Shown, listing};
use super::multipart::{content_range, multipart};
use super::open::{FolderEntry, Root};
use super::options::FileOptions;
use super::path::FilePath;
use super::range::Ranges;
use crate::request::Request;
use crate::response::Response;

/// The files of a folder, on one loop.
pub(super) struct FileService {
    root: Arc<Root>,
    options: Arc<FileOptions>,
    entries: Rc<Entries>,
}

/// The target of a name.
enum Found {
    File(Rc<Entry>, Arc<File>),
    Folder,
    Absent,
}

impl FileService {
    pub(super) fn new(root: Arc<Root>, options: Arc<FileOptions>) -> Self {
        Self { root, options, entries: Rc::new(Entries::new()) }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        match request.head().method() {
            Method::Get | Method::Head => {}
            Method::Options => return Response::with(Status::NO_CONTENT).fields(ALLOW),
            _ => return Response::of_error(Status::METHOD_NOT_ALLOWED).fields(ALLOW),
        }
        match self.find(request) {
            Ok(response) => response,
            Err(error) => Response::of_error(status_of(&error, request.path())),
        }
    }

    fn find(&self, request: &Request) -> io::Result<Response> {
        let options = &*self.options;
        let Some(path) = FilePath::decode(below(request), options.dot_files) else { return Ok(not_found()) };
        let conditions = FileConditions::of(request);
        if path.is_folder {
            return self.folder(request, &path.name, &conditions);
        }
        Ok(match self.representation(&path.name, &conditions)? {
            Ok(Found::File(entry, file)) => self.file(request, &conditions, &entry, file),
            Ok(Found::Folder) => redirect(request),
            Ok(Found::Absent) => not_found(),
            Err(response) => response,
        })
    }

    /// The index of a folder, or its listing.
    fn folder(&self, request: &Request, name: &str, conditions: &FileConditions<'_>) -> io::Result<Response> {
        let options = &*self.options;
        if !request.path().ends_with('/') {
            // It is the root, without its slash.
            return Ok(redirect(request));
        }
        if let Some(index) = &options.index {
            let index = if name.is_empty() { index.clone() } else { format!("{name}/{index}") };
            match self.representation(&index, conditions)? {
                Ok(Found::File(entry, file)) => return Ok(self.file(request, conditions, &entry, file)),
                Ok(Found::Folder | Found::Absent) => {}
                Err(response) => return Ok(response),
            }
        }
        if !options.listing {
            return Ok(not_found());
        }
        let FolderEntry::Folder(folder) = self.root.open(name)? else { return Ok(not_found()) };
        let shown = Shown { dot_files: options.dot_files, links: self.root.has_links() };
        let title = tidegate_http_message::percent::decode(request.path()).unwrap_or_default().into_owned();
        let mut response = listing(folder, title, name.is_empty(), shown);
        response.fields = NO_SNIFF;
        Ok(response)
    }

    /// The representation of a file that the peer prefers; a response if the peer accepts none.
    fn representation(&self, name: &str, conditions: &FileConditions<'_>) -> io::Result<Result<Found, Response>> {
        if !self.options.precompressed {
            return self.open(name, Encoding::Identity).map(Ok);
        }
        let mut offered = VARIANTS;
        let mut count = offered.len();
        // Every round tries one, and leaves it out afterwards.
        while let Some(encoding) = conditions.encodings.preferred(&offered[..count]) {
            match self.open(name, encoding)? {
                found @ Found::File(..) => return Ok(Ok(found)),
                found if encoding == Encoding::Identity => return Ok(Ok(found)),
                Found::Folder | Found::Absent => {
                    let place = offered[..count].iter().position(|&other| other == encoding).unwrap_or(0);
                    offered.copy_within(place + 1..count, place);
                    count -= 1;
                }
            }
        }
        // The peer refuses the existing variants; or there is none.
        Ok(match self.open(name, Encoding::Identity)? {
            Found::File(..) => Err(Response::of_error(Status::NOT_ACCEPTABLE).fields(VARY)),
            other => Ok(other),
        })
    }

    fn open(&self, name: &str, encoding: Encoding) -> io::Result<Found> {
        let (root, options) = (&self.root, &*self.options);
        let now = task::now();
        let known = match self.entries.known(name, encoding, now) {
            Known::Absent => return Ok(Found::Absent),
            Known::Open(entry, file) => return Ok(Found::File(entry, file)),
            Known::Entry(entry) => Some(entry),
            Known::Nothing => None,
        };
        let variant;
        let file_name = match suffix(encoding) {
            "" => name,
            suffix => {
                variant = format!("{name}{suffix}");
                &variant
            }
        };
        let opened = match root.open(file_name) {
            Err(error) if is_out_of_descriptors(&error) && self.entries.close_files() => root.open(file_name),
            other => other,
        };
        Ok(match opened? {
            FolderEntry::File(file, identity) => {
                let file = Arc::new(file);
                let entry = match known {
                    Some(entry) if entry.identity == identity => entry,
                    _ => {
                        let entry = Rc::new(Entry::new(name, encoding, identity, options));
                        self.entries.insert(name, encoding, entry.clone());
                        entry
                    }
                };
                if let Some(keep_open) = options.keep_open {
                    self.entries.keep(&entry, &file, keep_open);
                }
                Found::File(entry, file)
            }
            FolderEntry::Folder(_) if encoding == Encoding::Identity => Found::Folder,
            FolderEntry::Folder(_) | FolderEntry::Absent => {
                self.entries.insert_absent(name, encoding, now);
                Found::Absent
            }
        })
    }

    /// The response to a request for a file, after its conditions and ranges.
    fn file(&self, request: &Request, conditions: &FileConditions<'_>, entry: &Entry, file: Arc<File>) -> Response {
        let options = &*self.options;
        let validators = Validators { etag: &entry.etag, modified: entry.modified };
        match conditions.verdict(&validators) {
            Verdict::Send => {}
            Verdict::NotModified => return Response::with(Status::NOT_MODIFIED).fields(entry.validating(options)),
            Verdict::Failed => {
                return Response::of_error(Status::PRECONDITION_FAILED).fields(entry.validating(options));
            }
        }
        let length = entry.identity.length;
        if let Some(range) = conditions.range
            && request.head().method() == Method::Get
            && conditions.range_applies(&validators, SystemTime::now())
        {
            match Ranges::parse(range, length) {
                Ranges::Whole => {}
                Ranges::One(range) => {
                    let mut response = Response::with(Status::PARTIAL_CONTENT).fields(entry.fields.clone());
                    add(&mut response, "Content-Range", &content_range(&range, length));
                    return response.body(region(file, range));
                }
                Ranges::Several(ranges) => {
                    let (body, content_type) = multipart(&file, length, &entry.content_type, ranges);
                    let mut response =
                        Response::with(Status::PARTIAL_CONTENT).fields(entry.representing(&content_type, options));
                    response.body = body;
                    return response;
                }
                Ranges::Unsatisfiable => {
                    let mut response =
                        Response::of_error(Status::RANGE_NOT_SATISFIABLE).fields(entry.validating(options));
                    add(&mut response, "Content-Range", &format!("bytes */{length}"));
                    return response;
                }
            }
        }
        let response = Response::new().fields(entry.fields.clone());
        if length == 0 { response } else { response.body(region(file, 0..length)) }
    }
}

/// The part of the path that names the file: the match of the route's last parameter if that matches the whole rest;
/// the root if the route has no such parameter; the whole path without a route.
fn below(request: &Request) -> &str {
    match request.route() {
        None => request.path().strip_prefix('/').unwrap_or(request.path()),
        Some(pattern)
            if pattern.ends_with('}') && pattern.rfind('{').is_some_and(|at| pattern[at..].starts_with("{*")) =>
        {
            request.parameters().last().map_or("", |(_, value)| value)
        }
        Some(_) => "",
    }
}

fn region(file: Arc<File>, range: Range<u64>) -> Body {
    let length = range.end - range.start;
    if length <= READ_BYTES_MAX {
        let mut bytes = vec![0; length as usize];
        // If that fails, sending it fails as well, and ends the connection.
        if file.read_exact_at(&mut bytes, range.start).is_ok() {
            return bytes.into();
        }
    }
    FileRegion { file, offset: range.start, length }.into()
}

/// To the same path with a slash at its end. A browser takes two slashes at the beginning, or its reading of a
/// backslash, for a host: such a path names nothing.
fn redirect(request: &Request) -> Response {
    let path = request.path();
    if matches!(path.as_bytes(), [b'/', b'/' | b'\\', ..]) || !path.starts_with('/') {
        return not_found();
    }
    let mut target = format!("{path}/");
    if let Some(query) = request.query() {
        target.push('?');
        target.push_str(query);
    }
    match Response::with(Status::PERMANENT_REDIRECT).header("Location", &target) {
        Ok(response) => response,
        Err(_) => not_found(),
    }
}

fn not_found() -> Response {
    Response::of_error(Status::NOT_FOUND)
}

/// Adds a field whose value is made here.
fn add(response: &mut Response, name: &str, value: &str) {
    response.fields.push(name, value).expect("digits are a value");
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn status_of(error: &io::Error, path: &str) -> Status {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Status::FORBIDDEN,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => {
            tracing::warn!("the file for {path:?} cannot be opened now: {error}; the response is a 503");
            Status::SERVICE_UNAVAILABLE
        }
        _ => {
            tracing::error!("the file for {path:?} cannot be opened: {error}; the response is a 500");
            Status::INTERNAL_SERVER_ERROR
        }
    }
}

/// The suffix of a precompressed variant's name.
const fn suffix(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Brotli => ".br",
        Encoding::Zstd => ".zst",
        Encoding::Gzip => ".gz",
        _ => "",
    }
}

/// A file up to this length is read, and sent in one call with its head: that costs less than a call of `sendfile`.
const READ_BYTES_MAX: u64 = 16 * 1024;

/// The variants that may lie beside a file, and the file itself, the best first.
const VARIANTS: [Encoding; 4] = [Encoding::Brotli, Encoding::Zstd, Encoding::Gzip, Encoding::Identity];

const ALLOW: Fields = Fields::from_static("Allow: GET, HEAD, OPTIONS\r\n");

const VARY: Fields = Fields::from_static("Vary: Accept-Encoding\r\n");

const NO_SNIFF: Fields = Fields::from_static("X-Content-Type-Options: nosniff\r\n");
