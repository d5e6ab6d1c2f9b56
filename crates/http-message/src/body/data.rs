//! `Data`: a piece of a body in memory.

use std::ops::Deref;

use bytes::Bytes;
use tidegate_buffer::Slice;
use tidegate_http1 as http1;

use crate::error::BodyError;

/// A piece of a body, in memory: a view of the loop's, shared, or static bytes. It stays on its thread, and
/// [`into_bytes`](Self::into_bytes) goes to another one. This function writes an upload to a file, and receives no more
/// while the disk is busy:
///
/// ```
/// use std::fs::File;
/// use std::io::{self, Write};
///
/// use tidegate::blocking;
/// use tidegate::http::{Body, StatusCode};
///
/// async fn upload(mut body: Body) -> Result<StatusCode, StatusCode> {
///     let failed = |_: io::Error| StatusCode::INTERNAL_SERVER_ERROR;
///     let busy = |_| StatusCode::SERVICE_UNAVAILABLE;
///     let mut file = blocking(|| File::create("upload.part")).await.map_err(busy)?.map_err(failed)?;
///     while let Some(piece) = body.next().await {
///         let bytes = piece.map_err(|_| StatusCode::BAD_REQUEST)?.into_bytes();
///         let written = blocking(move || file.write_all(&bytes).map(|()| file)).await;
///         file = written.map_err(busy)?.map_err(failed)?;
///     }
///     Ok(StatusCode::CREATED)
/// }
///
/// let router = tidegate::http::Router::new().post("/upload", upload);
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct Data(http1::Body);

impl Data {
    /// The bytes, to be kept or passed to another thread: copied if they lie in the loop's memory.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            http1::Body::Static(bytes) => Bytes::from_static(bytes),
            http1::Body::Bytes(bytes) => bytes,
            http1::Body::Slice(slice) => slice.to_bytes(),
            http1::Body::Empty | http1::Body::File(_) => Bytes::new(),
        }
    }

    /// A whole body that is known to be no file; a file has no bytes here.
    pub(super) const fn of_whole(body: http1::Body) -> Self {
        Self(body)
    }

    /// A whole body that is no file.
    pub(super) fn of_body(body: http1::Body) -> Result<Self, BodyError> {
        if matches!(body, http1::Body::File(_)) { Err(BodyError::Unreadable) } else { Ok(Self(body)) }
    }

    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn into_body(self) -> http1::Body {
        self.0
    }

    /// The same bytes in memory of about their size.
    #[doc(hidden)]
    #[must_use]
    pub fn fit(self) -> Self {
        match self.0 {
            http1::Body::Slice(slice) => Self(http1::Body::Slice(slice.fit())),
            other => Self(other),
        }
    }

    /// The same bytes, which may be kept: a short view of the loop's memory is copied.
    #[doc(hidden)]
    #[must_use]
    pub fn kept(&self) -> Self {
        match &self.0 {
            http1::Body::Slice(slice) => Self(http1::Body::Slice(slice.clone().detach())),
            other => Self(other.clone()),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self(http1::Body::Empty)
    }
}

impl Deref for Data {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.memory()
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

macro_rules! data_from {
    ($($source:ty),*) => {
        $(impl From<$source> for Data {
            #[inline]
            fn from(source: $source) -> Self {
                Self(source.into())
            }
        })*
    };
}

data_from!(&'static str, &'static [u8], String, Vec<u8>, Bytes, Slice);
