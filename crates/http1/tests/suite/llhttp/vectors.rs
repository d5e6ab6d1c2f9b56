//! llhttp's cases. They are Markdown: a heading, a comment with the mode, the bytes, and llhttp's log of them: spans of
//! the bytes with their offsets, and events.
//!
//! A log is converted into an [`Account`], messages and a verdict. Our own codecs give the same.

use std::path::{Path, PathBuf};

/// A case, and llhttp's log of it.
#[derive(Debug)]
pub(crate) struct Case {
    /// Folder and file, without the extension: `request/sample`.
    pub(crate) file: String,
    pub(crate) title: String,
    /// Which parser, and how lenient it is: `request`, or `response-lenient-all`.
    mode: String,
    /// How the test controls llhttp: it pauses, or declares that there is no body.
    guidance: Option<&'static str>,
    pub(crate) wire: Vec<u8>,
    pub(crate) account: Account,
    /// Requests without a host, by their index in the account, and their starts.
    hostless: Vec<(usize, usize)>,
    protocol: Vec<u8>,
}

/// A parser's result for some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// The messages whose head is complete.
    pub(crate) messages: Vec<Message>,
    pub(crate) verdict: Verdict,
}

/// A message: its start line in three parts, its fields, and as much of its body as has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Method, target and version, or version, status and reason.
    pub(crate) start: [String; 3],
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_complete: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The bytes are valid, as far as they go.
    Accepted,
    /// The bytes are wrong.
    Refused,
    /// The messages are valid; bytes after the last one are left, because that one closes the connection.
    Closed,
    /// The messages are valid; this many bytes after them belong to another protocol.
    Switched(usize),
    /// The bytes end within a message, and no more follow.
    CutOff,
}

/// Why a case cannot be compared.
pub(crate) const LENIENT: &str = "a lenient mode: this codec has none";
pub(crate) const PAUSING: &str = "pauses on a callback: this codec stops between messages by itself";
pub(crate) const GUIDED: &str = "its user declares that there is no body: RFC 9112 §6.3 leaves no such choice";
pub(crate) const OTHER_PROTOCOL: &str = "not HTTP: RTSP or ICE";

impl Case {
    pub(crate) fn name(&self) -> String {
        format!("{}: {}", self.file, self.title)
    }

    pub(crate) fn is_request(&self) -> bool {
        self.mode.starts_with("request")
    }

    /// Whether the peer stops sending after the bytes.
    pub(crate) fn finishes(&self) -> bool {
        self.mode.ends_with("-finish")
    }

    /// Why the case cannot be compared, if it cannot.
    pub(crate) fn exclusion(&self) -> Option<&'static str> {
        if self.mode.contains("-lenient") {
            return Some(LENIENT);
        }
        let is_other = self.account.verdict == Verdict::Accepted && matches!(&*self.protocol, b"RTSP" | b"ICE");
        self.guidance.or(is_other.then_some(OTHER_PROTOCOL))
    }

    /// The bytes, and llhttp's account of them, with a `Host` in each HTTP/1.1 request that has none: llhttp does not
    /// require it.
    pub(crate) fn with_hosts(&self) -> (Vec<u8>, Account) {
        let (mut wire, mut account) = (self.wire.clone(), self.account.clone());
        for &(message, begin) in self.hostless.iter().rev() {
            let line = wire[begin..].split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
            let line_end = begin + line.len();
            let complete = account.messages.get_mut(message);
            // The field may come after the place where llhttp stops.
            let follows = wire[line_end..].to_ascii_lowercase().windows(5).any(|bytes| bytes == b"\nhost");
            if !line.ends_with(b" HTTP/1.1\r\n") || (complete.is_none() && follows) {
                continue;
            }
            wire.splice(line_end..line_end, *b"Host: put.in\r\n");
            if let Some(complete) = complete {
                complete.headers.insert(0, ("Host".into(), "put.in".into()));
            }
        }
        (wire, account)
    }
}

