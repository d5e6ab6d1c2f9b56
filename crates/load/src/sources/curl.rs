//! `--curl 'curl …'`: the request of a line of curl, as browsers copy it. A flag that changes the request and is not known
//! here is refused by its name.

use std::path::Path;

use super::request_source::{RequestSource, bytes_of, is_of_connection};
use crate::url::{BadUrl, Url};
use crate::words;

/// The requests of a line of curl, one for each URL.
#[derive(Debug)]
pub(super) struct CurlRequests {
    pub(super) sources: Vec<RequestSource>,
    /// `-k`.
    pub(super) is_insecure: bool,
    /// `--http2`.
    pub(super) is_http2: bool,
    /// `--http3`.
    pub(super) is_http3: bool,
}

/// The line as far as it is parsed.
#[derive(Debug, Default)]
struct CurlLine {
    urls: Vec<String>,
    method: Option<String>,
    headers: Vec<String>,
    body: Option<Vec<u8>>,
    content_type: Option<&'static str>,
    is_get: bool,
    is_head: bool,
    is_insecure: bool,
    is_http2: bool,
    is_http3: bool,
}

/// Parses a line of curl.
///
/// # Errors
/// The flag or the part that cannot be used.
pub(super) fn parse(line: &str) -> Result<CurlRequests, String> {
    let mut words = words::split(line)?.into_iter().peekable();
    words.next_if(|word| word == "curl");
    let mut parsed = CurlLine::default();
    while let Some(word) = words.next() {
        let mut value = |flag: &str| words.next().ok_or_else(|| format!("{flag} has no value"));
        if let Some(long) = word.strip_prefix("--") {
            match long.split_once('=') {
                Some((name, given)) => parsed.flag(&format!("--{name}"), &mut |_| Ok(given.to_owned()))?,
                None => parsed.flag(&word, &mut value)?,
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            parsed.short(letters, &mut value)?;
        } else {
            parsed.urls.push(word);
        }
    }
    parsed.finish()
}

type TakeValue<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

impl CurlLine {
    /// Letters behind one `-`: flags, and behind the first one with a value, that value.
    fn short(&mut self, letters: &str, value: TakeValue<'_>) -> Result<(), String> {
        for (at, letter) in letters.char_indices() {
            let flag = format!("-{letter}");
            let rest = &letters[at + letter.len_utf8()..];
            let mut took_rest = false;
            self.flag(&flag, &mut |flag| {
                took_rest = true;
                if rest.is_empty() { value(flag) } else { Ok(rest.to_owned()) }
            })?;
            if took_rest {
                break;
            }
        }
        Ok(())
    }

    fn flag(&mut self, flag: &str, value: TakeValue<'_>) -> Result<(), String> {
        match flag {
            "-X" | "--request" => self.method = Some(value(flag)?),
            "-H" | "--header" => self.headers.push(value(flag)?),
            "-A" | "--user-agent" => self.headers.push(format!("User-Agent: {}", value(flag)?)),
            "-e" | "--referer" => self.headers.push(format!("Referer: {}", value(flag)?)),
            "-b" | "--cookie" => self.headers.push(cookie(&value(flag)?)?),
            "-u" | "--user" => self.headers.push(format!("Authorization: Basic {}", base64(value(flag)?.as_bytes()))),
            "--oauth2-bearer" => self.headers.push(format!("Authorization: Bearer {}", value(flag)?)),
            "-d" | "--data" | "--data-ascii" => self.data(&value(flag)?, true, FORM)?,
            "--data-binary" => self.data(&value(flag)?, false, FORM)?,
            "--data-raw" => self.add(value(flag)?.into_bytes(), FORM),
            "--json" => self.data(&value(flag)?, false, JSON)?,
            "--compressed" => self.headers.push("Accept-Encoding: deflate, gzip, br, zstd".to_owned()),
            "--url" => self.urls.push(value(flag)?),
            "-G" | "--get" => self.is_get = true,
            "-I" | "--head" => self.is_head = true,
            "-k" | "--insecure" => self.is_insecure = true,
            "--http2" | "--http2-prior-knowledge" => self.is_http2 = true,
            "--http3" | "--http3-only" => self.is_http3 = true,
            // Flags of the output and of the connection: the load has its own.
            "-s" | "-S" | "-v" | "-i" | "-f" | "-N" | "-0" | "--silent" | "--show-error" | "--verbose"
            | "--include" | "--fail" | "--http1.1" | "--no-buffer" | "--globoff" | "-g" | "--path-as-is" => {}
            "-o" | "-w" | "-m" | "--output" | "--write-out" | "--max-time" | "--connect-timeout" => drop(value(flag)?),
            _ => {
                return Err(format!(
                    "the flag {flag} of curl is not known here: leave it out, or write the request by flags of load"
                ));
            }
        }
        Ok(())
    }

    /// The value of `-d`: `@FILE` is a file, without its line breaks if `is_text`.
    fn data(&mut self, text: &str, is_text: bool, content_type: &'static str) -> Result<(), String> {
        let Some(path) = text.strip_prefix('@') else {
            self.add(text.as_bytes().to_vec(), content_type);
            return Ok(());
        };
        let mut bytes = bytes_of(Path::new(path))?;
        if is_text {
            bytes.retain(|byte| !b"\r\n\0".contains(byte));
        }
        self.add(bytes, content_type);
        Ok(())
    }

    fn add(&mut self, bytes: Vec<u8>, content_type: &'static str) {
        self.content_type = Some(content_type);
        match &mut self.body {
            Some(body) if content_type == FORM => {
                body.push(b'&');
                body.extend(bytes);
            }
            Some(body) => body.extend(bytes),
            None => self.body = Some(bytes),
        }
    }

    fn finish(mut self) -> Result<CurlRequests, String> {
        if self.urls.is_empty() {
            return Err("the line has no URL".into());
        }
        self.headers.retain(|header| !is_of_connection(header.split(':').next().unwrap_or_default().trim()));
        let is_given = |headers: &[String], name: &str| {
            headers
                .iter()
                .any(|header| header.split(':').next().is_some_and(|other| other.trim().eq_ignore_ascii_case(name)))
        };
        let query = if self.is_get { self.body.take() } else { None };
        if let Some(content_type) = self.content_type.filter(|_| self.body.is_some()) {
            if !is_given(&self.headers, "content-type") {
                self.headers.push(format!("Content-Type: {content_type}"));
            }
            if content_type == JSON && !is_given(&self.headers, "accept") {
                self.headers.push(format!("Accept: {JSON}"));
            }
        }
        let usual = match (&self.body, self.is_head) {
            (_, true) => "HEAD",
            (Some(_), false) => "POST",
            (None, false) => "GET",
        };
        let method = self.method.unwrap_or_else(|| usual.to_owned());
        let source = |text: &String| {
            let mut text = if text.contains("://") { text.clone() } else { format!("http://{text}") };
            if let Some(query) = &query {
                text.push(if text.contains('?') { '&' } else { '?' });
                text.push_str(&String::from_utf8_lossy(query));
            }
            let url: Url = text.parse().map_err(|error: BadUrl| error.to_string())?;
            let (method, headers, body) = (method.clone(), self.headers.clone(), self.body.clone().unwrap_or_default());
            Ok(RequestSource { method, url, headers, body })
        };
        let sources = self.urls.iter().map(source).collect::<Result<_, String>>()?;
        Ok(CurlRequests { sources, is_insecure: self.is_insecure, is_http2: self.is_http2, is_http3: self.is_http3 })
    }
}

fn cookie(text: &str) -> Result<String, String> {
    if text.contains('=') {
        Ok(format!("Cookie: {text}"))
    } else {
        Err(format!("-b {text} is a file of cookies: write them as 'name=value'"))
    }
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let group = a << 16 | b << 8 | c;
        for at in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * at) & 63) as usize];
            text.push(if at > chunk.len() { '=' } else { digit.into() });
        }
    }
    text
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> RequestSource {
        parse(line).expect(line).sources.remove(0)
    }

    #[test]
    fn the_line_that_a_browser_copies_is_a_request() {
        let request =
            one("curl 'https://a.example/b?c=d' \\\n  -X 'PUT' \\\n  -H 'accept: */*' -H 'connection: close' \\\n  \
             -b 'k=v; l=w' \\\n  --data-raw $'{\"it\\'s\": 1}' \\\n  --compressed --insecure");
        assert_eq!((&*request.method, request.url.target()), ("PUT", "/b?c=d"));
        assert_eq!(
            request.headers,
            [
                "accept: */*",
                "Cookie: k=v; l=w",
                "Accept-Encoding: deflate, gzip, br, zstd",
                "Content-Type: application/x-www-form-urlencoded"
            ]
        );
        assert_eq!(request.body, b"{\"it's\": 1}");
    }

    #[test]
    fn flags_are_read_as_curl_reads_them() {
        for (line, method, target, body, header) in [
            ("curl a/b", "GET", "/b", "", ""),
            ("a:81/b", "GET", "/b", "", ""),
            ("curl -sSvI http://a/", "HEAD", "/", "", ""),
            ("curl -d x=1 -d y=2 http://a/", "POST", "/", "x=1&y=2", "Content-Type: application/x-www-form-urlencoded"),
            ("curl -Gd x=1 --data y http://a/?z", "GET", "/?z&x=1&y", "", ""),
            ("curl --json '{}' http://a/", "POST", "/", "{}", "Content-Type: application/jsonAccept: application/json"),
            ("curl -XDELETE --url=http://a/ -H'A: b' -o /dev/null", "DELETE", "/", "", "A: b"),
            ("curl -u me:secret http://a/", "GET", "/", "", "Authorization: Basic bWU6c2VjcmV0"),
            ("curl -d '' http://a/", "POST", "/", "", "Content-Type: application/x-www-form-urlencoded"),
        ] {
            let request = one(line);
            assert_eq!((&*request.method, request.url.target()), (method, target), "{line}");
            assert_eq!(
                (&*String::from_utf8_lossy(&request.body), &*request.headers.concat()),
                (body, header),
                "{line}"
            );
        }
        let request = parse("curl -k --http2 https://a/ https://a/b").expect("it is right");
        assert!(request.is_insecure && request.is_http2 && request.sources.len() == 2);
    }

    #[test]
    fn an_unknown_flag_or_an_open_quote_is_named() {
        for (line, part) in [
            ("curl 'http://a/", "does not end"),
            ("curl \"http://a/", "does not end"),
            ("curl --upload-file x http://a/", "--upload-file"),
            ("curl -sZ http://a/", "-Z"),
            ("curl -L http://a/", "-L"),
            ("curl -F a=b http://a/", "-F"),
            ("curl http://a/ -H", "-H has no value"),
            ("curl -b jar.txt http://a/", "file of cookies"),
            ("curl -d @/nowhere http://a/", "/nowhere"),
            ("curl ftp://a/", "ftp://a/"),
            ("curl", "no URL"),
            ("", "no URL"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn base64_is_padded() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
