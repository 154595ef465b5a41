//! Fields as ranges of the buffer they were read from: nothing is copied and, once the list has grown, nothing allocated.

use crate::kind::{FieldKind, KindSet};

/// A range of bytes, counted from the start of the buffer that was decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: narrow(start), end: narrow(end) }
    }

    /// Where `part`, a slice of `whole`, lies in it. For an empty one httparse may hand out a slice of nowhere.
    #[inline]
    pub(crate) fn within(whole: &[u8], part: &[u8]) -> Self {
        if part.is_empty() {
            return Self::default();
        }
        let start = part.as_ptr().addr() - whole.as_ptr().addr();
        Self::new(start, start + part.len())
    }

    /// The bytes meant. `buf` is the buffer that was decoded, or a copy of it.
    ///
    /// # Panics
    /// When `buf` is shorter than what was decoded.
    #[inline]
    #[must_use]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A head is decoded from a window of less than 2^30 bytes (`Limits::window`) and trailers from fewer, so nothing is cut
/// off. Four checked conversions per field would cost as much as recognising it.
const fn narrow(at: usize) -> u32 {
    debug_assert!(at <= u32::MAX as usize);
    at as u32
}

/// One field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as it was sent, in any case.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// What it means to us.
    pub kind: FieldKind,
    /// Not forwarded: hop-by-hop, nominated by `Connection`, or of no meaning in this message (RFC 9110 7.6.1).
    pub hop: bool,
}

/// The fields of one message, in their order. Reused from message to message.
#[derive(Clone, Debug)]
pub struct Fields {
    list: Vec<Field>,
    present: KindSet,
    repeated: KindSet,
    /// Index of the first field of each kind; meaningless for a kind that is not present.
    first: [u8; 64],
    /// Where the last field line ends, past its CRLF; without fields, where the start line does.
    end: u32,
}

impl Default for Fields {
    fn default() -> Self {
        Self { list: Vec::new(), present: KindSet::EMPTY, repeated: KindSet::EMPTY, first: [0; 64], end: 0 }
    }
}

impl Fields {
    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Field> {
        self.list.iter()
    }

    /// Number of field lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The kinds that occur.
    #[must_use]
    pub const fn present(&self) -> KindSet {
        self.present
    }

    /// Whether a field of this kind occurs.
    #[inline]
    #[must_use]
    pub const fn contains(&self, kind: FieldKind) -> bool {
        self.present.contains(kind)
    }

    /// Whether more than one field of this kind occurs.
    #[inline]
    #[must_use]
    pub const fn repeats(&self, kind: FieldKind) -> bool {
        self.repeated.contains(kind)
    }

    /// The first field of this kind, found without a search.
    #[inline]
    #[must_use]
    pub fn first(&self, kind: FieldKind) -> Option<&Field> {
        self.contains(kind).then(|| &self.list[usize::from(self.first[kind as usize])])
    }

    /// Whether this kind occurs once, with this value in any case.
    pub(crate) fn is_only(&self, kind: FieldKind, value: &[u8], buf: &[u8]) -> bool {
        let found = self.value(kind, buf);
        !self.repeats(kind) && found.is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    /// The value of the first field of this kind.
    #[inline]
    #[must_use]
    pub fn value<'b>(&self, kind: FieldKind, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.first(kind).map(|field| field.value.of(buf))
    }

    /// Every field of this kind, in order; costs nothing when there is none.
    pub fn all(&self, kind: FieldKind) -> impl Iterator<Item = &Field> {
        let from = self.first(kind).map_or(self.list.len(), |_| usize::from(self.first[kind as usize]));
        self.list[from..].iter().filter(move |field| field.kind == kind)
    }

    /// Whether the fields that frame the message are written the one way that everyone reads alike. `Transfer-Encoding` with
    /// a tab before `chunked` or a length with leading zeros is grammatical, and missed by some servers, who would then take
    /// the body for the next request.
    pub(crate) fn frame_plainly(&self, buf: &[u8]) -> bool {
        let is_plain = |field: &Field| {
            let (name, value) = (field.name.end as usize, field.value.end as usize);
            buf[name..].starts_with(b": ")
                && field.value.start as usize == name + 2
                && buf[value..].starts_with(b"\r\n")
        };
        let length = self.first(FieldKind::ContentLength);
        let coding = self.first(FieldKind::TransferEncoding);
        length.is_none_or(|field| is_plain(field) && !matches!(field.value.of(buf), [b'0', _, ..]))
            && coding.is_none_or(|field| is_plain(field) && field.value.of(buf) == b"chunked")
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.present = KindSet::EMPTY;
        self.repeated = KindSet::EMPTY;
        self.end = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, field: Field) {
        if self.present.contains(field.kind) {
            self.repeated = self.repeated.with(field.kind);
        } else {
            self.present = self.present.with(field.kind);
            // A head has at most MAX_FIELDS = 128.
            self.first[field.kind as usize] = self.list.len() as u8;
        }
        self.list.push(field);
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Field> {
        self.list.iter_mut()
    }

    pub(crate) fn drop_kind(&mut self, kind: FieldKind) {
        if self.contains(kind) {
            self.list.iter_mut().filter(|field| field.kind == kind).for_each(|field| field.hop = true);
        }
    }

    pub(crate) fn set_end(&mut self, end: usize) {
        self.end = narrow(end);
    }

    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    pub(crate) fn as_slice(&self) -> &[Field] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
