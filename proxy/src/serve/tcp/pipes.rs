//! Pipes, through which the kernel moves bytes from socket to socket without showing them to us (splice(2)).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe holds. Each part that arrived by itself takes a page's place in it, however small.
pub const SIZE: usize = 1 << 20;
/// Pipes of one worker. Each is two descriptors; a direction that gets none is copied.
const MOST: usize = 256;
/// Those that are kept for the next direction.
const KEPT: usize = 16;

/// The pipes of one worker.
#[derive(Debug)]
pub struct Pipes {
    spare: RefCell<Vec<Pipe>>,
    lent: Cell<usize>,
    most: usize,
}

impl Default for Pipes {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl Pipes {
    /// At most so many.
    pub(super) fn of(most: usize) -> Self {
        Self { spare: RefCell::default(), lent: Cell::new(0), most }
    }

    /// An empty pipe, if there is one.
    #[must_use]
    pub fn lend(&self) -> Option<Pipe> {
        if self.lent.get() >= self.most {
            return None;
        }
        let pipe = self.spare.borrow_mut().pop().or_else(|| Pipe::new().ok())?;
        self.lent.set(self.lent.get() + 1);
        Some(pipe)
    }

    /// Pipes that somebody has.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent.get()
    }

    /// Those and the spare ones.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.lent.get() + self.spare.borrow().len()
    }

    /// Takes a pipe back. One with something in it is closed.
    pub fn give_back(&self, pipe: Pipe) {
        self.lent.set(self.lent.get() - 1);
        let mut spare = self.spare.borrow_mut();
        if pipe.held == 0 && spare.len() < KEPT {
            spare.push(pipe);
        }
    }
}

/// One pipe, with what is in it.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        // As much as the system allows: past the user's share of pipe memory it stays what it is.
        for size in [SIZE, SIZE / 4] {
            if fcntl(&write, FcntlArg::F_SETPIPE_SZ(i32::try_from(size).unwrap_or(i32::MAX))).is_ok() {
                break;
            }
        }
        Ok(Self { read, write, held: 0 })
    }

    /// Bytes in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes what has arrived at `from`. Only for an empty pipe: "would block" means that nothing has. 0 is the end.
    pub fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0, "a full pipe would look like an empty socket");
        let moved = from.try_io(Interest::READABLE, || {
            splice(from, None, &self.write, None, SIZE, SpliceFFlags::SPLICE_F_NONBLOCK).map_err(io::Error::from)
        })?;
        self.held = moved;
        Ok(moved)
    }

    /// Gives as much as `to` takes.
    pub fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
        let moved = to.try_io(Interest::WRITABLE, || {
            splice(&self.read, None, to, None, self.held, SpliceFFlags::SPLICE_F_NONBLOCK).map_err(io::Error::from)
        })?;
        self.held -= moved;
        Ok(moved)
    }
}
