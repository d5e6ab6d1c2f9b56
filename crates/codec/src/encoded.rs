//! `Encoded`: a message that is encoded once and written to many connections.
//!
//! The bytes of a broadcast are the same for every connection, so they are made once, on any thread. Each loop copies
//! them once into its own memory, and every queue on it links that copy, through
//! [`Broadcast::write_encoded`](crate::Broadcast::write_encoded).
//!
//! That works for protocols in which a message has the same bytes at any time, as in the framings. Filters do not matter: the encoded bytes are
//! those that the codec above all filters writes, and each connection's own filters process them afterwards.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use tidegate_buffer::{Outbound, Pool};

use crate::fault::{Blame, Fault};
use crate::filter::Filter;
use crate::output::{Output, Time};
use crate::over::Over;
use crate::pipeline::Broadcast;

/// The bytes of a message, encoded for codecs of the kind `C`; cloned without copying, and sent to any thread.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Broadcast, Encoded, Outbound, Output, Pool, Time};
/// use tidegate::framing::Lines;
///
/// let news: Encoded<Lines> = Encoded::new(&mut Lines::new(), "high water at noon".into())?;
/// assert_eq!(&news.bytes()[..], b"high water at noon\n");
///
/// // What a loop does with it: one copy, which all of its connections share.
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let shared = pool.copy(news.bytes());
/// let mut connections: Vec<_> = (0..3).map(|_| (Lines::new(), Outbound::new(&pool))).collect();
/// for (lines, queue) in &mut connections {
///     Broadcast::write_encoded(lines, shared.clone(), &mut Output::new(queue, &pool, &time))?;
///     queue.flush();
///     assert_eq!(queue.front(), Some(&news.bytes()[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Encoded<C> {
    bytes: Bytes,
    kind: PhantomData<fn(C)>,
}

impl<C: Broadcast> Encoded<C> {
    /// Encodes `message` with `codec`, a separate one without a connection: limits and options that change the bytes
    /// must be set as on the connections.
    ///
    /// # Errors
    /// As for [`encode`].
    pub fn new(codec: &mut C, message: C::Out) -> Result<Self, EncodeError<C::Error>> {
        let time = Time::new(Instant::now(), SystemTime::now());
        encode(codec, message, &Pool::new(), &time).map(Self::of)
    }

    /// The same message for connections on which the codec is over a filter.
    #[must_use]
    pub fn over<F: Filter>(self) -> Encoded<Over<F, C>> {
        Encoded::of(self.bytes)
    }
}

impl<C> Encoded<C> {
    /// Unchecked bytes: the caller guarantees that a codec of this kind would write them for some message.
    #[must_use]
    pub const fn of(bytes: Bytes) -> Self {
        Self { bytes, kind: PhantomData }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Their number.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none: the message has no encoding.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<C> Clone for Encoded<C> {
    fn clone(&self) -> Self {
        Self::of(self.bytes.clone())
    }
}

impl<C> fmt::Debug for Encoded<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encoded").field(&self.bytes).finish()
    }
}

/// Encodes `message` with `codec`, for [`Broadcast::write_encoded`] of other codecs of its kind, and returns all of its bytes
/// contiguously.
///
/// # Errors
/// [`EncodeError::Codec`] if the codec refuses the message, and [`EncodeError::File`] if it links a piece of a file:
/// the connection that sends a file reads it, so it cannot be shared. After an error, drop the codec: it may keep the
/// rest of the message.
pub fn encode<C: Broadcast>(
    codec: &mut C,
    message: C::Out,
    pool: &Pool,
    time: &Time,
) -> Result<Bytes, EncodeError<C::Error>> {
    let mut queue = Outbound::new(pool);
    codec.encode_once(message, &mut Output::new(&mut queue, pool, time)).map_err(EncodeError::Codec)?;
    queue.flush();
    let mut bytes = Vec::new();
    while let Some(front) = queue.front() {
        let length = front.len() as u64;
        bytes.extend_from_slice(front);
        queue.advance(length);
    }
    if queue.is_empty() { Ok(bytes.into()) } else { Err(EncodeError::File) }
}

/// Why a message cannot be encoded once for many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError<E> {
    /// The codec refuses it.
    Codec(E),
    /// It contains a piece of a file.
    File,
}

impl<E: Fault> Fault for EncodeError<E> {
    fn blame(&self) -> Blame {
        match self {
            Self::Codec(error) => error.blame(),
            Self::File => Blame::Caller,
        }
    }
}

