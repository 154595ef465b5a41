//! Every way in which a body is refused, and what is left of the trailers.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use plimsoll_h1::{BodyDecoder, BodyError, BodyFraming, FieldKind, Limits, LineError, Truncated};

fn body(framing: BodyFraming, bytes: &[u8]) -> Result<(Vec<u8>, usize), BodyError> {
    let mut decoder = BodyDecoder::new(framing, &Limits::default());
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let piece = decoder.decode(&bytes[at..])?;
        data.extend_from_slice(&bytes[at + piece.skip..at + piece.skip + piece.len]);
        at += piece.skip + piece.len;
        if piece.end {
            return Ok((data, at));
        }
        assert!(at < bytes.len(), "incomplete: {:?}", String::from_utf8_lossy(bytes));
    }
}

/// RFC 9112 7.1.
#[test]
#[rustfmt::skip]
fn chunks() {
    let long_extension = format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(Limits::default().chunk_extension_bytes));
    let long_trailer = format!("0\r\nA: {}\r\n\r\n", "b".repeat(Limits::default().trailer_bytes - "A: \r\n\r\n".len() + 1));
    let many_trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(129));
    for (text, error) in [
        ("\r\n", BodyError::ChunkSize),
        ("g\r\n", BodyError::ChunkSize),
        ("-1\r\n", BodyError::ChunkSize),
        ("+1\r\n", BodyError::ChunkSize),
        (" 1\r\n", BodyError::ChunkSize),
        ("0x1\r\n", BodyError::ChunkSize),
        (";a\r\n", BodyError::ChunkSize),
        ("1g\r\n", BodyError::ChunkSize),
        ("1_0\r\n", BodyError::ChunkSize),
        ("1\n", BodyError::ChunkLineEnd),
        ("1\ra", BodyError::ChunkLineEnd),
        ("1 \r\n", BodyError::ChunkExtension),
        ("1\t\r\n", BodyError::ChunkExtension),
        ("1 1\r\n", BodyError::ChunkExtension),
        ("1 1;a\r\n", BodyError::ChunkExtension),
        ("1;a\nb\r\n", BodyError::ChunkLineEnd),
        ("1;a\rb\r\n", BodyError::ChunkLineEnd),
        ("1;a\0\r\n", BodyError::ChunkExtension),
        ("1;\u{e9}\r\n", BodyError::ChunkExtension),
        ("8000000000000000\r\n", BodyError::ChunkSizeTooLarge),
        ("10000000000000000\r\n", BodyError::ChunkSizeTooLarge),
        ("00000000000000001\r\n", BodyError::ChunkSizeTooLarge),
        ("ffffffffffffffffffffffff\r\n", BodyError::ChunkSizeTooLarge),
        ("1\r\nab\r\n", BodyError::ChunkLineEnd),
        ("1\r\na\n", BodyError::ChunkLineEnd),
        ("1\r\na\rb", BodyError::ChunkLineEnd),
        ("1\r\na0\r\n\r\n", BodyError::ChunkLineEnd),
        ("0\r\n\rX", BodyError::ChunkLineEnd),
        ("0\r\n\n", BodyError::Trailers(LineError::BareLf)),
        ("0\r\nA: b\n\r\n", BodyError::Trailers(LineError::BareLf)),
        ("0\r\nA: b\r\n\n", BodyError::Trailers(LineError::BareLf)),
        ("0\r\nA : b\r\n\r\n", BodyError::Trailers(LineError::SpaceBeforeColon)),
        ("0\r\nA: b\r\n c\r\n\r\n", BodyError::Trailers(LineError::Folded)),
        ("0\r\nGET / HTTP/1.1\r\n\r\n", BodyError::Trailers(LineError::SpaceBeforeColon)),
        ("0\r\nA\r\n\r\n", BodyError::Trailers(LineError::FieldName)),
        ("0\r\nA: \0\r\n\r\n", BodyError::Trailers(LineError::FieldValue)),
        (long_extension.as_str(), BodyError::ChunkExtensionsTooLarge),
        (long_trailer.as_str(), BodyError::TrailersTooLarge),
        (many_trailers.as_str(), BodyError::TrailersTooLarge),
    ] {
        assert_eq!(
            body(BodyFraming::Chunked, text.as_bytes()),
            Err(error),
            "{text:?}"
        );
    }
    for (text, data) in [
        ("0\r\n\r\nX", ""),
        ("000\r\n\r\nX", ""),
        ("3\r\na\r\n\r\n0\r\n\r\nX", "a\r\n"),
        ("1\r\na\r\n000000000000000B\r\nbcdefghijkl\r\n0\r\n\r\nX", "abcdefghijkl"),
        ("1 \t;a=\"b;\"; c\r\na\r\n0;x\r\nA: b\r\n\r\nX", "a"),
    ] {
        assert_eq!(
            body(BodyFraming::Chunked, text.as_bytes()),
            Ok((data.into(), text.len() - 1)),
            "{text:?}"
        );
    }
}

