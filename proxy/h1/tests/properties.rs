//! Decoding in pieces is decoding whole, what is sent on reads the same, and chunks are what a naive reader says.

mod generate;
mod invariants;

use plimsoll_h1::{BodyDecoder, BodyEncoder, BodyFraming, Limits, Method};
use proptest::prelude::*;

fn cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases * 8, failure_persistence: None, ..config }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn requests(bytes in generate::spoiled(generate::request())) {
        invariants::request(&bytes);
    }

    #[test]
    fn responses(
        bytes in generate::spoiled(generate::response()),
        method in prop::sample::select(vec![Method::Get, Method::Head, Method::Connect]),
    ) {
        invariants::response(method, &bytes);
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        invariants::request(&bytes);
        invariants::response(Method::Get, &bytes);
        invariants::body(BodyFraming::Chunked, &bytes);
    }

    #[test]
    fn chunks_that_we_make_are_read_back(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6)) {
        let mut encoder = BodyEncoder::new(BodyFraming::Chunked);
        let mut sent = Vec::new();
        for piece in &pieces {
            encoder.put(piece, &mut sent).expect("chunks have no limit");
        }
        encoder.finish(None, &mut sent).expect("chunks have no limit");
        let (data, used) = naive_chunks(&sent).expect("it is well-formed");
        prop_assert_eq!((data, used), (pieces.concat(), sent.len()));
        invariants::body(BodyFraming::Chunked, &sent);
    }

    #[test]
    fn chunks_are_what_a_naive_reader_says(bytes in generate::spoiled(generate::chunked_body())) {
        invariants::body(BodyFraming::Chunked, &bytes);
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked, &Limits::default());
        let decoded = invariants::decode_body(&mut decoder, &bytes, usize::MAX);
        match naive_chunks(&bytes) {
            Some((data, used)) => {
                let body = decoded.expect("the naive reader took it");
                prop_assert!(body.ended);
                prop_assert_eq!((body.data, body.used), (data, used));
            }
            None => prop_assert!(!decoded.is_ok_and(|body| body.ended)),
        }
    }
}

/// RFC 9112 7.1 word by word, over the whole body at once: its data and its length, or nothing.
fn naive_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let line = naive_line(&bytes[at..])?;
        at += line.len() + 2;
        let line = std::str::from_utf8(line).ok().filter(|line| line.is_ascii())?;
        let (size, extension) = line.split_at(line.find([';', ' ', '\t']).unwrap_or(line.len()));
        let is_extension = extension.is_empty() || extension.trim_start_matches([' ', '\t']).starts_with(';');
        let is_clean = extension.chars().all(|char| char == '\t' || !char.is_control());
        let is_size = (1..=16).contains(&size.len()) && size.chars().all(|char| char.is_ascii_hexdigit());
        if !(is_extension && is_clean && is_size) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            break;
        }
        data.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size;
        at += bytes[at..].starts_with(b"\r\n").then_some(2)?;
    }
    loop {
        let line = naive_line(&bytes[at..])?;
        at += line.len() + 2;
        if line.is_empty() {
            return Some((data, at));
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = line.split_at(colon);
        let is_name = !name.is_empty()
            && name.iter().all(|byte| b"!#$%&'*+-.^_`|~".contains(byte) || byte.is_ascii_alphanumeric());
        let is_value = value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        if !(is_name && is_value) {
            return None;
        }
    }
}

/// Up to CRLF, with neither of the two inside.
fn naive_line(bytes: &[u8]) -> Option<&[u8]> {
    let len = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&bytes[..len]).filter(|line| !line.contains(&b'\r') && !line.contains(&b'\n'))
}
