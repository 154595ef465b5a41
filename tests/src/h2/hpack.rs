//! Field compression (RFC 7541): blocks of literals to send, and a decoder that is good enough for every answer.

use std::collections::VecDeque;
use std::sync::LazyLock;

/// A field: name, value.
pub type Field = (Vec<u8>, Vec<u8>);

/// A block of literals that touch no table (6.2.2), without Huffman codes: whatever the names and values are.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(0x00, name.as_ref(), value.as_ref())).collect()
}

/// A literal with its name, of the kind that `first` says: 0x00 not indexed, 0x10 never, 0x40 indexed.
pub fn literal(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    for text in [name, value] {
        integer(&mut bytes, 0, 7, text.len());
        bytes.extend(text);
    }
    bytes
}

/// An integer with a prefix of `bits` (5.1); the bits above it are `high`.
pub fn integer(bytes: &mut Vec<u8>, high: u8, bits: u32, value: usize) {
    let most = (1usize << bits) - 1;
    if value < most {
        bytes.push(high | u8::try_from(value).expect("below the prefix"));
        return;
    }
    bytes.push(high | u8::try_from(most).expect("a prefix of at most 8 bits"));
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push(0x80 | u8::try_from(rest & 0x7f).expect("seven bits"));
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).expect("below 128"));
}

/// The other side's compression state.
#[derive(Default)]
pub struct Decoder {
    table: VecDeque<Field>,
    size: usize,
    limit: Option<usize>,
}

/// The table size that holds until settings say otherwise, which tests never do.
const TABLE_SIZE: usize = 4_096;

impl Decoder {
    /// The fields of a whole block; none when it cannot be read.
    pub fn decode(&mut self, mut block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = take_integer(&mut block, 7)?;
                    fields.push(self.entry(index)?);
                }
                0x40..=0x7f => {
                    let field = self.take_literal(&mut block, 6)?;
                    self.insert(field.clone());
                    fields.push(field);
                }
                0x20..=0x3f => {
                    let limit = take_integer(&mut block, 5)?;
                    self.limit = Some(limit).filter(|&limit| limit <= TABLE_SIZE);
                    self.limit?;
                    self.evict();
                }
                _ => fields.push(self.take_literal(&mut block, 4)?),
            }
        }
        Some(fields)
    }

    fn take_literal(&self, block: &mut &[u8], bits: u32) -> Option<Field> {
        let index = take_integer(block, bits)?;
        let name = if index == 0 { take_string(block)? } else { self.entry(index)?.0 };
        Some((name, take_string(block)?))
    }

    fn entry(&self, index: usize) -> Option<Field> {
        if let Some((name, value)) = STATIC.get(index.checked_sub(1)?) {
            return Some((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.table.get(index - 1 - STATIC.len()).cloned()
    }

    fn insert(&mut self, field: Field) {
        self.size += cost(&field);
        self.table.push_front(field);
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.limit.unwrap_or(TABLE_SIZE) {
            let Some(field) = self.table.pop_back() else { return };
            self.size -= cost(&field);
        }
    }
}

/// What an entry counts for (4.1).
fn cost((name, value): &Field) -> usize {
    name.len() + value.len() + 32
}

fn take_integer(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, rest) = block.split_first()?;
    *block = rest;
    let most = (1usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let (&byte, rest) = block.split_first()?;
        *block = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_string(block: &mut &[u8]) -> Option<Vec<u8>> {
    let coded = *block.first()? & 0x80 != 0;
    let length = take_integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    if coded { huffman(text) } else { Some(text.to_vec()) }
}

/// Decodes Huffman codes bit by bit: the code is canonical, so the lengths alone say everything.
fn huffman(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let (mut code, mut length) = (0usize, 0);
    for bit in text.iter().flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1))) {
        code = code << 1 | bit;
        length += 1;
        let (first, symbols) = CODES.get(length)?;
        if let Some(symbol) = code.checked_sub(*first).and_then(|nth| symbols.get(nth)) {
            decoded.push(u8::try_from(*symbol).ok()?);
            (code, length) = (0, 0);
        }
    }
    // What is left is padding: fewer than eight bits, all of them 1 (5.2).
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}

/// For each length of a code: the first code of that length, and the symbols that have such codes, in order.
static CODES: LazyLock<Vec<(usize, Vec<usize>)>> = LazyLock::new(|| {
    let mut first = 0;
    (0..=30)
        .map(|length| {
            let of_length = LENGTHS.iter().enumerate().filter(|(_, other)| **other == length);
            let symbols: Vec<usize> = of_length.map(|(symbol, _)| symbol).collect();
            let codes = (first, symbols);
            first = (first + codes.1.len()) << 1;
            codes
        })
        .collect()
});

/// Lengths of the codes of RFC 7541 appendix B, by symbol; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// RFC 7541 appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    fn text(fields: Option<Vec<Field>>) -> String {
        let line = |(name, value): Field| {
            format!("{}={}", String::from_utf8(name).unwrap(), String::from_utf8(value).unwrap())
        };
        fields.expect("a block that can be read").into_iter().map(line).collect::<Vec<_>>().join(" ")
    }

    /// RFC 7541 C.6: three answers, Huffman coded, with evictions (a table of 256, set by an update of its size).
    #[test]
    fn the_examples_of_the_rfc() {
        let mut decoder = Decoder::default();
        let first = [hex("3fe101"), hex("488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3")].concat();
        let expected =
            ":status=302 cache-control=private date=Mon, 21 Oct 2013 20:13:21 GMT location=https://www.example.com";
        assert_eq!(text(decoder.decode(&first)), expected);
        assert_eq!(text(decoder.decode(&hex("4883640effc1c0bf"))), expected.replace("302", "307"));
        let third = hex(
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        );
        assert!(
            text(decoder.decode(&third))
                .ends_with("set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
        );
        assert_eq!(decoder.table.len(), 3);
    }

    #[test]
    fn literals_come_back() {
        let long = "v".repeat(1_000);
        let fields = [("name", long.as_str()), ("", "")];
        let read = Decoder::default().decode(&block(&fields)).expect("readable");
        assert_eq!(read[0], (b"name".to_vec(), long.into_bytes()));
        assert_eq!(read[1], (Vec::new(), Vec::new()));
    }

    #[test]
    fn nonsense_is_none() {
        for block in [&[0x80u8][..], &[0xff, 0xff, 0xff], &[0x3f, 0xe2, 0x1f], &[0x00, 0x85, 1], &[0x00, 0x81, 0xfe, 0]]
        {
            assert_eq!(Decoder::default().decode(block), None, "{block:?}");
        }
    }
}
