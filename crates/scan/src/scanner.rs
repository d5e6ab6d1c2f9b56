//! `Scanner`: the searches, independent of the instruction set.

use crate::field::{Field, Stop};

/// Finds things in the bytes of a head, with the instructions of one [`Level`](crate::Level).
///
/// A scanner proves that the processor supports these instructions: it exists only then. Positions are indices of
/// `bytes`. All scanners find the same, and none reads beyond `bytes`.
pub trait Scanner: Copy + sealed::Sealed {
    /// Calls `visit` with each field from `at` on, in order, and returns the end of the head, behind its empty line.
    ///
    /// # Errors
    ///
    /// [`Stop`]: the first fault, the end of `bytes` included, after `visit` received all fields before it.
    fn fields<'b, E>(
        self,
        bytes: &'b [u8],
        at: usize,
        visit: impl FnMut(Field<'b>) -> Result<(), E>,
    ) -> Result<usize, Stop<E>>;

    /// The end of a token (RFC 9110 §5.6.2) that begins at `at`, such as a method, or the end of `bytes`.
    #[must_use]
    fn token_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of a possible field value, from `at` on: the first control character other than the tabulator, or the
    /// end of `bytes`.
    #[must_use]
    fn value_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of a request target, from `at` on: the first byte outside it, or the end of `bytes`.
    ///
    /// A target contains the characters of RFC 3986 §2, and brackets anywhere. It does not contain: `#`, with which a
    /// fragment begins; `"`, `<`, `>`, `\`, `^`, `` ` ``, `{`, `|` and `}`; and `%` without two hexadecimal digits
    /// behind it.
    #[must_use]
    fn target_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of a target's path: the first `?`, the first `%00`, which a path cannot contain (RFC 3986 §7.3), or the
    /// end of the target.
    #[must_use]
    fn path_end(self, bytes: &[u8], at: usize) -> usize;

    /// [`path_end`](Self::path_end), or the first `%`: quicker for a path that has none.
    #[must_use]
    fn plain_path_end(self, bytes: &[u8], at: usize) -> usize;

    /// [`target_end`](Self::target_end), or the first `%`: quicker for a target that has none.
    #[must_use]
    fn plain_target_end(self, bytes: &[u8], at: usize) -> usize;

    /// The end of the bytes that a registered name or an address can contain (RFC 3986 §3.2.2), without colon,
    /// brackets, and the comma, which an intermediary may have used to join two hosts; or the end of `bytes`.
    #[must_use]
    fn host_end(self, bytes: &[u8], at: usize) -> usize;
}

/// A job on a head, compiled for each instruction set: see [`run`](crate::run).
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
    /// Its result.
    type Output;

    /// Runs it. Only inlined code is compiled for the scanner's instructions, so this function must be
    /// `#[inline(always)]`, and so must the functions that it calls with the scanner.
    fn run<S: Scanner>(self, scanner: S) -> Self::Output;
}

pub(crate) mod sealed {
    /// Only this crate implements scanners.
    pub trait Sealed {}
}