/// All cases in a folder of llhttp's tests; `None` where there is no such folder.
pub(crate) fn cases(folder: &str) -> Option<Vec<Case>> {
    let path = root()?.join(folder);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let name = format!("{folder}/{}", file.file_stem().expect("a file").to_string_lossy());
        let text = std::fs::read_to_string(&file).expect("a readable file");
        cases.extend(sections(&text).filter_map(|(title, section)| case(&name, title, section)));
    }
    Some(cases)
}

/// The cases of targets: title, target, and the log; `None` where there are none.
pub(crate) fn targets() -> Option<Vec<(String, Vec<u8>, String)>> {
    let text = std::fs::read_to_string(root()?.join("url.md")).expect("a readable file");
    let target = |(title, section): (&str, &str)| {
        let (target, log) = (fenced(section, "url")?, fenced(section, "log")?);
        Some((title.to_owned(), unescape(target), log.to_owned()))
    };
    Some(sections(&text).filter_map(target).collect())
}

/// Where llhttp's tests lie, beside the repository.
fn root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/llhttp/test");
    if root.is_dir() {
        return Some(root);
    }
    let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
    assert!(!required, "there is no {}", root.display());
    println!("skipped: there is no {}", root.display());
    None
}

/// Headings, and the text below each.
fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n##").skip(1).map(|section| {
        let section = section.trim_start_matches('#');
        let (title, rest) = section.split_once('\n').unwrap_or((section, ""));
        (title.trim(), rest)
    })
}

fn case(file: &str, title: &str, section: &str) -> Option<Case> {
    let (bytes, log) = (fenced(section, "http")?, fenced(section, "log")?);
    let meta = section.split_once("<!-- meta=").and_then(|(_, rest)| rest.split_once("-->")).expect("a mode").0;
    let mode = meta.split_once("\"type\":").and_then(|(_, rest)| rest.split('"').nth(1)).expect("a mode").to_owned();
    let guidance = match meta {
        _ if meta.contains("\"pause\"") => Some(PAUSING),
        _ if meta.contains("\"skipBody\"") => Some(GUIDED),
        _ => None,
    };
    let wire = unescape(bytes);
    let mut reader = Reader { wire: &wire, is_request: mode.starts_with("request"), ..Reader::default() };
    for line in log.lines() {
        reader.line(line).unwrap_or_else(|| panic!("{file}: {title}: {line:?}"));
    }
    let Reader { messages, verdict, hostless, protocol, .. } = reader;
    let account = Account { messages, verdict: verdict.unwrap_or(Verdict::Accepted) };
    Some(Case { file: file.into(), title: title.into(), mode, guidance, account, hostless, protocol, wire })
}

fn fenced<'t>(section: &'t str, language: &str) -> Option<&'t str> {
    let (_, rest) = section.split_once(&format!("```{language}\n"))?;
    rest.split_once("\n```").map(|(block, _)| block)
}

/// Line ends are CR LF, a line end after a backslash is none, and there are a few escapes.
fn unescape(block: &str) -> Vec<u8> {
    let text = block.replace("\\\n", "").replace('\n', "\r\n");
    let text = text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("\\f", "\x0c");
    let text = numbers(&text, "\\x", 16, 2);
    numbers(&text, "\\", 8, 3).into_bytes()
}

/// Replaces numbers, which have at most this many digits after a prefix, by their characters.
fn numbers(text: &str, prefix: &str, radix: u32, digits_max: usize) -> String {
    let mut parts = text.split(prefix);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.chars().take(digits_max).take_while(|digit| digit.is_digit(radix)).count();
        match u32::from_str_radix(&part[..digits], radix).ok().and_then(char::from_u32) {
            Some(character) => out.push(character),
            None => out.push_str(prefix),
        }
        out.push_str(&part[digits..]);
    }
    out
}

