//! Read and write buffers, lent to a connection for as long as it has something to say.
//!
//! An idle connection owns none: ten thousand of them cost their sockets and little more. The last buffer given back is
//! the first one lent again, while its lines are still in the cache.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use bytes::BytesMut;

/// What a buffer holds at first: a head and a small body in one read.
pub const INITIAL: usize = 16 * 1024;
/// What a buffer holds that is for a head alone, whose body comes by another way.
pub const HEAD: usize = 1024;
/// What a buffer grows to while a body keeps filling it: past this, larger reads save nothing measurable.
pub const STREAMING: usize = 64 * 1024;
/// What a buffer of opaque bulk holds: larger reads save nothing measurable there.
pub const LARGE: usize = 256 * 1024;
/// How many of those a worker keeps.
const KEPT_LARGE: usize = 4;
/// How many buffers a worker keeps for the next call. The rest go back to the allocator.
const KEPT: usize = 64;
/// How many small things it keeps: calls that come over streams are many at a time.
const KEPT_SMALL: usize = 256;

/// The spare buffers of one worker.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: RefCell<Vec<BytesMut>>,
    heads: RefCell<Vec<BytesMut>>,
    large: RefCell<Vec<BytesMut>>,
}

impl Buffers {
    /// An empty buffer of at least [`INITIAL`] bytes.
    #[must_use]
    pub fn lend(&self) -> BytesMut {
        self.spare.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(INITIAL))
    }

    /// An empty buffer of at least [`HEAD`] bytes.
    #[must_use]
    pub fn lend_head(&self) -> BytesMut {
        self.heads.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(HEAD))
    }

    /// An empty buffer of at least [`LARGE`] bytes.
    #[must_use]
    pub fn lend_large(&self) -> BytesMut {
        self.large.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(LARGE))
    }

    /// Takes a buffer back. One that grew is not kept, so that a burst of large bodies does not stay in memory.
    pub fn give_back(&self, mut buffer: BytesMut) {
        buffer.clear();
        let (spare, kept) = match buffer.capacity() {
            INITIAL => (&self.spare, KEPT),
            HEAD => (&self.heads, KEPT_SMALL),
            LARGE => (&self.large, KEPT_LARGE),
            _ => return,
        };
        let mut spare = spare.borrow_mut();
        if spare.len() < kept {
            spare.push(buffer);
        }
    }
}

/// Spare values whose memory is worth keeping from one call to the next.
#[derive(Debug)]
pub struct Spare<T>(RefCell<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T: Default> Spare<T> {
    /// One of them, in whatever state it was given back.
    #[must_use]
    pub fn lend(&self) -> T {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes one back.
    pub fn give_back(&self, value: T) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < KEPT_SMALL {
            spare.push(value);
        }
    }
}

/// A value that is used in place and handed on in one piece, without leaving another one in its stead.
#[derive(Debug)]
pub struct Lent<T>(Option<Box<T>>);

impl<T> Lent<T> {
    /// Hands the value on. It must not be used here any more.
    ///
    /// # Panics
    /// When it has been handed on before.
    pub fn take(&mut self) -> Box<T> {
        self.0.take().expect("handed on once, at the end of what it was lent for")
    }
}

impl<T> From<Box<T>> for Lent<T> {
    fn from(value: Box<T>) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("not used after it was handed on")
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("not used after it was handed on")
    }
}
