//! A body in the pieces in which HTTP/2 brought it. They are handed on as they are: what is kept for another attempt
//! and what is on its way share the same memory.

use std::collections::VecDeque;

use bytes::Bytes;

/// Pieces of a body, those that were sent and are kept, and those that are yet to be sent.
#[derive(Debug, Default)]
pub struct Pieces {
    list: VecDeque<Bytes>,
    /// The piece that is sent next, and how much of it was sent.
    next: usize,
    offset: usize,
    held: usize,
}

impl Pieces {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.held += piece.len();
            self.list.push_back(piece);
        }
    }

    /// The rest of the piece that is sent next; empty when all was sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.list.get(self.next).map_or(&[], |piece| &piece[self.offset..])
    }

    /// Whether all that is here was sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.next == self.list.len()
    }

    /// `count` more bytes were sent.
    pub fn on_sent(&mut self, count: usize) {
        self.offset += count;
        while let Some(piece) = self.list.get(self.next).filter(|piece| piece.len() <= self.offset) {
            self.offset -= piece.len();
            self.next += 1;
        }
        debug_assert!(self.offset == 0 || self.next < self.list.len(), "more was sent than there was");
    }

    /// At most `most` bytes that are to be sent next, as sent.
    pub fn take(&mut self, most: usize) -> Bytes {
        let Some(piece) = self.list.get(self.next) else { return Bytes::new() };
        let end = piece.len().min(self.offset.saturating_add(most));
        let taken = piece.slice(self.offset..end);
        self.on_sent(taken.len());
        taken
    }

    /// Begins again. Only while nothing of it was let go.
    pub fn rewind(&mut self) {
        self.next = 0;
        self.offset = 0;
    }

    /// Lets go of what was sent. False when nothing was.
    pub fn let_go(&mut self) -> bool {
        let sent = std::mem::take(&mut self.next);
        for _ in 0..sent {
            self.held -= self.list.pop_front().map_or(0, |piece| piece.len());
        }
        sent > 0
    }

    /// Bytes held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let mut pieces = Pieces::default();
        for piece in ["ab", "", "cde", "f"] {
            pieces.push(Bytes::from_static(piece.as_bytes()));
        }
        pieces
    }

    fn drain(pieces: &mut Pieces, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !pieces.is_sent() {
            all.extend_from_slice(&pieces.take(most));
        }
        all
    }

    #[test]
    fn whatever_the_room_the_bytes_come_in_order_and_again_after_a_rewind() {
        for most in 1..8 {
            let mut pieces = pieces();
            assert_eq!(drain(&mut pieces, most), b"abcdef", "{most}");
            pieces.rewind();
            assert_eq!(drain(&mut pieces, most), b"abcdef", "{most}");
            assert_eq!(pieces.held(), 6);
        }
    }

    #[test]
    fn what_was_sent_is_let_go_and_nothing_else() {
        let mut pieces = pieces();
        pieces.on_sent(3);
        pieces.let_go();
        assert_eq!(pieces.held(), 4);
        assert_eq!(pieces.unsent(), b"de");
        assert_eq!(drain(&mut pieces, 9), b"def");
        pieces.let_go();
        assert_eq!(pieces.held(), 0);
        assert!(pieces.unsent().is_empty());
    }
}