/// Reads a log, line by line.
#[derive(Debug, Default)]
struct Reader<'w> {
    wire: &'w [u8],
    is_request: bool,
    /// The parts of a message that come in spans, as far as they were read: kind and bytes.
    spans: Vec<(String, Vec<u8>)>,
    headers: Vec<(String, String)>,
    protocol: Vec<u8>,
    messages: Vec<Message>,
    hostless: Vec<(usize, usize)>,
    verdict: Option<Verdict>,
}

impl Reader<'_> {
    /// `None` if the line is not understood, or contradicts the bytes.
    fn line(&mut self, line: &str) -> Option<()> {
        let (offset, event) = line.strip_prefix("off=")?.split_once(' ')?;
        if let Some(code) = event.strip_prefix("finish=") {
            // Safe, safe but for a body that ends with the connection, and unsafe.
            self.verdict = Some(if matches!(code, "0" | "1") { Verdict::Accepted } else { Verdict::CutOff });
            return Some(());
        }
        let offset: usize = offset.parse().ok()?;
        if let Some(span) = event.strip_prefix("len=") {
            return self.span(offset, span);
        }
        match event {
            "message begin" => {
                self.spans.clear();
                self.headers.clear();
                self.hostless.push((self.messages.len(), offset));
            }
            "protocol complete" => self.protocol = self.part("protocol").into_bytes(),
            "header_value complete" => {
                let field = (self.take("header_field"), self.take("header_value").trim_matches([' ', '\t']).to_owned());
                if field.0.eq_ignore_ascii_case("host") {
                    self.hostless.retain(|(message, _)| *message != self.messages.len());
                }
                self.headers.push(field);
            }
            "message complete" => {
                let message = self.messages.last_mut()?;
                message.is_complete = true;
            }
            _ if event.starts_with("headers complete ") => self.head(event)?,
            _ if event.starts_with("error code=") => {
                self.verdict = Some(match event.strip_prefix("error code=")?.split(' ').next()? {
                    "5" => Verdict::Closed,
                    "22" => Verdict::Switched(self.wire.len() - offset),
                    _ => Verdict::Refused,
                });
            }
            "reset" | "pause" | "skip body" | "chunk complete" => {}
            _ if event.starts_with("chunk header len=") || event.ends_with(" complete") => {}
            _ => return None,
        }
        Some(())
    }

    /// A piece of something. Line ends are logged by name.
    fn span(&mut self, offset: usize, span: &str) -> Option<()> {
        let (length, rest) = span.split_once(" span[")?;
        let (kind, text) = rest.split_once("]=")?;
        let bytes = self.wire.get(offset..offset + length.parse::<usize>().ok()?)?;
        let logged = match text {
            "cr" => b"\r".to_vec(),
            "lf" => b"\n".to_vec(),
            _ => unescape(text.strip_prefix('"')?.strip_suffix('"')?),
        };
        if logged != bytes {
            return None;
        }
        if kind == "body" {
            self.messages.last_mut()?.body.extend_from_slice(bytes);
            return Some(());
        }
        match self.spans.iter_mut().find(|(known, _)| known == kind) {
            Some((_, known)) => known.extend_from_slice(bytes),
            None => self.spans.push((kind.to_owned(), bytes.to_vec())),
        }
        Some(())
    }

    fn head(&mut self, event: &str) -> Option<()> {
        let version = self.take("version");
        let start = if self.is_request {
            [self.take("method"), self.take("url"), version]
        } else {
            let status = event.split_once("status=")?.1.split(' ').next()?.to_owned();
            [version, status, self.take("status")]
        };
        // From here on fields are trailers.
        let headers = std::mem::take(&mut self.headers);
        self.messages.push(Message { start, headers, ..Message::default() });
        Some(())
    }

    fn part(&self, kind: &str) -> String {
        let bytes = self.spans.iter().find(|(known, _)| known == kind).map(|(_, bytes)| bytes.as_slice());
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    }

    fn take(&mut self, kind: &str) -> String {
        let part = self.part(kind);
        self.spans.retain(|(known, _)| known != kind);
        part
    }
}
