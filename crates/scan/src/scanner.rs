//! `Scanner`: what can be looked for, whatever looks for it.

use crate::field::{Field, Stop};
use crate::level::run;

/// Finds things in the bytes of a head, with the instructions of one [`Level`](crate::Level).
///
/// A scanner proves that the processor has these instructions: there is none where it does not. Positions are indices
/// of `bytes`. What is found does not depend on the scanner, and nothing beyond `bytes` is read.
pub trait Scanner: Copy + sealed::Sealed {
    /// Tells `visit` of each field from `at` on, in order, and gives where the head ends, behind its empty line.
    ///
    /// # Errors
    ///
    /// [`Stop`]: the first thing that is wrong, the end of `bytes` included, after all fields before it have been told.
    fn fields<'b, E>(
        self,
        bytes: &'b [u8],
        at: usize,
        visit: impl FnMut(Field<'b>) -> Result<(), E>,
    ) -> Result<usize, Stop<E>>;

    /// The end of a token (RFC 9110 §5.6.2) that begins at `at`, a method say, or the end of `bytes`.
    #[must_use]
    fn token_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of what may be a field's value, from `at` on: the first control character other than the tabulator, or the
    /// end of `bytes`.
    #[must_use]
    fn value_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of a request target, from `at` on: the first byte that does not belong, or the end of `bytes`.
    ///
    /// A target holds the characters of RFC 3986 §2, and brackets anywhere. These do not belong: `#`, with which a fragment
    /// begins; `"`, `<`, `>`, `\`, `^`, `` ` ``, `{`, `|` and `}`; and `%` without two hexadecimal digits behind it.
    #[must_use]
    fn target_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of a target's path: the first `?`, the first `%00`, which a path does not hold (RFC 3986 §7.3), or the end
    /// of the target.
    #[must_use]
    fn path_end(self, bytes: &[u8], at: usize) -> usize;

    /// [`path_end`](Self::path_end), or the first `%`: quicker for a path that has none.
    #[must_use]
    fn plain_path_end(self, bytes: &[u8], at: usize) -> usize;

    /// [`target_end`](Self::target_end), or the first `%`: quicker for a target that has none.
    #[must_use]
    fn plain_target_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of what a registered name or an address may be made of (RFC 3986 §3.2.2), without colon, brackets, and
    /// the comma, with which somebody may have joined two hosts; or the end of `bytes`.
    #[must_use]
    fn host_end(self, bytes: &[u8], at: usize) -> usize;
}

/// Something to do with a head, compiled for each set of instructions: see [`run`](crate::run).
///
/// ```
/// use tidegate_scan::{Scanner, Task, run};
///
/// /// Where the words of a request line end.
/// struct RequestLine<'b>(&'b [u8]);
///
/// impl Task for RequestLine<'_> {
///     type Output = (usize, usize);
///
///     #[inline(always)]
///     fn run<S: Scanner>(self, scanner: S) -> (usize, usize) {
///         let method_end = scanner.token_end(self.0, 0);
///         (method_end, scanner.target_end(self.0, method_end + 1))
///     }
/// }
///
/// assert_eq!(run(RequestLine(b"GET /a?b HTTP/1.1\r\n")), (3, 8));
/// ```
pub trait Task {
    /// What comes of it.
    type Output;

    /// Does it. Only what is inlined here is compiled for the scanner's instructions, so this has to be
    /// `#[inline(always)]`, and what it calls where it uses the scanner.
    fn run<S: Scanner>(self, scanner: S) -> Self::Output;
}

/// Tells `visit` of each field from `at` on: [`Scanner::fields`] with the best that the processor has.
///
/// Where more is done with a head than this, a [`Task`] asks for that only once.
///
/// # Errors
///
/// See [`Scanner::fields`].
#[inline]
pub fn fields<'b, E>(
    bytes: &'b [u8],
    at: usize,
    visit: impl FnMut(Field<'b>) -> Result<(), E>,
) -> Result<usize, Stop<E>> {
    run(Fields { bytes, at, visit })
}

struct Fields<'b, V> {
    bytes: &'b [u8],
    at: usize,
    visit: V,
}

impl<'b, E, V: FnMut(Field<'b>) -> Result<(), E>> Task for Fields<'b, V> {
    type Output = Result<usize, Stop<E>>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        scanner.fields(self.bytes, self.at, self.visit)
    }
}

pub(crate) mod sealed {
    /// Scanners are those of this crate.
    pub trait Sealed {}
}
