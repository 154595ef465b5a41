//! What holds for any bytes whatever. Shared by the property tests, the replay of the corpus, and the fuzz targets.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]
#![allow(dead_code, reason = "each user takes what it needs")]

use plimsoll_h1::{
    BodyDecoder, BodyError, BodyFraming, Decoded, FieldKind, Fields, Limits, Method, RequestHead, ResponseHead,
    Rewrite, TargetForm, Upgrade, Version, decode_request, decode_response, encode_request, encode_response,
    may_complete,
};

/// Small enough that a fuzzer reaches them.
pub const LIMITS: Limits =
    Limits { head_bytes: 1024, fields: 24, target_bytes: 256, trailer_bytes: 256, chunk_extension_bytes: 64 };

/// A request and its body.
pub fn request(buf: &[u8]) {
    let mut head = RequestHead::default();
    let whole = decode_request(buf, &LIMITS, &mut head);
    let scratch = &mut RequestHead::default();
    grows_into(buf, whole.ok(), |prefix| decode_request(prefix, &LIMITS, scratch).ok());
    let Ok(Decoded::Complete { len }) = whole else {
        return;
    };
    assert!(len <= buf.len() && head.framing != BodyFraming::UntilClose);
    assert!(head.version == Version::Http10 || !head.host.is_empty());

    let sent = sent_request(&head, buf);
    let mut again = RequestHead::default();
    let decoded = decode_request(&sent, &Limits::default(), &mut again);
    assert_eq!(decoded, Ok(Decoded::Complete { len: sent.len() }), "{}", sent.escape_ascii());
    assert_eq!(again.version, Version::Http11);
    assert_eq!(again.method_name.of(&sent), head.method_name.of(buf));
    assert_eq!((again.framing, again.expect_continue), (head.framing, head.expect_continue));
    assert_eq!(again.upgrade, passed(head.upgrade));
    assert!(again.keep_alive && again.te_trailers == head.te_trailers);
    if !head.host.is_empty() {
        assert_eq!(again.host.of(&sent), head.host.of(buf));
    }
    if head.form != TargetForm::Absolute {
        assert_eq!(again.target.of(&sent), head.target.of(buf));
    }
    let is_ours = |kind| is_framing(kind) || matches!(kind, FieldKind::Host | FieldKind::Connection);
    assert_eq!(forwarded(&again.fields, &sent, is_ours), forwarded(&head.fields, buf, is_ours));
    assert_eq!(sent_request(&again, &sent), sent, "what we send we pass on as it is");
    body(head.framing, &buf[len..]);
}

/// The bytes that go out for it, unchanged but for what every hop changes.
pub fn sent_request(head: &RequestHead, buf: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    let host = head.host.is_empty().then_some(b"fallback.test".as_slice());
    encode_request(head, buf, &Rewrite { host, ..Rewrite::default() }, &mut sent);
    sent
}

/// The method that a byte stands for in the input of a fuzz target: those that change how an answer ends, and one other.
pub fn method(choice: u8) -> Method {
    match choice % 3 {
        0 => Method::Get,
        1 => Method::Head,
        _ => Method::Connect,
    }
}

/// A response to `method` and its body.
pub fn response(method: Method, buf: &[u8]) {
    let mut head = ResponseHead::default();
    let whole = decode_response(buf, method, &LIMITS, &mut head);
    let scratch = &mut ResponseHead::default();
    grows_into(buf, whole.ok(), |prefix| decode_response(prefix, method, &LIMITS, scratch).ok());
    let Ok(Decoded::Complete { len }) = whole else {
        return;
    };

    let mut sent = Vec::new();
    encode_response(&head, buf, &Rewrite::default(), &mut sent);
    let mut again = ResponseHead::default();
    let decoded = decode_response(&sent, method, &Limits::default(), &mut again);
    assert_eq!(decoded, Ok(Decoded::Complete { len: sent.len() }), "{}", sent.escape_ascii());
    assert_eq!((again.status, again.framing), (head.status, head.framing));
    assert_eq!(again.upgrade, passed(head.upgrade));
    assert_eq!(again.reason.of(&sent), head.reason.of(buf));
    let is_bodiless = head.framing == BodyFraming::None;
    let is_ours = |kind| kind == FieldKind::Connection || (is_framing(kind) && !is_bodiless);
    assert_eq!(forwarded(&again.fields, &sent, is_ours), forwarded(&head.fields, buf, is_ours));
    let mut twice = Vec::new();
    encode_response(&again, &sent, &Rewrite::default(), &mut twice);
    assert_eq!(twice, sent, "what we send we pass on as it is");
    body(head.framing, &buf[len..]);
}

/// Written anew where they were written in an unusual way; that they mean the same is asked of the framing.
fn is_framing(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
}

/// All but WebSocket stay behind.
fn passed(upgrade: Upgrade) -> Upgrade {
    if upgrade == Upgrade::WebSocket { upgrade } else { Upgrade::None }
}

