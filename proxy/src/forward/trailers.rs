//! What follows a body, whichever way it came.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_h1::{FieldKind, Trailers};

use crate::streams::fields;

/// The trailer section of a message.
#[derive(Clone, Copy, Debug)]
pub enum TrailerSection<'a> {
    /// From HTTP/1.1.
    Text(&'a Trailers),
    /// From HTTP/2.
    Map(&'a HeaderMap),
}

impl<'a> TrailerSection<'a> {
    /// Appends the section and the empty line that ends a chunked message.
    pub fn put(self, out: &mut BytesMut) {
        match self {
            Self::Text(trailers) => trailers.put(out),
            Self::Map(map) => {
                for (name, value) in map {
                    // As for those of HTTP/1.1: a field that frames, routes or steers would come too late to be obeyed.
                    if Trailers::may_hold(FieldKind::of(name.as_str().as_bytes())) {
                        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                            out.put_slice(part);
                        }
                    }
                }
                out.put_slice(b"\r\n");
            }
        }
    }

    /// The section for HTTP/2, rid of the same fields.
    #[must_use]
    pub fn to_map(self) -> HeaderMap {
        match self {
            Self::Map(map) => {
                let mut map = map.clone();
                fields::edit_trailers(&mut map);
                map
            }
            Self::Text(trailers) => trailers
                .iter()
                .filter_map(|(_, name, value)| {
                    Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
                })
                .collect(),
        }
    }

    /// The value of the first field of this kind.
    #[must_use]
    pub fn value(self, kind: FieldKind) -> Option<&'a [u8]> {
        match self {
            Self::Text(trailers) => trailers.value(kind),
            Self::Map(map) => map.get(kind.name()).map(HeaderValue::as_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_stand_in_trailers_goes_on_to_nobody() {
        let mut map = HeaderMap::new();
        for (name, value) in [("grpc-status", "0"), ("content-length", "5"), ("host", "a"), ("x-sum", " 1 ")] {
            map.append(name, HeaderValue::from_static(value));
        }
        let section = TrailerSection::Map(&map);
        let sent = section.to_map();
        assert_eq!(
            (sent.len(), &sent["grpc-status"], &sent["x-sum"]),
            (2, &"0".parse().unwrap(), &"1".parse().unwrap())
        );
        let mut text = BytesMut::new();
        section.put(&mut text);
        let lines: Vec<_> = str::from_utf8(&text).unwrap().split("\r\n").collect();
        assert_eq!(lines, ["grpc-status: 0", "x-sum:  1 ", "", ""]);
    }
}
