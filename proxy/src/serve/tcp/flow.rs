//! One direction of a relay.
//!
//! ```text
//!            nothing to move: owns nothing
//!                 | bytes
//!                 v            256 KiB in a row, both ends plain
//!              copying -------------------------------------------> splicing
//!   16 KiB, then 256 KiB      <---------------------------------   a pipe, while
//!       while it fills            small messages again             it has bytes in it
//! ```
//! *Rule*: all that was read is written before more is read, so that at the end of the source nothing is left behind,
//! and who has no room to write to stops reading. Small messages are cheaper copied (a read and a write either way, and
//! a short read tells that the socket is empty); bulk is cheaper moved by the kernel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use super::pipes::{self, Pipe, Pipes};
use super::wire::Wire;
use crate::forward::io::poll_read;
use crate::runtime::buffers::{Buffers, INITIAL, LARGE};

/// What one direction moves before others on its worker have their turn.
const TURN: usize = 1 << 20;
/// After this much in a row a direction is worth a pipe.
const BULK: usize = 256 * 1024;
/// Reads shorter than this are messages, not bulk.
const SMALL: usize = 8 * 1024;
/// So many of them in a row end the splicing.
const SMALL_READS: u8 = 16;

/// Where a direction borrows what it moves bytes in.
#[derive(Clone, Copy, Debug)]
pub struct Lender<'a> {
    /// Buffers.
    pub buffers: &'a Buffers,
    /// Pipes.
    pub pipes: &'a Pipes,
}

/// One direction. See the module documentation.
#[derive(Debug)]
pub struct Flow {
    held: BytesMut,
    written: usize,
    pipe: Option<Pipe>,
    way: Way,
    /// Reads fill a whole buffer.
    is_wide: bool,
    ended: bool,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Debug)]
enum Way {
    /// By way of a buffer; so many bytes in a row.
    Copy { run: usize },
    /// By way of a pipe; so many small reads in a row.
    Splice { small: u8 },
    /// The system does not splice these.
    CopyOnly,
}

/// Why a direction does not go on for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Nothing to read, or no room to write.
    Waits,
    /// The source has ended, and all that it said is written.
    Ended,
    /// The source was reset. What it said before is written.
    SourceReset,
    /// The sink takes nothing any more.
    SinkReset,
}

impl Flow {
    /// A direction whose first bytes were read already.
    #[must_use]
    pub fn new(first: BytesMut) -> Self {
        Self {
            bytes_in: first.len() as u64,
            held: first,
            written: 0,
            pipe: None,
            way: Way::Copy { run: 0 },
            is_wide: false,
            ended: false,
            bytes_out: 0,
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// Moves what can be moved.
    pub fn poll(&mut self, from: &mut impl Wire, to: &mut impl Wire, lender: Lender<'_>, cx: &mut Context<'_>) -> Halt {
        let mut left = TURN;
        loop {
            match self.poll_write(to, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Halt::SinkReset,
                Poll::Pending => return Halt::Waits,
            }
            if self.ended {
                self.give_back(lender);
                return Halt::Ended;
            }
            if left == 0 {
                cx.waker().wake_by_ref();
                return Halt::Waits;
            }
            match self.poll_read(from, to.is_plain(), lender, cx) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(count)) => {
                    self.bytes_in += count as u64;
                    left = left.saturating_sub(count);
                }
                Poll::Ready(Err(_)) => return Halt::SourceReset,
                Poll::Pending => {
                    self.give_back(lender);
                    return Halt::Waits;
                }
            }
        }
    }

    /// Gives up what is borrowed, with whatever is in it.
    pub fn give_back(&mut self, lender: Lender<'_>) {
        self.written = 0;
        lender.buffers.give_back(std::mem::take(&mut self.held));
        if let Some(pipe) = self.pipe.take() {
            lender.pipes.give_back(pipe);
        }
    }

    /// Ready when all that was read is on its way.
    fn poll_write(&mut self, to: &mut impl Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.held.len() {
            let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.held[self.written..]))?;
            self.written += count;
            self.bytes_out += count as u64;
        }
        if let Some(pipe) = &mut self.pipe {
            while pipe.held() > 0 {
                ready!(to.socket().poll_write_ready(cx))?;
                match pipe.drain(to.socket()) {
                    Ok(count) => self.bytes_out += count as u64,
                    Err(error) if is_transient(&error) => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Only with nothing left to write.
    fn poll_read(
        &mut self,
        from: &mut impl Wire,
        to_plain: bool,
        lender: Lender<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // No buffer is borrowed for nothing.
        ready!(from.poll_read_ready(cx))?;
        if let Way::Copy { run } = self.way
            && run >= BULK
            && to_plain
            && from.is_plain()
        {
            self.way = Way::Splice { small: 0 };
        }
        if matches!(self.way, Way::Splice { .. }) && self.has_pipe(lender) {
            self.poll_splice(from, cx)
        } else {
            self.poll_copy(from, lender, cx)
        }
    }

    fn poll_copy(&mut self, from: &mut impl Wire, lender: Lender<'_>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let size = if self.is_wide { LARGE } else { INITIAL };
        self.held.clear();
        self.written = 0;
        if self.held.capacity() < size {
            lender.buffers.give_back(std::mem::take(&mut self.held));
            self.held = if self.is_wide { lender.buffers.lend_large() } else { lender.buffers.lend() };
        }
        let count = ready!(poll_read(from, &mut self.held, cx))?;
        self.is_wide = count == self.held.capacity() || (self.is_wide && count > INITIAL);
        if let Way::Copy { run } = &mut self.way {
            *run = if count < SMALL { 0 } else { *run + count };
        }
        Poll::Ready(Ok(count))
    }

    fn has_pipe(&mut self, lender: Lender<'_>) -> bool {
        if self.pipe.is_none() {
            self.pipe = lender.pipes.lend();
        }
        if self.pipe.is_some() {
            lender.buffers.give_back(std::mem::take(&mut self.held));
            self.written = 0;
        }
        self.pipe.is_some()
    }

    fn poll_splice(&mut self, from: &mut impl Wire, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(pipe) = &mut self.pipe else { return Poll::Pending };
        loop {
            ready!(from.poll_read_ready(cx))?;
            match pipe.fill(from.socket()) {
                Ok(count) => {
                    self.way = match self.way {
                        Way::Splice { small } if count < SMALL && small >= SMALL_READS => Way::Copy { run: 0 },
                        Way::Splice { small } if count < SMALL => Way::Splice { small: small + 1 },
                        _ => Way::Splice { small: 0 },
                    };
                    return Poll::Ready(Ok(count));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.way = Way::CopyOnly;
                    // Nothing was moved: the next look at the socket copies.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

const _: () = assert!(pipes::SIZE >= BULK, "a pipe takes at least what was worth it");
