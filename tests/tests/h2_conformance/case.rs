//! One row of the table, and how it is run.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_tests::h2::frame::{self, code};
use plimsoll_tests::h2::{PREFACE, Session, hpack, request};

/// How long a server may take to do what is due before the row counts as failed. Nothing that passes waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is sent, and the answers that the RFC allows to it.
pub struct Case {
    /// Where it stands: a section of RFC 9113, or of RFC 7541 with `hpack` before it.
    pub section: &'static str,
    /// What is sent.
    pub name: &'static str,
    /// The bytes of the opening; the usual preface and settings unless the case is about them.
    opening: Vec<u8>,
    steps: Vec<Step>,
    due: Due,
}

/// One step of a case.
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Wait until this holds.
    Until(fn(&Session) -> bool),
}

/// Looks at a session, and says what is wrong with it.
type Check = fn(&mut Session) -> Result<(), String>;

/// What must follow.
pub struct Due {
    stream: u32,
    allowed: Vec<Seen>,
    check: Option<Check>,
}

/// What a server did in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// GOAWAY with this code.
    Goaway(u32),
    /// The connection was closed without a word, which RFC 9113 5.4.1 allows for every connection error.
    Closed,
    /// The stream was reset with this code.
    Reset(u32),
    /// The stream was answered; 2xx unless the row is about something refused.
    Answered(u16),
    /// Nothing was wrong: a PING was answered.
    Alive,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.section, self.name)
    }
}

/// A row.
pub fn case(section: &'static str, name: &'static str, steps: impl Into<Vec<Step>>, due: Due) -> Case {
    let opening = [PREFACE, &frame::settings(&[])].concat();
    Case { section, name, opening, steps: steps.into(), due }
}

impl Case {
    /// With other first bytes.
    pub fn opening(mut self, bytes: impl Into<Vec<u8>>) -> Case {
        self.opening = bytes.into();
        self
    }

    /// The usual preface with settings.
    pub fn settings(self, values: &[(u16, u32)]) -> Case {
        self.opening([PREFACE, &frame::settings(values)].concat())
    }
}

/// Bytes to send.
pub fn send(bytes: impl Into<Vec<u8>>) -> Step {
    Step::Send(bytes.into())
}

/// Wait for the whole answer on stream 1.
pub fn until_answered() -> Step {
    Step::Until(|session| session.stream(1).is_over())
}

/// A connection error with one of `codes`.
pub fn connection(codes: &[u32]) -> Due {
    Due { stream: 0, allowed: connection_errors(codes).collect(), check: None }
}

fn connection_errors(codes: &[u32]) -> impl Iterator<Item = Seen> + '_ {
    codes.iter().map(|code| Seen::Goaway(*code)).chain([Seen::Closed])
}

/// A stream error with one of `codes`; RFC 9113 5.4.1 allows a connection error instead.
pub fn stream(stream: u32, codes: &[u32]) -> Due {
    let resets = codes.iter().map(|code| Seen::Reset(*code));
    Due { stream, allowed: resets.chain(connection_errors(codes)).collect(), check: None }
}

/// A malformed request (8.1.1): a stream error PROTOCOL_ERROR, before which it may be answered with 400.
pub fn malformed(id: u32) -> Due {
    let mut due = stream(id, &[code::PROTOCOL_ERROR]);
    due.allowed.push(Seen::Answered(400));
    due
}

/// An answer with 2xx on this stream.
pub fn answered(stream: u32) -> Due {
    Due { stream, allowed: vec![Seen::Answered(200)], check: None }
}

/// Nothing happens, and the connection goes on.
pub fn alive() -> Due {
    Due { stream: 0, allowed: vec![Seen::Alive], check: None }
}

/// Something that only a look at the session can tell.
pub fn check(check: Check) -> Due {
    Due { stream: 0, allowed: Vec::new(), check: Some(check) }
}

impl Due {
    /// Or nothing happens.
    pub fn or_alive(mut self) -> Due {
        self.allowed.push(Seen::Alive);
        self
    }

    /// Or the connection is closed in order.
    pub fn or_closed(mut self) -> Due {
        self.allowed.push(Seen::Closed);
        self
    }

