//! The task that sends: one vectored send in flight, everything queued meanwhile goes with the next one.

use crate::connection::Connection;
use std::rc::Rc;

/// Runs until the connection ends.
pub(crate) async fn run(conn: Rc<Connection>) {
    while !conn.is_closed() {
        conn.flush.wait().await;
        // The other tasks of this turn run first and add to the queue: one send for all their replies.
        conn.shard.yield_now().await;
        if let Err(error) = send_all(&conn).await {
            conn.close(format!("network: {error}"));
        }
        if conn.finishing.get() && conn.queued_bytes.get() == 0 {
            conn.close("finished");
        }
    }
}

async fn send_all(conn: &Connection) -> std::io::Result<()> {
    while !conn.is_closed() {
        let Some((chunks, bytes)) = conn.outgoing.borrow_mut().take() else { break };
        conn.stream.send(chunks).await?;
        conn.sent(bytes);
    }
    Ok(())
}
