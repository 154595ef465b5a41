//! What is known about the other side of a connection, and whether it is to be ended for what it does.
//!
//! Protects a worker, and so all other connections on it, from a peer whose frames cost more than they move. Two
//! [`Allowance`]s for each connection:
//!
//! | drawn on by | filled by |
//! |---|---|
//! | *chatter*: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, CONTINUATION, unknown and empty frames; HEADERS of an endpoint | calls, data in either direction |
//! | *calls*: a stream begun by a caller | its end, when its answer was whole or it had lived for 20 ms |
//!
//! So a caller that cancels is not mistaken for an attacker: calls that time out have lived, and cost nothing. What has not
//! lived is what a rapid reset (CVE-2023-44487), a flood of malformed or of refused streams consists of; some of it is
//! normal (hedges that lost), which is what the burst and the rate are for. Who draws too much gets
//! GOAWAY(ENHANCE_YOUR_CALM) and no byte of it is read any more.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_resilience::time::Timestamp;

use super::allowance::Allowance;
use super::frames::{Flags, Frame, Kind};
use super::{Code, StreamError, settings};
use crate::runtime::clock::Clock;

/// Frames that move nothing, at once and each second. A PING for each round trip and an update for each frame of data are
/// normal and earned by data; this is what is left for all else.
const CHATTER: u32 = 1_000;
const CHATTER_PER_SECOND: u32 = 100;
/// Streams that came to nothing at once, beside those in progress, and each second. 250 of them cost a worker a hundredth
/// of its time.
const CALLS: u32 = settings::CONCURRENT_STREAMS + 1_000;
const CALLS_PER_SECOND: u32 = 250;
/// A call that has lived for so long was meant: nobody's deadlines are shorter. With all places taken that is still a third of
/// what a worker can serve.
const LIVED: Duration = Duration::from_millis(20);

/// What a peer that wants the smallest frames gets our data in (RFC 9113 6.5.2).
const SMALLEST_FRAME: usize = 16 * 1024;

/// Which side the peer is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It calls us.
    Caller,
    /// We call it.
    Endpoint,
}

/// Why a connection is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Too many of these.
    Flood(&'static str),
    /// The protocol is broken, which has this code.
    Broken(Code),
}

impl Verdict {
    pub(super) fn code(self) -> Code {
        match self {
            Self::Flood(_) => Code::ENHANCE_YOUR_CALM,
            Self::Broken(code) => code,
        }
    }
}

/// What is known about the other side of a connection.
pub(super) struct Peer {
    role: Role,
    clock: Clock,
    chatter: RefCell<Allowance>,
    calls: RefCell<Allowance>,
    verdict: Cell<Option<Verdict>>,
    told: Cell<bool>,
    went_away: Cell<Option<(u32, Code)>>,
    head_since: Cell<Option<Timestamp>>,
    settled: Cell<bool>,
    heard: Cell<u64>,
    open: Cell<usize>,
    begun: Cell<u32>,
    /// Streams in progress on which a caller has said all.
    said_all: RefCell<Ids>,
    over: Cell<bool>,
    dead: Cell<bool>,
    unsent: Cell<usize>,
    /// How often all that was queued had gone out.
    cleared: Cell<u64>,
    /// To be reset when what was sent before has gone out.
    parting: RefCell<Vec<(h2::SendStream<Bytes>, Code)>>,
}

impl Peer {
    pub(super) fn new(role: Role, clock: Clock) -> Rc<Self> {
        let now = clock.now();
        Rc::new(Self {
            role,
            clock,
            chatter: RefCell::new(Allowance::new(CHATTER, CHATTER_PER_SECOND, now)),
            calls: RefCell::new(Allowance::new(CALLS, CALLS_PER_SECOND, now)),
            verdict: Cell::default(),
            told: Cell::default(),
            went_away: Cell::default(),
            head_since: Cell::new((role == Role::Caller).then_some(now)),
            settled: Cell::default(),
            heard: Cell::default(),
            open: Cell::default(),
            begun: Cell::default(),
            said_all: RefCell::default(),
            over: Cell::default(),
            dead: Cell::default(),
            unsent: Cell::default(),
            cleared: Cell::default(),
            parting: RefCell::default(),
        })
    }

