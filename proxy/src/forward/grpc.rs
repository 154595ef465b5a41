//! What can be seen of gRPC from outside: where its messages begin, and nothing of what they say.

/// Counts the messages of one direction. Each is a byte of flags, four of length, and so many of payload
/// (gRPC over HTTP/2, "Length-Prefixed-Message").
#[derive(Clone, Copy, Debug, Default)]
pub struct Messages {
    begun: u32,
    /// Bytes of the prefix that are here.
    prefix: u8,
    /// The payload's length, as far as it is known while the prefix is read; then what is missing of it.
    left: u32,
}

impl Messages {
    /// Looks at the next bytes of the body.
    pub fn on_data(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            if self.prefix == 5 {
                let payload = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
                data = &data[payload..];
                // No more than is left, which is 32 bits.
                self.left -= payload as u32;
                if self.left == 0 {
                    self.prefix = 0;
                }
                continue;
            }
            if self.prefix == 0 {
                self.begun = self.begun.saturating_add(1);
            } else {
                self.left = self.left << 8 | u32::from(*first);
            }
            self.prefix += 1;
            data = rest;
            if self.prefix == 5 && self.left == 0 {
                self.prefix = 0;
            }
        }
    }

    /// How many have begun.
    #[must_use]
    pub fn begun(&self) -> u32 {
        self.begun
    }
}

/// Whether this media type is gRPC itself. `application/grpc-web` is not: it is made for proxies that do not speak
/// trailers, and passes as any other body.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    const NAME: &[u8] = b"application/grpc";
    content_type.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
        && matches!(content_type.get(NAME.len()), None | Some(b'+' | b';' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        message.resize(5 + length, 7);
        message
    }

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let lengths = [0, 1, 300, 0, 0, 65_536, 5];
        let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        for cut in [1, 2, 3, 4, 5, 6, 7, 100, 16_384, all.len()] {
            let mut messages = Messages::default();
            all.chunks(cut).for_each(|data| messages.on_data(data));
            assert_eq!(messages.begun(), 7, "{cut}");
            assert_eq!((messages.prefix, messages.left), (0, 0), "{cut}");
        }
    }

    #[test]
    fn a_message_begins_with_its_first_byte() {
        let mut messages = Messages::default();
        messages.on_data(&message(3));
        assert_eq!(messages.begun(), 1);
        messages.on_data(&[0]);
        assert_eq!(messages.begun(), 2);
    }

    #[test]
    fn grpc_is_told_from_its_relatives() {
        for yes in ["application/grpc", "application/grpc+proto", "Application/gRPC;charset=utf-8"] {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in ["application/grpc-web", "application/grpc-web+proto", "application/grp", "text/plain", ""] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
    }
}
