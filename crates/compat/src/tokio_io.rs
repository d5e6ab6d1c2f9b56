//! Tokio's traits for byte streams and their halves.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Pipeline, Slice};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::byte_stream::{ByteReader, ByteStream, ByteWriter};

impl<P: Pipeline<In = Slice>> AsyncRead for ByteReader<P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() > 0 {
            let bytes = ready!(this.poll_fill(cx))?;
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            this.consume(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<P: Pipeline<In = Slice>> AsyncBufRead for ByteReader<P> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(cx)
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        ByteReader::consume(self.get_mut(), count);
    }
}

impl<P: Pipeline<Codec = Raw>> AsyncWrite for ByteWriter<P> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ByteWriter::poll_write(self.get_mut(), bytes, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ByteWriter::poll_write_vectored(self.get_mut(), buffers, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ByteWriter::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ByteWriter::poll_shutdown(self.get_mut(), cx)
    }
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> AsyncRead for ByteStream<P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().reader()).poll_read(cx, buffer)
    }
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> AsyncBufRead for ByteStream<P> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().reader().poll_fill(cx)
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        self.get_mut().reader().consume(count);
    }
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> AsyncWrite for ByteStream<P> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().writer().poll_write(bytes, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().writer().poll_write_vectored(buffers, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_shutdown(cx)
    }
}
