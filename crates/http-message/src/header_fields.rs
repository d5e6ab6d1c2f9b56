//! `HeaderFields`: the fields of a head as an iterator, and by their names.

use tidegate_http1::Headers;

/// The fields of a request or a response, in their order: an iterator of names and values, which finds fields by name as
/// well. It copies nothing; each search reads the head again.
///
/// A value is bytes, without the white space around it. `Request::header_str` gives it as text, and `Request::header_map`
/// makes a map of the crate `http`.
///
/// ```
/// use tidegate::http::{Request, StatusCode};
///
/// fn authorize(request: Request) -> StatusCode {
///     for (name, value) in request.headers() {
///         println!("{name}: {} bytes", value.len());
///     }
///     match request.headers().get("Authorization") {
///         Some(b"Bearer harbour") => StatusCode::OK,
///         _ => StatusCode::UNAUTHORIZED,
///     }
/// }
/// # let _ = authorize;
/// ```
#[derive(Debug, Clone)]
pub struct HeaderFields<'a>(Headers<'a>);

impl<'a> HeaderFields<'a> {
    /// The fields of a head that a codec has checked.
    #[must_use]
    pub fn new(fields: Headers<'a>) -> Self {
        Self(fields)
    }

    /// The value of the first field of this name. Case does not matter.
    #[must_use]
    pub fn get(&self, name: impl AsRef<str>) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// The values of all fields of this name, in their order. Case does not matter.
    pub fn get_all<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &'a [u8]> + use<'a, N> {
        let is_it = move |found: &[u8]| found.eq_ignore_ascii_case(name.as_ref().as_bytes());
        self.0.clone().filter_map(move |(found, value)| is_it(found).then_some(value))
    }

    /// Whether there is a field of this name. Case does not matter.
    #[must_use]
    pub fn contains_key(&self, name: impl AsRef<str>) -> bool {
        self.get(name).is_some()
    }

    /// The fields once more, from the one that the iterator has reached.
    #[must_use]
    pub fn iter(&self) -> Self {
        self.clone()
    }
}

impl<'a> Iterator for HeaderFields<'a> {
    type Item = (&'a str, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The codec has checked that a name is a token.
        self.0.next().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }
}
