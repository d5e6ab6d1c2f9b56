//! The traits of futures-io for byte streams and their halves.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite, IoSlice, IoSliceMut};
use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Pipeline, Slice};

use crate::byte_stream::{ByteReader, ByteStream, ByteWriter};

impl<P: Pipeline<In = Slice>> AsyncRead for ByteReader<P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buffer)])
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let bytes = ready!(this.poll_fill(cx))?;
        let mut count = 0;
        for buffer in buffers {
            let length = buffer.len().min(bytes.len() - count);
            buffer[..length].copy_from_slice(&bytes[count..count + length]);
            count += length;
        }
        this.consume(count);
        Poll::Ready(Ok(count))
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
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ByteWriter::poll_write_vectored(self.get_mut(), buffers, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ByteWriter::poll_flush(self.get_mut(), cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_shutdown(cx)
    }
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> AsyncRead for ByteStream<P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().reader()).poll_read(cx, buffer)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().reader()).poll_read_vectored(cx, buffers)
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
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().writer().poll_write_vectored(buffers, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_shutdown(cx)
    }
}
