//! `/events`: state changes as server-sent events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::answer;
use crate::report::Message;

/// A comment is sent this often, so that a reader which is gone is noticed and a proxy between does not give up.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A reader that takes nothing for this long is cut off; events would only pile up.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// What one reader will be sent.
pub(super) type Subscription = Receiver<Arc<Message>>;

/// Streams events until the reader goes away.
pub(super) async fn stream(stream: &mut TcpStream, mut subscription: Subscription) -> io::Result<()> {
    let mut head = answer::head(200, "text/event-stream");
    // Without a length the body ends with the connection, which needs no framing of its own.
    head.extend_from_slice(b"Connection: close\r\n\r\n: connected\n\n");
    write(stream, &head).await?;
    loop {
        let text = tokio::select! {
            received = timeout(HEARTBEAT, subscription.recv()) => match received {
                Ok(Ok(message)) => format!("event: {}\ndata: {}\n\n", message.kind, message.data),
                Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {{\"missed\":{missed}}}\n\n"),
                Ok(Err(RecvError::Closed)) => return stream.shutdown().await,
                Err(_) => ": still here\n\n".to_owned(),
            },
            gone = gone(stream) => return gone,
        };
        write(stream, text.as_bytes()).await?;
    }
}

/// Ends when the reader closes its side. Whatever it sends is ignored: nothing follows a stream.
async fn gone(stream: &TcpStream) -> io::Result<()> {
    let mut ignored = [0; 256];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut ignored) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    timeout(WRITE_TIME, stream.write_all(bytes)).await?
}
