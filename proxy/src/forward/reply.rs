//! What the caller is sent: heads of our writing, and the body of an answer behind them.

use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use plimsoll_h1::{BodyEncoder, BodyFraming};
use tokio::net::TcpStream;

use super::answer::Answer;
use super::io::{JOINED, poll_write};

/// How the body of an answer is told from what follows it, on the caller's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The bytes as the answer's buffer has them.
    AsTheyAre,
    /// Not at all: the answer is our own, and nothing that a server sent goes out behind it.
    Own,
    /// In chunks of our making, because the server ends its answer in a way of its own (RFC 9112 7.1).
    InChunks,
    /// As the data of a stream.
    Frames,
}

/// The reply to one call. Nothing of it is begun until something is appended.
#[derive(Debug)]
pub struct Reply {
    /// Bytes that go out before the body at hand.
    out: BytesMut,
    out_sent: usize,
    delivery: Delivery,
    begun: bool,
    ended: bool,
    /// The status that went out; 0 = none yet.
    pub status: u16,
    /// Body bytes handed to the caller's socket.
    pub body_bytes: u64,
}

impl Reply {
    /// An empty reply that writes its heads into `out`.
    #[must_use]
    pub fn new(out: BytesMut) -> Self {
        Self { out, out_sent: 0, delivery: Delivery::AsTheyAre, begun: false, ended: false, status: 0, body_bytes: 0 }
    }

    /// Where a head, or a whole answer of our own, is to be appended.
    pub fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// The final head was appended, and the body follows as `delivery` says.
    pub fn begin(&mut self, status: u16, delivery: Delivery) {
        self.status = status;
        self.delivery = delivery;
        self.begun = true;
    }

    /// Appends a whole answer of our own.
    pub fn put_own(&mut self, answer: &[u8], status: u16) {
        self.out.extend_from_slice(answer);
        self.begin(status, Delivery::Own);
        self.ended = true;
    }

    /// Begins an answer that goes out on a stream; `ends`: with its head.
    pub fn begin_on_stream(&mut self, status: u16, is_own: bool, ends: bool) {
        self.begin(status, if is_own { Delivery::Own } else { Delivery::Frames });
        self.ended = ends;
    }

    /// `count` bytes of the body were handed to the stream, and with `ends` its end.
    pub fn on_stream_sent(&mut self, count: usize, ends: bool) {
        self.body_bytes += count as u64;
        self.ended = ends;
    }

    /// Whether the answer is one of ours.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.delivery == Delivery::Own
    }

    /// Whether a byte of the final answer may have gone out.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether the whole answer has been written to the caller's socket.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended && self.out.is_empty()
    }

    /// Whether there is anything to write.
    #[must_use]
    pub fn is_flushed(&self, answer: &Answer) -> bool {
        self.out.is_empty() && (!self.begun || self.delivery == Delivery::Own || answer.unsent().is_empty())
    }

    /// Writes what there is. Ready when nothing is left to write for now.
    ///
    /// # Errors
    /// As the socket's: the caller has gone.
    pub fn poll_flush(
        &mut self,
        stream: &TcpStream,
        answer: &mut Answer,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.stage(answer);
            self.join(answer);
            let body = if self.begun && self.delivery == Delivery::AsTheyAre { answer.unsent() } else { &[] };
            let head = &self.out[self.out_sent..];
            let (head_len, body_len) = (head.len(), body.len());
            if head_len + body_len == 0 {
                return Poll::Ready(Ok(()));
            }
            let Poll::Ready(written) = poll_write(stream, head, body, cx)? else { return Poll::Pending };
            *moved = true;
            self.on_written(written.min(head_len));
            if written > head_len {
                self.body_bytes += (written - head_len) as u64;
                answer.on_sent(written - head_len);
            }
        }
    }

    /// The buffer, to be used again.
    #[must_use]
    pub fn take_out(&mut self) -> BytesMut {
        std::mem::take(&mut self.out)
    }

    /// A small body goes out with its head in one piece: copying it is cheaper than telling the kernel of two.
    fn join(&mut self, answer: &mut Answer) {
        let body = answer.unsent();
        if self.begun
            && self.delivery == Delivery::AsTheyAre
            && !self.out.is_empty()
            && (1..=JOINED).contains(&body.len())
        {
            self.out.extend_from_slice(body);
            let count = body.len();
            self.body_bytes += count as u64;
            answer.on_sent(count);
        }
    }

    fn on_written(&mut self, count: usize) {
        self.out_sent += count;
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
        }
    }

    /// Brings what has arrived into the form in which it goes out.
    fn stage(&mut self, answer: &mut Answer) {
        if !self.begun || self.ended {
            return;
        }
        if self.delivery == Delivery::InChunks {
            self.stage_chunk(answer);
        }
        // In chunks, the last of them is all that is left once the answer is whole; as they are, the bytes go out first.
        self.ended = answer.is_whole() && answer.unsent().is_empty();
        if self.ended && self.delivery == Delivery::InChunks {
            self.out.extend_from_slice(b"0\r\n");
            match answer.trailers() {
                Some(trailers) => trailers.put(&mut self.out),
                None => self.out.extend_from_slice(b"\r\n"),
            }
        }
    }

    fn stage_chunk(&mut self, answer: &mut Answer) {
        let piece = answer.unsent();
        if piece.is_empty() || !self.out.is_empty() {
            return;
        }
        let length = piece.len();
        let put = BodyEncoder::new(BodyFraming::Chunked).put(piece, &mut self.out);
        debug_assert!(put.is_ok(), "chunks announce no length");
        self.body_bytes += length as u64;
        answer.on_sent(length);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_h1::{Limits, Method};

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Whatever a server has sent: behind an answer of ours nothing of it goes out.
    #[test]
    fn an_answer_of_our_own_is_all_that_goes_out() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            for sent in ["HTTP/1.1 101 Switching Protocols\r\n\r\nraw", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody", "HTTP/1.1 103 Early\r\n\r\n"] {
                let mut answer = Answer::holding(sent);
                while matches!(answer.look(Method::Get, &Limits::default(), false), Ok(found) if found != crate::forward::answer::Found::Nothing) {}
                let (near, far) = pair().await;
                let mut reply = Reply::new(BytesMut::new());
                reply.put_own(b"ours", 502);
                let mut moved = false;
                std::future::poll_fn(|cx| reply.poll_flush(&near, &mut answer, &mut moved, cx)).await.unwrap();
                assert!(reply.is_complete() && reply.is_flushed(&answer));
                drop(near);
                let mut received = Vec::new();
                loop {
                    far.readable().await.unwrap();
                    match far.try_read_buf(&mut received) {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
                assert_eq!(received, b"ours", "{sent}");
            }
        });
    }
}
