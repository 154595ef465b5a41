//! Frames as they pass (RFC 9113 section 4), and what of them is wrong by itself.
//!
//! Empty DATA frames that end nothing are taken out: the crate ends a connection for a hundred of them in its life, which an
//! honest server that flushes too often reaches after a day.
//!
//! The crate finds all that is wrong, but has PROTOCOL_ERROR for most of it. Where the RFC wants another code and the frame alone
//! shows it, the connection of a caller is ended from here; of what an endpoint does wrong, only that it failed is of interest.
//! What is wrong within a header block only the crate sees; its code is corrected on the way out, see [`hpack`].

use super::Code;
use super::hpack::{self, Fault};
use super::peer::{Peer, Verdict};

/// Frame types that matter here (RFC 9113 section 6).
pub(super) struct Kind;

impl Kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const PRIORITY: u8 = 2;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

pub(super) struct Flags;

impl Flags {
    pub(super) const ACK: u8 = 1;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
    pub(super) const PADDED: u8 = 8;
    pub(super) const PRIORITY: u8 = 0x20;
}

/// The nine bytes that a frame begins with (RFC 9113 4.1).
#[derive(Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) len: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

const FRAME_HEAD: usize = 9;

impl Frame {
    fn parse(head: [u8; FRAME_HEAD]) -> Self {
        let [a, b, c, kind, flags, id @ ..] = head;
        Self { len: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: u32::from_be_bytes(id) & LARGEST }
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Says nothing: neither data nor the end of it.
    const fn is_empty_data(&self) -> bool {
        self.kind == Kind::DATA && self.len == 0 && !self.has(Flags::END_STREAM)
    }

    const fn is_head(&self) -> bool {
        matches!(self.kind, Kind::HEADERS | Kind::PUSH_PROMISE | Kind::CONTINUATION)
    }

    /// Ends what the sender says on the stream.
    const fn says_all(&self) -> bool {
        matches!(self.kind, Kind::DATA | Kind::HEADERS) && self.has(Flags::END_STREAM)
    }

    /// RFC 9113 6.3 to 6.9.
    const fn has_its_size(&self) -> bool {
        match self.kind {
            Kind::SETTINGS if self.has(Flags::ACK) => self.len == 0,
            Kind::SETTINGS => self.len.is_multiple_of(SETTING as u32),
            Kind::PRIORITY => self.len == 5,
            Kind::RST_STREAM | Kind::WINDOW_UPDATE => self.len == 4,
            Kind::PING => self.len == 8,
            Kind::GOAWAY => self.len >= 8,
            _ => true,
        }
    }
}

const PREFACE: usize = 24;
/// More of a head is not looked at again. It stays while its connection is idle, so it is little.
const LONGEST_BLOCK: usize = 4 * 1024;
/// An identifier of 16 bits and a value of 32.
const SETTING: usize = 6;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The largest window, and the largest id.
const LARGEST: u32 = u32::MAX >> 1;

/// Where in the frames the bytes are.
#[derive(Default)]
pub(super) struct Frames {
    /// What is left of the preface.
    preface: usize,
    /// The frame that is being read, and how much is left of it.
    frame: Frame,
    left: usize,
    /// A head that did not fit into the bytes at hand.
    head: [u8; FRAME_HEAD],
    have: usize,
    /// The first bytes of a GOAWAY, or the setting that is being read.
    payload: [u8; 8],
    /// More frames of the same head follow.
    continues: bool,
    /// The last head of a caller, as far as it has come: its frames without their heads, the first of them this long and
    /// with these flags.
    block: Vec<u8>,
    first: Frame,
    /// It begins a stream that may be begun.
    first_is_in_order: bool,
    /// It ends a stream that was begun before.
    are_trailers: bool,
    /// How many heads have come with the bytes that were looked at last: of several any may be at fault.
    heads: u32,
    /// Something has followed that may be at fault itself.
    went_on: bool,
    /// The highest stream begun by the peer.
    highest: u32,
    /// The first frame has come.
    begun: bool,
}

impl Frames {
    pub(super) fn new(peer: &Peer) -> Self {
        Self { preface: if peer.is_caller() { PREFACE } else { 0 }, ..Self::default() }
    }