impl<E: fmt::Display> fmt::Display for EncodeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(error) => error.fmt(f),
            Self::File => f.write_str("a message with a piece of a file cannot be encoded once for many connections"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for EncodeError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Codec(error) => error.source(),
            Self::File => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fs::File;
    use std::sync::Arc;

    use tidegate_buffer::{ENTRY_BYTES, FileRegion, Input, LINK_BYTES_MIN, Slice};

    use super::*;
    use crate::codec::{Codec, Step};
    use crate::framing::{FramingError, LengthField, Lines, Raw};

    /// Adds one to every byte, takes no files, and reports the number of bytes that it has seen.
    #[derive(Debug, Default)]
    struct Shift {
        seen: usize,
    }

    impl Filter for Shift {
        type Error = Infallible;

        fn inbound(&mut self, _: &mut Input, _: &mut Input, _: &mut Output<'_>) -> Result<Step<()>, Infallible> {
            Ok(Step::NeedMore)
        }

        fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
            while let Some(front) = plain.front() {
                let shifted: Vec<u8> = front.iter().map(|byte| byte + 1).collect();
                plain.advance(shifted.len() as u64);
                self.seen += shifted.len();
                out.write(&shifted);
            }
            Ok(())
        }
    }

    /// Sends files, behind a byte, and texts.
    struct Files;

    enum Say {
        File(FileRegion),
        Text(&'static [u8]),
    }

    impl Codec for Files {
        type In = Infallible;
        type Out = Say;
        type Error = Infallible;

        fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<Infallible>, Infallible> {
            Ok(Step::NeedMore)
        }

        fn encode(&mut self, message: Say, out: &mut Output<'_>) -> Result<(), Infallible> {
            match message {
                Say::File(region) => {
                    out.write(b"F");
                    out.link_file(region);
                }
                Say::Text(text) => out.write(text),
            }
            Ok(())
        }
    }

    impl Broadcast for Files {}

    fn region(length: u64) -> FileRegion {
        FileRegion { file: Arc::new(File::open("/dev/null").unwrap()), offset: 0, length }
    }

    /// The bytes that a connection with this codec sends for those bytes.
    fn sent<C: Broadcast>(codec: &mut C, bytes: &[u8]) -> Vec<u8> {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let mut queue = Outbound::new(&pool);
        let mut out = Output::new(&mut queue, &pool, &time);
        codec.write_encoded(pool.copy(bytes), &mut out).unwrap();
        codec.flush(&mut out).unwrap();
        queue.flush();
        let sent = queue.front().unwrap_or_default().to_vec();
        assert_eq!(sent.len() as u64, queue.pending(), "all of it in one piece");
        sent
    }

    #[test]
    fn it_may_be_shared_between_threads_whatever_its_codec_holds() {
        fn shared<T: Clone + Send + Sync>() {}
        /// A codec that is not `Send`.
        struct Bound(PhantomData<std::rc::Rc<()>>);
        shared::<Encoded<Bound>>();
        let _ = Bound(PhantomData);
        let news = Encoded::new(&mut Lines::new(), "ebb".into()).unwrap();
        let other = std::thread::spawn({
            let news = news.clone();
            move || news.bytes().as_ptr() as usize
        });
        assert_eq!(other.join().unwrap(), news.bytes().as_ptr() as usize, "a clone is no copy");
    }

    #[test]
    fn large_messages_come_out_in_one_piece() {
        let body = vec![7; 3 * LINK_BYTES_MIN];
        let framed = Encoded::new(&mut LengthField::new(4), body.clone().into()).unwrap();
        assert_eq!(framed.len(), 4 + body.len());
        assert_eq!(framed.bytes(), &LengthField::new(4).encoded(&body).unwrap());
    }

    #[test]
    fn texts_and_no_files_are_encoded() {
        assert_eq!(Encoded::new(&mut Files, Say::Text(b"ebb")).unwrap().bytes(), "ebb");
    }

    #[test]
    fn a_message_without_bytes_adds_nothing() {
        let nothing = Encoded::new(&mut Raw, "".into()).unwrap();
        assert!(nothing.is_empty());
        assert_eq!(sent(&mut Raw, nothing.bytes()), b"");
    }

    #[test]
    fn a_message_that_the_codec_refuses_is_refused() {
        let error = Encoded::new(&mut Lines::new(), "a\nb".into()).unwrap_err();
        assert_eq!(error, EncodeError::Codec(FramingError::EndWithin { at: 1 }));
        assert_eq!(error.blame(), Blame::Caller);
    }

    #[test]
    fn pieces_of_files_are_refused_with_or_without_a_filter() {
        let alone = Encoded::new(&mut Files, Say::File(region(5))).unwrap_err();
        assert!(matches!(alone, EncodeError::File));
        let mut below = Over::new(Shift::default(), Files);
        assert!(matches!(Encoded::new(&mut below, Say::File(region(5))), Err(EncodeError::File)));
        let empty = Encoded::new(&mut Files, Say::File(region(0))).unwrap();
        assert_eq!(empty.bytes(), "F", "an empty piece is nothing");
    }

    #[test]
    fn filters_have_it_on_each_connection_and_not_before() {
        let make = || Over::new(Shift::default(), Over::new(Shift::default(), Lines::new()));
        let mut once = make();
        let direct = Encoded::new(&mut once, "ebb".into()).unwrap();
        assert_eq!((direct.bytes(), once.filter().seen), (&Bytes::from("ebb\n"), 0));
        let lifted: Encoded<Over<Shift, Lines>> = Encoded::new(&mut Lines::new(), "ebb".into()).unwrap().over();
        assert_eq!(lifted.bytes(), direct.bytes());
        for _ in 0..2 {
            let mut connection = make();
            assert_eq!(sent(&mut connection, direct.bytes()), b"gdd\x0c");
            assert_eq!((connection.filter().seen, connection.codec().filter().seen), (4, 4));
        }
    }

    #[test]
    fn connections_share_the_bytes_and_messages_stay_in_order() {
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let news: Slice = pool.copy(Encoded::new(&mut Lines::new(), "news".into()).unwrap().bytes());
        let before = pool.ledger().used();
        let mut queues: Vec<_> = (0..100).map(|_| Outbound::new(&pool)).collect();
        for queue in &mut queues {
            Broadcast::write_encoded(&mut Lines::new(), news.clone(), &mut Output::new(queue, &pool, &time)).unwrap();
        }
        assert_eq!(pool.ledger().used(), before + 100 * ENTRY_BYTES);
        let (mut lines, queue) = (Lines::new(), &mut queues[0]);
        lines.encode("own".into(), &mut Output::new(queue, &pool, &time)).unwrap();
        Broadcast::write_encoded(&mut lines, news, &mut Output::new(queue, &pool, &time)).unwrap();
        queue.flush();
        let mut seen = Vec::new();
        while let Some(front) = queue.front() {
            let length = front.len() as u64;
            seen.extend_from_slice(front);
            queue.advance(length);
        }
        assert_eq!(seen, b"news\nown\nnews\n");
    }
}
