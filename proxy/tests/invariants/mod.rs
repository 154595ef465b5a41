//! What holds for whatever a connection begins with.

use plimsoll_proxy::detect::{Peek, peek};

/// More input is asked for only where it can tell more, and what is certain stays so.
pub fn detect(bytes: &[u8]) {
    let whole = peek(bytes);
    if let Peek::Maybe { at_least, .. } = whole {
        assert!(at_least > bytes.len(), "{at_least} of {}", bytes.len());
    }
    for cut in 0..bytes.len() {
        match peek(&bytes[..cut]) {
            Peek::Is(verdict) => return assert_eq!(whole, Peek::Is(verdict), "after {cut} bytes"),
            Peek::Maybe { at_least, .. } => assert!(at_least > cut),
        }
    }
}