    /// Looks at the next bytes, moves out what is not to be passed on, and says how many are left. What follows a frame that
    /// ends the connection is not passed on.
    pub(super) fn pass(&mut self, bytes: &mut [u8], peer: &Peer) -> usize {
        let (mut at, mut kept) = (0, 0);
        self.heads = 0;
        while at < bytes.len() {
            let rest = bytes.len() - at;
            let (len, is_kept) = if self.preface > 0 {
                let len = self.preface.min(rest);
                self.preface -= len;
                (len, true)
            } else if self.left > 0 {
                let len = self.left.min(rest);
                self.on_payload(&bytes[at..at + len], peer);
                (len, true)
            } else {
                self.take_head(&bytes[at..], peer)
            };
            if peer.verdict().is_some() {
                return kept;
            }
            if is_kept {
                if at != kept {
                    bytes.copy_within(at..at + len, kept);
                }
                kept += len;
            }
            at += len;
        }
        let begins = peer.is_caller() && !peer.is_settled();
        peer.set_head(begins || self.continues || (self.left > 0 && self.frame.is_head()));
        kept
    }

    /// Takes a head, or a part of it, and says how long that is and whether it is passed on.
    fn take_head(&mut self, bytes: &[u8], peer: &Peer) -> (usize, bool) {
        let len = (FRAME_HEAD - self.have).min(bytes.len());
        self.head[self.have..self.have + len].copy_from_slice(&bytes[..len]);
        self.have += len;
        if self.have < FRAME_HEAD {
            return (len, true);
        }
        self.have = 0;
        self.on_head(peer);
        // Of a head that came in pieces the first ones have been passed on.
        (len, !self.frame.is_empty_data() || len < FRAME_HEAD)
    }

    fn on_head(&mut self, peer: &Peer) {
        let frame = Frame::parse(self.head);
        let is_new = frame.kind == Kind::HEADERS && frame.stream > self.highest;
        if is_new {
            self.highest = frame.stream;
        }
        if peer.is_caller() {
            if let Some(code) = self.fault(&frame, is_new, peer) {
                return peer.condemn(Verdict::Broken(code));
            }
            match frame.kind {
                Kind::RST_STREAM => peer.forget(frame.stream),
                _ if frame.says_all() => peer.on_said_all(frame.stream),
                _ => {}
            }
        }
        self.went_on = match frame.kind {
            Kind::HEADERS => self.continues,
            Kind::CONTINUATION => self.went_on || !self.continues || frame.stream != self.first.stream,
            // Nothing is wrong with these by themselves.
            Kind::PING => self.went_on || self.continues,
            Kind::SETTINGS if frame.has(Flags::ACK) => self.went_on || self.continues,
            _ => true,
        };
        if frame.is_head() {
            self.continues = !frame.has(Flags::END_HEADERS);
            if frame.kind == Kind::HEADERS {
                self.heads += 1;
                self.block.clear();
                self.first = frame;
                self.first_is_in_order = is_new && frame.stream % 2 == 1;
                self.are_trailers = !is_new;
            }
        }
        self.begun = true;
        peer.on_frame(&frame, is_new);
        self.frame = frame;
        self.left = frame.len as usize;
        if self.left == 0 {
            self.on_whole(peer);
        }
    }

    fn fault(&self, frame: &Frame, is_new: bool, peer: &Peer) -> Option<Code> {
        // RFC 9113 3.4.
        if !self.begun && (frame.kind != Kind::SETTINGS || frame.has(Flags::ACK)) {
            return Some(Code::PROTOCOL_ERROR);
        }
        // The crate says what is wrong with a frame between two of one head, whatever else it is.
        if self.continues {
            return None;
        }
        if !frame.has_its_size() {
            return Some(Code::FRAME_SIZE_ERROR);
        }
        // RFC 9113 5.1, half-closed (remote).
        let goes_on = matches!(frame.kind, Kind::DATA | Kind::HEADERS) && !is_new;
        (goes_on && peer.has_said_all(frame.stream)).then_some(Code::STREAM_CLOSED)
    }

