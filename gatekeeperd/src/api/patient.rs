//! A connection whose client has to take what it asked for. One that stops reading would keep its place, and the answers in
//! memory, for as long as it likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take nothing.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient { stream, patience, waiting: None }
    }

    /// The result of a write, or an error if it has waited for too long.
    fn limit<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let patience = self.patience;
        match self.waiting.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.limit(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(context, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_client_that_reads_slowly_gets_all_and_one_that_stops_is_cut_off() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, Duration::from_millis(300));
        let reading = tokio::spawn(async move {
            let mut got = 0;
            while got < 160 {
                tokio::time::sleep(Duration::from_millis(60)).await;
                got += far.read(&mut [0; 16]).await.expect("open");
            }
            far
        });
        near.write_all(&[1; 160]).await.expect("longer than the limit in all, but it goes on");
        let _far = reading.await.expect("no panic");
        let error = near.write_all(&[1; 160]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
