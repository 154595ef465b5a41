//! What we tell peers of HTTP/2, and what we hold them to. Each number is a choice; this is where they are made.
//!
//! **Windows.** A window is memory that a peer may fill while the other side of the call is slow, and the room that keeps a
//! fast call from waiting for a WINDOW_UPDATE. The window of a connection is that of all its streams together: so a slow call
//! stops itself and never another on the same connection, however many are slow. It costs nothing until it is filled.
//!
//! **Heads.** Our own limit is 64 KiB of text (`plimsoll_h1::Limits`), and who exceeds it is answered by us, with a reason.
//! The crate counts 32 bytes more for each field, answers on its own (431 without a body) and tells nobody. So it is given a
//! limit somewhat above ours, and only heads far too large meet it; four times as much ends the connection.

use std::time::Duration;

/// Room for the data of one call from a caller, who is near: at 1 ms to and fro it carries 64 MB/s.
pub(super) const CALLER_STREAM: u32 = 64 * 1024;
const CALLER_WINDOW: u32 = CONCURRENT_STREAMS * CALLER_STREAM;
/// Room for the data of one answer; endpoints may be far.
const ENDPOINT_STREAM: u32 = 128 * 1024;
const ENDPOINT_WINDOW: u32 = ENDPOINT_STREAMS * ENDPOINT_STREAM;
/// Calls in flight on one connection to an endpoint, whatever more it allows: another connection costs less than a larger
/// window, and spreads calls over its threads.
pub(super) const ENDPOINT_STREAMS: u32 = 128;
/// Frames of the smallest size that may be agreed on: a larger one of one stream makes all the others wait for its end.
const FRAME: u32 = 16 * 1024;
/// See the module documentation.
const HEADER_LIST: u32 = 96 * 1024;
/// Calls in flight on one connection of a caller. RFC 9113 wants 100 at least. A caller that has more waits or opens
/// another connection, which nobody would see here, so it is well above what bulkheads are set to.
pub(super) const CONCURRENT_STREAMS: u32 = 500;
/// What an endpoint is taken to allow until it has said how much it does (RFC 9113 6.5.2 recommends no less).
const ASSUMED_STREAMS: usize = 100;
/// Data of one stream that waits for the socket. More would only be memory: the kernel has a buffer too.
const SEND_BUFFER: usize = 64 * 1024;
/// The compression table of each direction (RFC 7541): the default. A larger one saves little between neighbours.
const HEADER_TABLE: u32 = 4096;
/// What unread data may cost in frames smaller than 256 bytes, where each counts as that many; who exceeds it ends the
/// connection. From endpoints so much that every stream may fill its window with messages of 32 bytes: many callers share the
/// connection, and one that does not read must not end it. From a caller it is its own connection, and it may be a stranger.
const ENDPOINT_SMALL_DATA: usize = 8 * ENDPOINT_WINDOW as usize;
const CALLER_SMALL_DATA: usize = CALLER_WINDOW as usize;
/// Streams that we reset are remembered for so long, to ignore what was on its way, and so many of them. A second covers
/// the way there and back; more at once only means that late frames are answered by another reset.
const RESET_MEMORY: Duration = Duration::from_secs(1);
const RESET_STREAMS: usize = 256;
/// Streams that a caller has begun and reset before we looked at them: we look when all that has arrived is read.
const UNSEEN_RESETS: usize = CONCURRENT_STREAMS as usize;
/// Malformed or refused streams in the life of a connection: no limit, since one for life ends every connection that lives
/// long enough, with all the calls on it. How many there may be at a time is bounded in `peer`.
const ERROR_RESETS: Option<usize> = None;

pub(super) fn server() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(CALLER_STREAM)
        .initial_connection_window_size(CALLER_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_streams(CONCURRENT_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .header_table_size(HEADER_TABLE)
        .data_frame_budget(CALLER_SMALL_DATA)
        .reset_stream_duration(RESET_MEMORY)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_pending_accept_reset_streams(UNSEEN_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .enable_connect_protocol();
    builder
}

pub(super) fn client() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(ENDPOINT_STREAM)
        .initial_connection_window_size(ENDPOINT_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADER_LIST)
        .initial_max_send_streams(ASSUMED_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .header_table_size(HEADER_TABLE)
        .data_frame_budget(ENDPOINT_SMALL_DATA)
        .reset_stream_duration(RESET_MEMORY)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(ERROR_RESETS)
        // Nobody asked us for what a server would push.
        .enable_push(false);
    builder
}