    fn on_payload(&mut self, bytes: &[u8], peer: &Peer) {
        let seen = self.frame.len as usize - self.left;
        self.left -= bytes.len();
        match self.frame.kind {
            Kind::HEADERS | Kind::CONTINUATION if peer.is_caller() && self.block.len() <= LONGEST_BLOCK => {
                let room = LONGEST_BLOCK + 1 - self.block.len();
                self.block.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Kind::GOAWAY => {
                let words = self.payload.iter_mut().skip(seen);
                words.zip(bytes).for_each(|(word, byte)| *word = *byte);
            }
            Kind::SETTINGS if peer.is_caller() => {
                for (at, byte) in bytes.iter().enumerate() {
                    let at = (seen + at) % SETTING;
                    self.payload[at] = *byte;
                    if at == SETTING - 1 {
                        self.on_setting(peer);
                    }
                }
            }
            _ => {}
        }
        if self.left == 0 {
            self.on_whole(peer);
        }
    }

    /// Whether the last head, with which the crate has found fault, cannot be decompressed.
    pub(super) fn is_head_broken(&self) -> bool {
        let is_coming = self.continues || self.frame.is_head() && self.left > 0;
        let Some(block) = self.last_block().filter(|_| !is_coming) else { return false };
        match hpack::fault(&block) {
            Fault::Broken => true,
            Fault::Said => false,
            // A head in its place, with nothing else to be said against it or behind it.
            Fault::None => self.first_is_in_order && !self.went_on && self.heads <= 1,
        }
    }

    fn are_malformed_trailers(&self) -> bool {
        let is_whole = self.are_trailers && !self.continues;
        is_whole && self.last_block().is_some_and(|block| hpack::has_pseudo(&block))
    }

    /// The last head without what frames add to it.
    fn last_block(&self) -> Option<Vec<u8>> {
        if self.block.len() > LONGEST_BLOCK {
            return None;
        }
        let (mut first, rest) = self.block.split_at(self.block.len().min(self.first.len as usize));
        if self.first.has(Flags::PADDED) {
            let (&padding, padded) = first.split_first()?;
            first = padded.get(..padded.len().checked_sub(padding.into())?)?;
        }
        if self.first.has(Flags::PRIORITY) {
            first = first.get(5..)?;
        }
        Some([first, rest].concat())
    }

    /// RFC 9113 6.5.2.
    fn on_setting(&self, peer: &Peer) {
        let [a, b, value @ ..] = *self.payload.first_chunk::<SETTING>().expect("eight are more than six");
        if u16::from_be_bytes([a, b]) == INITIAL_WINDOW_SIZE && u32::from_be_bytes(value) > LARGEST {
            peer.condemn(Verdict::Broken(Code::FLOW_CONTROL_ERROR));
        }
    }

    fn on_whole(&mut self, peer: &Peer) {
        match self.frame.kind {
            Kind::SETTINGS if !self.frame.has(Flags::ACK) => peer.on_settled(),
            // RFC 9113 8.1: the crate drops pseudo fields from trailers without a word. Requests with trailers are rare
            // enough to be looked through.
            Kind::HEADERS | Kind::CONTINUATION if peer.is_caller() && self.are_malformed_trailers() => {
                peer.condemn(Verdict::Broken(Code::PROTOCOL_ERROR));
            }
            Kind::GOAWAY if self.frame.len >= 8 => {
                let [a, b, c, d, code @ ..] = self.payload;
                peer.on_go_away(u32::from_be_bytes([a, b, c, d]) & LARGEST, Code(u32::from_be_bytes(code)));
            }
            _ => {}
        }
    }
}
