//! What we tell peers of HTTP/2, and what we hold them to. Each number is a choice; this is where they are made.
//!
//! **Windows.** A window is memory that a peer may fill while the other side of the call is slow, and the room that keeps a
//! fast call from waiting for a WINDOW_UPDATE. The window of a connection is many times that of a stream: otherwise a few
//! slow calls would hold it all, and every other call on the connection would stand still behind them.
//!
//! **Heads.** Our own limit is 64 KiB of text (`plimsoll_h1::Limits`), and who exceeds it is answered by us, with a reason.
//! The crate counts 32 bytes more for each field, answers on its own (431 without a body) and tells nobody. So it is given a
//! limit somewhat above ours, and only heads far too large meet it; four times as much ends the connection.

use std::time::Duration;

/// Room for one stream's data. At 2 ms to and fro it carries 64 MB/s for each stream.
const STREAM_WINDOW: u32 = 128 * 1024;
/// From callers: sixteen calls whose dependencies do not read, before others on the same connection notice.
const CALLER_WINDOW: u32 = 16 * STREAM_WINDOW;
/// From endpoints: many callers share the connection, and those who do not read must not stop the rest.
const ENDPOINT_WINDOW: u32 = 128 * STREAM_WINDOW;
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
/// What data may cost in frames smaller than 256 bytes that nobody has read yet, where each counts as that many: eight
/// times the window, so that whoever sends messages of 32 bytes to a slow reader is stopped by the window, not ended.
const SMALL_DATA: usize = 8;
/// Streams that we reset are remembered for so long, to ignore what was on its way, and so many of them. A second covers
/// the way there and back; more at once only means that late frames are answered by another reset.
const RESET_MEMORY: Duration = Duration::from_secs(1);
const RESET_STREAMS: usize = 256;
/// Streams that a caller has begun and reset before we looked at them: we look when all that has arrived is read.
const UNSEEN_RESETS: usize = CONCURRENT_STREAMS as usize;
/// Malformed or refused streams in the life of a connection of a caller.
const ERROR_RESETS: usize = 1024;

pub(super) fn server() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CALLER_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_streams(CONCURRENT_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .header_table_size(HEADER_TABLE)
        .data_frame_budget(SMALL_DATA * CALLER_WINDOW as usize)
        .reset_stream_duration(RESET_MEMORY)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_pending_accept_reset_streams(UNSEEN_RESETS)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        .enable_connect_protocol();
    builder
}

pub(super) fn client() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(ENDPOINT_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADER_LIST)
        .initial_max_send_streams(ASSUMED_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .header_table_size(HEADER_TABLE)
        .data_frame_budget(SMALL_DATA * ENDPOINT_WINDOW as usize)
        .reset_stream_duration(RESET_MEMORY)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        // Nobody asked us for what a server would push.
        .enable_push(false);
    builder
}