    /// Why the connection is to be ended.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.verdict.get()
    }

    /// The same, once.
    pub(super) fn new_verdict(&self) -> Option<Verdict> {
        self.verdict.get().filter(|_| !self.told.replace(true))
    }

    /// Settles why the connection is to be ended, unless that has been settled.
    pub(super) fn condemn(&self, verdict: Verdict) {
        if self.verdict.get().is_none() {
            self.verdict.set(Some(verdict));
        }
    }

    /// Whether it calls us.
    pub(super) fn is_caller(&self) -> bool {
        self.role == Role::Caller
    }

    /// Since when a head, or the beginning of the connection, has been incomplete.
    pub(super) fn head_since(&self) -> Option<Timestamp> {
        self.head_since.get()
    }

    /// Whether its settings have arrived.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.get()
    }

    /// Frames heard that were more than answers to ours.
    pub(super) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// Streams in progress.
    pub(super) fn open(&self) -> usize {
        self.open.get()
    }

    /// Streams begun since the beginning.
    pub(super) fn begun(&self) -> u32 {
        self.begun.get()
    }

    /// Whether no stream can be begun any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.get() || (self.role == Role::Endpoint && self.went_away.get().is_some())
    }

    /// The connection has ended.
    pub(super) fn on_over(&self) {
        self.over.set(true);
    }

    /// Nobody is there any more.
    pub(super) fn on_dead(&self) {
        self.dead.set(true);
    }

    /// Whether the peer has said that it will not process this stream of ours.
    pub(super) fn left_out(&self, id: u32) -> bool {
        self.role == Role::Endpoint && self.went_away.get().is_some_and(|(last, _)| id > last)
    }

    /// The connection has written what it could. Returns whether there is more to write now: resets that waited for it.
    pub(super) fn on_written(&self) -> bool {
        if self.unsent.get() > 0 {
            return false;
        }
        self.cleared.set(self.cleared.get() + 1);
        let parting = self.parting.take();
        let any = !parting.is_empty();
        for (mut stream, code) in parting {
            stream.send_reset(code.0.into());
        }
        any
    }

    /// How much waits for the socket.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.get()
    }

    /// So much is what the socket did not take.
    pub(super) fn set_unsent(&self, unsent: usize) {
        self.unsent.set(unsent);
    }

    /// What the loss of the connection means to a stream.
    pub(super) fn lost(&self, id: u32, kind: io::ErrorKind) -> StreamError {
        match self.went_away.get() {
            _ if self.dead.get() => StreamError::Lost(io::ErrorKind::TimedOut),
            _ if self.verdict.get().is_some() => StreamError::Protocol,
            _ if self.left_out(id) => StreamError::NotProcessed,
            Some((_, code)) if self.role == Role::Endpoint => StreamError::GoneAway(code),
            _ => StreamError::Lost(kind),
        }
    }

    fn draw(&self, allowance: &RefCell<Allowance>, what: &'static str) {
        if !allowance.borrow_mut().draw(|| self.clock.now()) {
            self.condemn(Verdict::Flood(what));
        }
    }

    /// A frame begins; `is_new`: and a stream with it.
    pub(super) fn on_frame(&self, frame: &Frame, is_new: bool) {
        match frame.kind {
            Kind::PING if frame.has(Flags::ACK) => {}
            _ => self.heard.set(self.heard.get().wrapping_add(1)),
        }
        let worth = match (frame.kind, self.role) {
            (Kind::HEADERS, Role::Caller) => {
                if is_new {
                    self.draw(&self.calls, "calls that came to nothing");
                }
                2
            }
            (Kind::DATA, _) if frame.len > 0 || frame.has(Flags::END_STREAM) => 1 + frame.len / 4096,
            _ => {
                self.draw(&self.chatter, "frames that carry nothing");
                return;
            }
        };
        self.chatter.borrow_mut().fill(worth);
    }

    /// A caller has said all on this stream.
    pub(super) fn on_said_all(&self, id: u32) {
        let mut said_all = self.said_all.borrow_mut();
        // Streams that never began stay in it. Forgetting costs the right name of an error.
        if said_all.len() > 4 * settings::CONCURRENT_STREAMS as usize {
            said_all.clear();
        }
        said_all.insert(id);
    }

    /// Whether a caller has said all on this stream, which is in progress.
    pub(super) fn has_said_all(&self, id: u32) -> bool {
        self.said_all.borrow().contains(&id)
    }

    /// The stream is no longer in progress.
    pub(super) fn forget(&self, id: u32) {
        self.said_all.borrow_mut().remove(&id);
    }

    /// Its settings have arrived.
    pub(super) fn on_settled(&self) {
        self.settled.set(true);
    }

    /// It goes away, and processes no stream above `last`.
    pub(super) fn on_go_away(&self, last: u32, code: Code) {
        self.went_away.set(Some((last, code)));
    }

    /// Whether a head, or the beginning of the connection, is not whole.
    pub(super) fn set_head(&self, is_incomplete: bool) {
        match (is_incomplete, self.head_since.get()) {
            (true, None) => self.head_since.set(Some(self.clock.now())),
            (false, Some(_)) => self.head_since.set(None),
            _ => {}
        }
    }
}