/// What just fits, fits; the cases above are one more than that.
#[test]
fn limits_are_exact() {
    let limits = Limits::default();
    let extension = "e".repeat(limits.chunk_extension_bytes - 1);
    let trailer = "b".repeat(limits.trailer_bytes - "A: \r\n\r\n".len());
    for text in [
        format!("1;{extension}\r\na\r\n0\r\n\r\n"),
        format!("0\r\nA: {trailer}\r\n\r\n"),
        format!("0\r\n{}\r\n", "a: b\r\n".repeat(limits.fields)),
    ] {
        let (_, used) = body(BodyFraming::Chunked, text.as_bytes()).unwrap();
        assert_eq!(used, text.len());
    }
}

#[test]
#[rustfmt::skip]
fn trailers_lose_what_may_not_stand_there() {
    let text = b"0\r\nHost: a\r\nContent-Length: 5\r\nX-Sum: 1\r\nAuthorization: x\r\ngrpc-status: 0\r\nx-plimsoll-retry: no\r\n\r\n";
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked, &Limits::default());
    assert!(decoder.trailers().is_none());
    assert!(decoder.decode(text).unwrap().end);
    let trailers = decoder.trailers().unwrap();
    let left: Vec<_> = trailers
        .iter()
        .map(|(_, name, value)| (name, value))
        .collect();
    assert_eq!(left, [(&b"X-Sum"[..], &b"1"[..]), (b"grpc-status", b"0")]);
    assert_eq!(trailers.value(FieldKind::GrpcStatus), Some(&b"0"[..]));
}

#[test]
fn the_end_of_the_connection_ends_only_what_has_no_other_end() {
    let limits = Limits::default();
    let mut length = BodyDecoder::new(BodyFraming::Length(3), &limits);
    assert_eq!(length.decode(b"ab").map(|piece| piece.end), Ok(false));
    assert_eq!((length.remaining_hint(), length.close()), (1, Err(Truncated)));
    assert_eq!(length.decode(b"cd").map(|piece| (piece.len, piece.end)), Ok((1, true)));
    assert_eq!(length.close(), Ok(()));

    let mut chunked = BodyDecoder::new(BodyFraming::Chunked, &limits);
    for byte in b"1\r\na\r\n0\r\n\r" {
        assert_eq!(chunked.decode(&[*byte]).map(|piece| piece.end), Ok(false));
        assert_eq!(chunked.close(), Err(Truncated));
    }
    assert_eq!(chunked.decode(b"\n").map(|piece| piece.end), Ok(true));
    assert_eq!(chunked.close(), Ok(()));

    let mut until_close = BodyDecoder::new(BodyFraming::UntilClose, &limits);
    assert_eq!(until_close.decode(b"ab").map(|piece| (piece.len, piece.end)), Ok((2, false)));
    assert_eq!(until_close.close(), Ok(()));
    assert!(BodyDecoder::new(BodyFraming::None, &limits).is_end());
}