/// Kind, name and value of each field that goes on.
fn forwarded<'b>(
    fields: &Fields,
    buf: &'b [u8],
    is_ours: impl Fn(FieldKind) -> bool,
) -> Vec<(FieldKind, &'b [u8], &'b [u8])> {
    let stays = fields.iter().filter(|field| !field.hop && !is_ours(field.kind));
    stays.map(|field| (field.kind, field.name.of(buf), field.value.of(buf))).collect()
}

/// Shorter is incomplete until it is decided, and what was decided stays; `may_complete` never says no too often.
fn grows_into(buf: &[u8], whole: Option<Decoded>, mut decode: impl FnMut(&[u8]) -> Option<Decoded>) {
    let stride = if buf.len() <= 256 { 1 } else { buf.len() / 64 };
    let mut before = Some(Decoded::Incomplete);
    for len in (0..=buf.len()).step_by(stride) {
        let now = decode(&buf[..len]);
        match before {
            Some(Decoded::Incomplete) => {
                if matches!(now, Some(Decoded::Complete { .. })) {
                    assert!(may_complete(&buf[..len], len.saturating_sub(stride), &LIMITS));
                }
            }
            _ => assert_eq!(now, before, "decided, then changed at {len}"),
        }
        before = now;
    }
    if before != Some(Decoded::Incomplete) {
        assert_eq!(whole, before);
    }
}

/// What a body came to: its data, its trailers, and how many bytes it took.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    pub data: Vec<u8>,
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    pub used: usize,
    pub ended: bool,
}

/// Decodes `buf` in pieces of at most `step` bytes.
pub fn decode_body(decoder: &mut BodyDecoder, buf: &[u8], step: usize) -> Result<Body, BodyError> {
    let mut body = Body { data: Vec::new(), trailers: Vec::new(), used: 0, ended: decoder.is_end() };
    while !body.ended && body.used < buf.len() {
        let end = buf.len().min(body.used.saturating_add(step));
        let at_hand = &buf[body.used..end];
        let piece = decoder.decode(at_hand)?;
        let used = piece.skip + piece.len;
        assert!(used > 0, "every call uses something up");
        assert!(piece.end || piece.len > 0 || used == at_hand.len(), "no progress that means nothing");
        body.data.extend_from_slice(&at_hand[piece.skip..used]);
        body.used += used;
        body.ended = piece.end;
        assert_eq!(piece.end, decoder.is_end());
    }
    if let Some(trailers) = decoder.trailers() {
        body.trailers = trailers.iter().map(|(_, name, value)| (name.to_vec(), value.to_vec())).collect();
    }
    Ok(body)
}

/// A body, whole and in pieces, taken apart and verbatim.
pub fn body(framing: BodyFraming, buf: &[u8]) {
    let mut decoder = BodyDecoder::new(framing, &LIMITS);
    let whole = decode_body(&mut decoder, buf, usize::MAX);
    if let Ok(body) = &whole {
        assert_eq!(decoder.data_bytes(), body.data.len() as u64);
        assert_eq!(decoder.close().is_ok(), body.ended || framing == BodyFraming::UntilClose);
    }
    for step in [1, 2, 3, 7, 64] {
        assert_eq!(decode_body(&mut BodyDecoder::new(framing, &LIMITS), buf, step), whole, "in pieces of {step}");
    }
    let mut verbatim = BodyDecoder::verbatim(framing, &LIMITS);
    let raw = decode_body(&mut verbatim, buf, usize::MAX);
    for step in [1, 5] {
        assert_eq!(decode_body(&mut BodyDecoder::verbatim(framing, &LIMITS), buf, step), raw, "in pieces of {step}");
    }
    match (whole, raw) {
        (Ok(whole), Ok(raw)) => reads_the_same(framing, &whole, raw, &verbatim),
        (whole, raw) => assert_eq!(whole.map(|_| ()), raw.map(|_| ())),
    }
}

/// What is passed on verbatim is the same body to who reads it next.
fn reads_the_same(framing: BodyFraming, whole: &Body, mut raw: Body, verbatim: &BodyDecoder) {
    assert_eq!((whole.used, whole.ended, &whole.trailers), (raw.used, raw.ended, &raw.trailers));
    assert_eq!(verbatim.data_bytes(), whole.data.len() as u64);
    if let Some(trailers) = verbatim.trailers() {
        trailers.put(&mut raw.data);
    }
    // Written out, a trailer may gain a space.
    let mut decoder = BodyDecoder::new(framing, &Limits::default());
    let again = decode_body(&mut decoder, &raw.data, usize::MAX).unwrap();
    assert_eq!((&again.data, again.ended, &again.trailers), (&whole.data, whole.ended, &whole.trailers));
    assert_eq!(again.used, raw.data.len(), "nothing is left over");
}