/// Ids are counted up by the peer, at most some hundred of them are here, and collisions slow down that connection alone: they
/// are their own hash.
type Ids = HashSet<u32, BuildHasherDefault<Itself>>;

#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        // The table takes the group from the low bits and the tag from the high ones.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "an id is one number");
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id);
    }
}

/// What is known about one stream; shared by its halves.
pub(super) struct Stream {
    peer: Rc<Peer>,
    id: u32,
    began: Timestamp,
    whole: Cell<bool>,
    /// How often the connection had been cleared when something was sent last.
    sent: Cell<Option<u64>>,
}

impl Stream {
    /// A stream that has just begun.
    pub(super) fn begin(peer: &Rc<Peer>, id: u32) -> Rc<Self> {
        peer.open.set(peer.open.get() + 1);
        peer.begun.set(peer.begun.get().saturating_add(1));
        let began = match peer.role {
            Role::Caller => peer.clock.now(),
            Role::Endpoint => {
                peer.chatter.borrow_mut().fill(4);
                Timestamp::ZERO
            }
        };
        Rc::new(Self { peer: Rc::clone(peer), id, began, whole: Cell::new(false), sent: Cell::new(None) })
    }

    /// We have sent so many bytes of data. For each frame, two updates are due: of the stream and of the connection.
    pub(super) fn on_sent(&self, bytes: usize) {
        let frames = u32::try_from(bytes.div_ceil(SMALLEST_FRAME)).unwrap_or(u32::MAX);
        self.peer.chatter.borrow_mut().earn(frames.saturating_mul(2));
        self.sent.set(Some(self.peer.cleared.get()));
    }

    /// Resets `stream`, towards a caller after what was sent before has gone out: the crate would throw it away, and an
    /// answer that reached us is to reach the caller.
    pub(super) fn end(&self, mut stream: h2::SendStream<Bytes>, code: Code) {
        if self.peer.role == Role::Caller && self.sent.get() == Some(self.peer.cleared.get()) {
            self.peer.parting.borrow_mut().push((stream, code));
        } else {
            stream.send_reset(code.0.into());
        }
    }

    /// All that we had to say is on its way.
    pub(super) fn on_whole(&self) {
        self.whole.set(true);
    }

    pub(super) fn error(&self, error: &h2::Error) -> StreamError {
        StreamError::of(error, self.id, &self.peer)
    }

    pub(super) fn reset(&self, reset: &Result<h2::Reason, h2::Error>) -> StreamError {
        match reset {
            Ok(reason) => StreamError::reset(Code((*reason).into()), self.id, &self.peer),
            Err(error) => self.error(error),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let peer = &self.peer;
        peer.open.set(peer.open.get() - 1);
        peer.forget(self.id);
        if peer.role == Role::Caller && (self.whole.get() || peer.clock.now().saturating_since(self.began) >= LIVED) {
            peer.calls.borrow_mut().fill(1);
        }
    }
}
