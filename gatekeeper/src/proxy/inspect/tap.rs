//! A client's stream. What it sends in HTTP/1 passes `strict` first; a connection without a request in progress ends
//! when it is silent for too long.

use super::strict::{Ambiguous, Strict};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a connection without a request may be silent.
pub const SILENCE: Duration = Duration::from_secs(60);

/// What the stream and the requests on it share.
#[derive(Default)]
pub struct Shared {
    /// Requests in progress.
    pub active: AtomicUsize,
    /// The connection has become something else than HTTP.
    pub upgraded: AtomicBool,
    pub ambiguous: OnceLock<Ambiguous>,
}

pub struct Tap<S> {
    stream: S,
    /// `None` for HTTP/2, whose frames have one reading.
    strict: Option<Strict>,
    ready: Vec<u8>,
    /// How much of `ready` was delivered.
    at: usize,
    shared: Arc<Shared>,
    silence: Pin<Box<Sleep>>,
    /// How long it may be silent.
    patience: Duration,
}

impl<S> Tap<S> {
    pub fn new(stream: S, http1: bool, shared: Arc<Shared>) -> Tap<S> {
        Tap::patient(stream, http1, shared, SILENCE)
    }

    fn patient(stream: S, http1: bool, shared: Arc<Shared>, patience: Duration) -> Tap<S> {
        Tap {
            stream,
            strict: http1.then(Strict::default),
            ready: Vec::new(),
            at: 0,
            shared,
            silence: Box::pin(sleep(patience)),
            patience,
        }
    }

    fn deliver(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let left = self.ready.get(self.at..).unwrap_or_default();
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..count).unwrap_or_default());
        self.at += count;
        if self.at == self.ready.len() {
            self.ready.clear();
            self.at = 0;
        }
        count > 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.shared.upgraded.load(Ordering::SeqCst)
            && let Some(mut strict) = this.strict.take()
        {
            this.ready.append(&mut strict.rest());
        }
        loop {
            if this.deliver(buffer) || this.shared.ambiguous.get().is_some() {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            let mut block = [0u8; 16 * 1024];
            let read = match &this.strict {
                None => {
                    let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
                    polled.map_ok(|()| buffer.filled().len() - before)
                }
                Some(_) => {
                    let mut inner = ReadBuf::new(&mut block);
                    let polled = Pin::new(&mut this.stream).poll_read(context, &mut inner);
                    polled.map_ok(|()| inner.filled().len())
                }
            };
            match read {
                Poll::Pending => {
                    if this.shared.active.load(Ordering::SeqCst) > 0 || this.shared.upgraded.load(Ordering::SeqCst) {
                        this.silence.as_mut().reset(Instant::now() + this.patience);
                    }
                    return match this.silence.as_mut().poll(context) {
                        Poll::Ready(()) => Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut))),
                        Poll::Pending => Poll::Pending,
                    };
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(count)) => {
                    // A head that arrives byte by byte does not count as activity.
                    if !matches!(this.strict, Some(Strict::Head(_))) {
                        this.silence.as_mut().reset(Instant::now() + this.patience);
                    }
                    let Some(strict) = &mut this.strict else { return Poll::Ready(Ok(())) };
                    if let Err(ambiguous) = strict.take(block.get(..count).unwrap_or_default(), &mut this.ready) {
                        let _ = this.shared.ambiguous.set(ambiguous);
                        // Nothing of a block with an ambiguous part is passed on, but what no parser takes: hyper then
                        // answers 400 and closes.
                        this.ready = b"\0\r\n\r\n".to_vec();
                        this.at = 0;
                    }
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_millis(300);

    /// Reads until the end while `send` says something every 50 ms. Returns how that ended.
    fn read(http1: bool, active: usize, send: &'static [u8]) -> Result<Vec<u8>, io::ErrorKind> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (client, mut other) = duplex(1024);
            let shared = Arc::new(Shared::default());
            shared.active.store(active, Ordering::SeqCst);
            let mut tap = Tap::patient(client, http1, shared, PATIENCE);
            let sending = tokio::spawn(async move {
                for byte in send {
                    let _ = other.write_all(&[*byte]).await;
                    sleep(Duration::from_millis(50)).await;
                }
                sleep(PATIENCE * 3).await;
            });
            let mut all = Vec::new();
            let ended = tap.read_to_end(&mut all).await.map(|_| all).map_err(|error| error.kind());
            sending.abort();
            ended
        })
    }

    #[test]
    fn a_silent_connection_ends_and_one_with_a_request_in_progress_does_not() {
        assert_eq!(read(true, 0, b""), Err(io::ErrorKind::TimedOut));
        assert_eq!(read(false, 0, b""), Err(io::ErrorKind::TimedOut));
        assert!(read(true, 1, b"").is_ok(), "until the client has closed it");
    }

    #[test]
    fn a_head_that_arrives_byte_by_byte_is_not_waited_for() {
        assert_eq!(read(true, 0, b"GET / HTTP/1.1\r\nHost: a"), Err(io::ErrorKind::TimedOut));
    }
}
