//! A connection whose frames are kept in order by stream: what a test asks of either side.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::frame::{self, Frame};
use super::hpack::{self, Decoder};
use super::peer::{Next, PREFACE, Peer};
use crate::PATIENCE;

/// What has arrived on one stream.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// Each block of fields in its order: interim heads, the head, trailers.
    pub blocks: Vec<Vec<(String, String)>>,
    /// The bytes of DATA.
    pub data: Vec<u8>,
    /// Whether END_STREAM came.
    pub ended: bool,
    /// The code of RST_STREAM.
    pub reset: Option<u32>,
}

/// A final answer, as a caller sees it.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status of the final head.
    pub status: u16,
    /// Its fields, without pseudo fields.
    pub fields: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// Statuses of the interim heads before it.
    pub interim: Vec<u16>,
    /// Whether it ended with END_STREAM.
    pub ended: bool,
    /// The code of the reset that cut it or followed it.
    pub reset: Option<u32>,
}

impl Answer {
    /// The first field called `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The reason in `proxy-status`, where the proxy made this answer itself.
    pub fn reason(&self) -> Option<&str> {
        self.field("proxy-status")?.split_once("reason=")?.1.split([' ', '"']).next()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Stream {
    /// The status of the block number `nth`; none for trailers.
    fn status(&self, nth: usize) -> Option<u16> {
        self.blocks.get(nth)?.iter().find(|(name, _)| name == ":status")?.1.parse().ok()
    }

    /// The first field of the first block called `name`; pseudo fields too.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.blocks.first()?.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }

    /// The final answer; none before its head.
    pub fn answer(&self) -> Option<Answer> {
        let statuses = (0..self.blocks.len()).map_while(|nth| self.status(nth));
        let interim: Vec<u16> = statuses.take_while(|status| *status < 200).collect();
        let nth = interim.len();
        let status = self.status(nth)?;
        let fields = self.blocks[nth].iter().filter(|(name, _)| !name.starts_with(':')).cloned().collect();
        let trailers = self.blocks.get(nth + 1).cloned().unwrap_or_default();
        Some(Answer {
            status,
            fields,
            body: self.data.clone(),
            trailers,
            interim,
            ended: self.ended,
            reset: self.reset,
        })
    }
}

/// One connection: a client of a server, or the other way round.
pub struct Session {
    /// The connection below.
    pub peer: Peer,
    /// What arrived, by stream.
    pub streams: BTreeMap<u32, Stream>,
    /// Each GOAWAY: last stream id and code.
    pub goaways: Vec<(u32, u32)>,
    /// The other side's settings, as they stand.
    pub settings: BTreeMap<u16, u32>,
    /// SETTINGS of ours that were acknowledged.
    pub acknowledged: usize,
    /// Payloads of PINGs that were answered.
    pub pongs: Vec<Vec<u8>>,
    /// Type and flags of the first frame that came.
    pub first_frame: Option<(u8, u8)>,
    /// Whether DATA is made room for as it comes: `true` unless a test holds it back.
    pub reads: bool,
    /// Streams whose DATA no room is made for, while the rest are read.
    pub stalled: BTreeSet<u32>,
    /// How many bytes of DATA are taken in before room for them is given back: half of what this side allows, as most
    /// implementations have it.
    pub gives_back_at: u32,
    /// Whether PING and SETTINGS are answered.
    pub replies: bool,
    taken: BTreeMap<u32, u32>,
    decoder: Decoder,
    block: Vec<u8>,
    next_stream: u32,
}

impl Session {
    fn new(peer: Peer) -> Session {
        Session {
            peer,
            streams: BTreeMap::new(),
            goaways: Vec::new(),
            settings: BTreeMap::new(),
            acknowledged: 0,
            pongs: Vec::new(),
            first_frame: None,
            reads: true,
            stalled: BTreeSet::new(),
            gives_back_at: 32_767,
            replies: true,
            taken: BTreeMap::new(),
            decoder: Decoder::default(),
            block: Vec::new(),
            next_stream: 1,
        }
    }

    /// A client that has sent nothing.
    pub fn raw(address: SocketAddr) -> std::io::Result<Session> {
        Ok(Session::new(Peer::try_connect(address)?))
    }

    /// A client that has sent the preface and these settings, and nothing else.
    pub fn open(address: SocketAddr, settings: &[(u16, u32)]) -> std::io::Result<Session> {
        let mut session = Session::raw(address)?;
        let window = settings.iter().rev().find(|(key, _)| *key == frame::setting::INITIAL_WINDOW_SIZE);
        session.gives_back_at = window.map_or(session.gives_back_at, |(_, window)| (window / 2).max(1));
        session.peer.send([PREFACE, &frame::settings(settings)].concat());
        Ok(session)
    }

    /// A client whose settings were acknowledged.
    ///
    /// # Panics
    /// When they are not.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Session {
        Session::connect_with(address, &[])
    }

    /// The same with settings of its own.
    #[track_caller]
    pub fn connect_with(address: SocketAddr, settings: &[(u16, u32)]) -> Session {
        let mut session = Session::open(address, settings).unwrap_or_else(|error| panic!("{address}: {error}"));
        assert!(session.wait(|session| session.acknowledged > 0), "no handshake: {}", session.describe());
        session
    }

    /// A server on an accepted connection; none when no client's preface comes.
    pub fn accept(stream: std::net::TcpStream, settings: &[(u16, u32)]) -> Option<Session> {
        let mut session = Session::new(Peer::new(stream));
        session.peer.read_preface().then_some(())?;
        session.peer.send(frame::settings(settings));
        Some(session)
    }

    /// Sends bytes as they are; false when the other side takes none any more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.peer.send(bytes)
    }