    /// Or a connection error.
    pub fn or_connection(mut self, codes: &[u32]) -> Due {
        self.allowed.extend(connection_errors(codes));
        self
    }

    /// Or an answer.
    pub fn or_answered(mut self) -> Due {
        self.allowed.push(Seen::Answered(200));
        self
    }
}

/// A request's head on `stream`.
pub fn get(stream: u32) -> Vec<u8> {
    frame::headers(stream, true, hpack::block(&request("GET", "/")))
}

/// The head of a request whose body follows.
pub fn post(stream: u32) -> Vec<u8> {
    frame::headers(stream, false, hpack::block(&request("POST", "/")))
}

/// The block of a GET with further fields.
pub fn block_with(more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = request("GET", "/").to_vec();
    fields.extend(more);
    hpack::block(&fields)
}

/// Runs one case: what was seen, or what is wrong with it.
pub fn run(case: &Case, server: SocketAddr) -> Result<Seen, String> {
    let mut session = Session::raw(server).map_err(|error| error.to_string())?;
    session.reads = false;
    session.send(&case.opening);
    for step in &case.steps {
        match step {
            Step::Send(bytes) => {
                session.send(bytes);
            }
            Step::Until(done) => {
                let over = |session: &Session| done(session) || !session.goaways.is_empty();
                if !session.wait_for(PATIENCE, over) {
                    return Err(format!("what it waits for never came: {}", session.describe()));
                }
            }
        }
    }
    if let Some(check) = case.due.check {
        return check(&mut session).map(|()| Seen::Alive).map_err(|wrong| format!("{wrong}: {}", session.describe()));
    }
    let seen = observe(&mut session, &case.due)?;
    let allowed = |seen: Seen| match seen {
        // One status stands for all that say the same.
        Seen::Answered(200..=299) => case.due.allowed.contains(&Seen::Answered(200)),
        Seen::Answered(400..=499) => case.due.allowed.contains(&Seen::Answered(400)),
        seen => case.due.allowed.contains(&seen),
    };
    if allowed(seen) {
        return Ok(seen);
    }
    Err(format!("{seen:?} instead of one of {:?}: {}", case.due.allowed, session.describe()))
}

/// What the server makes of it. A PING after the last frame is answered once everything before it was looked at, so
/// what must be noticed by the codec is known then; an answer may take its time.
fn observe(session: &mut Session, due: &Due) -> Result<Seen, String> {
    let probe = *b"conform!";
    session.send(frame::ping(probe));
    let ponged = |session: &Session| session.pongs.iter().any(|pong| *pong == probe);
    let failed = |session: &Session| session.goaways.iter().any(|(_, code)| *code != code::NO_ERROR);
    session.wait_for(PATIENCE, |session| ponged(session) || failed(session));
    let may_be_nothing = due.allowed.contains(&Seen::Alive);
    if due.stream != 0 && !may_be_nothing {
        // A stream that was answered may be reset all the same, for what came after its end.
        let answers = due.allowed.iter().any(|seen| matches!(seen, Seen::Answered(_)));
        session.wait_for(PATIENCE, |session| {
            let stream = session.stream(due.stream);
            failed(session) || stream.reset.is_some() || answers && stream.is_over()
        });
    }
    if let Some((_, code)) = session.goaways.iter().find(|(_, code)| *code != code::NO_ERROR) {
        return Ok(Seen::Goaway(*code));
    }
    if session.peer.is_closed() {
        return Ok(Seen::Closed);
    }
    if !ponged(session) {
        return Err(format!("neither an error nor the answer to a PING: {}", session.describe()));
    }
    let stream = session.stream(due.stream);
    match (stream.reset, stream.answer()) {
        // The reset after a whole answer says that the rest of the request is not wanted (8.1).
        (Some(code::NO_ERROR) | None, Some(answer)) if due.stream != 0 && answer.ended => {
            Ok(Seen::Answered(answer.status))
        }
        (Some(code), _) => Ok(Seen::Reset(code)),
        _ => Ok(Seen::Alive),
    }
}
