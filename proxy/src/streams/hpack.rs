//! Whether a block of compressed fields is broken as such (RFC 7541), or what it says is (RFC 9113 8.1.1).
//!
//! The crate ends the connection with PROTOCOL_ERROR for either. RFC 9113 4.3 wants COMPRESSION_ERROR for the first, so that
//! whoever reads the code looks for the fault in the right place. Asked once in the life of a connection, when it ends:
//! nothing here runs for a head that is good.
//!
//! *Not done*: the table is not kept. An index past the static one is right or wrong by what came before; it is taken to be
//! wrong where everything else about the block is right, since something must be.

use std::sync::LazyLock;

/// The size of the table that we allow.
const TABLE: usize = 4096;

/// What is wrong with a block that the crate has found fault with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It cannot be read.
    Broken,
    /// A name or value in it may not stand in a head.
    Said,
    /// Nothing that shows: an index, if it is the block's fault at all.
    None,
}

/// What is wrong with `block`.
pub(super) fn fault(block: &[u8]) -> Fault {
    match walk(block) {
        None => Fault::Broken,
        Some(Walk { says_wrong: true, .. }) => Fault::Said,
        Some(_) => Fault::None,
    }
}

/// Whether a pseudo field is in `block`, as far as that shows without the table.
pub(super) fn has_pseudo(block: &[u8]) -> bool {
    walk(block).is_some_and(|walk| walk.has_pseudo)
}

/// The pseudo fields are the first entries of the static table.
const PSEUDO: std::ops::RangeInclusive<usize> = 1..=14;

#[derive(Default)]
struct Walk {
    has_pseudo: bool,
    /// A name or value that may not stand in a head.
    says_wrong: bool,
    /// A field was there; a change of the table's size has to come before.
    begun: bool,
}

fn walk(mut block: &[u8]) -> Option<Walk> {
    let mut walk = Walk::default();
    while let Some(&first) = block.first() {
        match first {
            0x80.. => {
                let index = take_integer(&mut block, 7).filter(|index| *index > 0)?;
                walk.has_pseudo |= PSEUDO.contains(&index);
                walk.begun = true;
            }
            0x40.. => walk.take_literal(&mut block, 6)?,
            0x20.. => {
                let size = take_integer(&mut block, 5)?;
                if walk.begun || size > TABLE {
                    return None;
                }
            }
            _ => walk.take_literal(&mut block, 4)?,
        }
    }
    Some(walk)
}

impl Walk {
    fn take_literal(&mut self, block: &mut &[u8], bits: u32) -> Option<()> {
        self.begun = true;
        let index = take_integer(block, bits)?;
        self.has_pseudo |= PSEUDO.contains(&index);
        if index == 0 {
            let name = take_string(block)?;
            self.has_pseudo |= name.starts_with(b":");
            self.says_wrong |= !is_name(&name);
        }
        let value = take_string(block)?;
        self.says_wrong |= value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
        Some(())
    }
}

/// A token in lower case, or a pseudo field of a request.
fn is_name(name: &[u8]) -> bool {
    const PSEUDO: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];
    let is_token = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    PSEUDO.contains(&name) || !name.is_empty() && name.iter().all(is_token)
}

fn take_integer(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, rest) = block.split_first()?;
    *block = rest;
    let most = (1usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value < most {
        return Some(value);
    }
    // Four more bytes are more than anything here has use for (RFC 7541 5.1).
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
    if coded { decode(text) } else { Some(text.to_vec()) }
}

/// Bit by bit: the code is canonical, so the lengths alone say everything.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
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
    // What is left is padding: fewer than eight bits, all of them 1 (RFC 7541 5.2).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_told_from_what_it_says() {
        let broken: [&[u8]; 7] = [
            b"\x80",
            b"\xff\xff\xff\xff\xff\x7f",
            b"\x82\x20",
            b"\x3f\xe2\x1f",
            b"\x00\x05ab",
            b"\x00\x01a\x81\xff",
            b"\x00\x01a\x82\x1f\xff",
        ];
        for block in broken {
            assert_eq!(fault(block), Fault::Broken, "{}", block.escape_ascii());
        }
        for block in [&b"\x82\xbe"[..], b"\x7e\x01a", b"\x20\x82"] {
            assert_eq!(fault(block), Fault::None, "{}", block.escape_ascii());
        }
        for block in [&b"\x00\x01A\x01b"[..], b"\x00\x00\x01b", b"\x00\x01a\x02\r\n", b"\x00\x06:other\x01b"] {
            assert_eq!(fault(block), Fault::Said, "{}", block.escape_ascii());
        }
    }

    /// RFC 7541 C.4.1.
    #[test]
    fn huffman_codes_are_read() {
        assert_eq!(
            decode(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]).unwrap(),
            b"www.example.com"
        );
    }
}