    /// Opens the next stream with a head of these fields.
    pub fn begin<N: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, fields: &[(N, V)], ends: bool) -> u32 {
        let stream = self.next_id();
        self.peer.send(frame::headers(stream, ends, hpack::block(fields)));
        stream
    }

    /// The next stream id of a client.
    pub fn next_id(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Handles what comes until `done`; false when the connection ended or [`PATIENCE`] did before.
    pub fn wait(&mut self, done: impl Fn(&Session) -> bool) -> bool {
        self.wait_for(PATIENCE, done)
    }

    /// The same with other patience.
    pub fn wait_for(&mut self, patience: Duration, done: impl Fn(&Session) -> bool) -> bool {
        let end = Instant::now() + patience;
        while !done(self) {
            match self.peer.next(end.saturating_duration_since(Instant::now())) {
                Next::Frame(frame) => self.handle(&frame),
                Next::Closed | Next::Silent => return done(self),
            }
        }
        true
    }

    /// Whether the connection still works: a PING is answered.
    pub fn is_alive(&mut self) -> bool {
        let payload = [b'a', b'l', b'i', b'v', b'e', b'?', 0, u8::try_from(self.pongs.len() % 256).expect("a byte")];
        self.peer.send(frame::ping(payload));
        self.wait(|session| session.pongs.iter().any(|pong| *pong == payload))
    }

    /// What arrived on `stream`; nothing, when nothing did.
    pub fn stream(&self, stream: u32) -> Stream {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// Waits until `stream` has ended or was reset.
    ///
    /// # Panics
    /// When there is no final head by then.
    #[track_caller]
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.wait(|session| session.stream(stream).is_over());
        let found = self.stream(stream).answer();
        found.unwrap_or_else(|| panic!("no answer on stream {stream}: {}", self.describe()))
    }

    /// One call, from its head to the end of its answer.
    #[track_caller]
    pub fn call(&mut self, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let stream = self.begin(fields, body.is_empty());
        if !body.is_empty() {
            self.send(frame::data(stream, true, body));
        }
        self.answer(stream)
    }

    /// `GET path`.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.call(&request("GET", path), b"")
    }

    /// The next request that has ended, for a server; none when the client has gone. What it sent is forgotten, so that
    /// a server may live long.
    pub fn next_request(&mut self) -> Option<(u32, Stream)> {
        let ended = |session: &Session| session.streams.iter().find(|(_, stream)| stream.ended).map(|(id, _)| *id);
        while ended(self).is_none() {
            match self.peer.next(Duration::from_secs(3_600)) {
                Next::Frame(frame) => self.handle(&frame),
                Next::Closed | Next::Silent => return None,
            }
        }
        self.streams.remove_entry(&ended(self)?)
    }

    /// What is known of the connection, for a message.
    pub fn describe(&self) -> String {
        format!(
            "goaways {:?}, closed {}, streams {:?}, rest {:?}",
            self.goaways,
            self.peer.is_closed(),
            self.streams,
            String::from_utf8_lossy(&self.peer.rest()[..self.peer.rest().len().min(200)])
        )
    }

    /// Takes in one frame.
    fn handle(&mut self, frame: &Frame) {
        self.first_frame.get_or_insert((frame.kind, frame.flags));
        match frame.kind {
            frame::SETTINGS if frame.has(frame::ACK) => self.acknowledged += 1,
            frame::SETTINGS => {
                for six in frame.payload.chunks_exact(6) {
                    let value = u32::from_be_bytes([six[2], six[3], six[4], six[5]]);
                    self.settings.insert(u16::from_be_bytes([six[0], six[1]]), value);
                }
                if self.replies {
                    self.peer.send(frame::settings_ack());
                }
            }
            frame::PING if frame.has(frame::ACK) => self.pongs.push(frame.payload.clone()),
            frame::PING if self.replies => {
                self.peer.send(frame::frame(frame::PING, frame::ACK, 0, &frame.payload));
            }
            frame::GOAWAY => self.goaways.push((frame.number(0) & 0x7fff_ffff, frame.number(4))),
            frame::RST_STREAM => self.entry(frame.stream).reset = Some(frame.number(0)),
            frame::DATA => self.handle_data(frame),
            frame::HEADERS | frame::CONTINUATION => self.handle_headers(frame),
            _ => {}
        }
    }

    fn entry(&mut self, stream: u32) -> &mut Stream {
        self.streams.entry(stream).or_default()
    }

    fn handle_data(&mut self, frame: &Frame) {
        let stream = self.entry(frame.stream);
        stream.data.extend_from_slice(frame.content());
        stream.ended |= frame.has(frame::END_STREAM);
        if self.reads && !self.stalled.contains(&frame.stream) {
            let length = u32::try_from(frame.payload.len()).expect("a frame's length");
            self.give_back(0, length, false);
            self.give_back(frame.stream, length, frame.has(frame::END_STREAM));
        }
    }

    /// Makes room for what was taken in, once it is enough to say so; a stream that has ended needs none.
    fn give_back(&mut self, stream: u32, length: u32, ended: bool) {
        let taken = self.taken.entry(stream).or_default();
        *taken += length;
        if ended {
            self.taken.remove(&stream);
        } else if *taken >= self.gives_back_at {
            self.peer.send(frame::window_update(stream, std::mem::take(taken)));
        }
    }

    fn handle_headers(&mut self, frame: &Frame) {
        self.block.extend_from_slice(frame.content());
        // END_STREAM stands on the HEADERS, whose CONTINUATIONs may come later.
        let ends = frame.kind == frame::HEADERS && frame.has(frame::END_STREAM);
        self.entry(frame.stream).ended |= ends;
        if !frame.has(frame::END_HEADERS) {
            return;
        }
        let block = std::mem::take(&mut self.block);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = self.decoder.decode(&block).expect("the other side's fields can be decoded");
        let fields = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        self.entry(frame.stream).blocks.push(fields);
    }
}

/// The fields of an ordinary request.
pub fn request<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test.internal")]
}
