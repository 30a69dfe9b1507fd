//! The reader task of an established connection.

use std::rc::Rc;

use carmine_wire::frame::{Preamble, Tag, segment};
use carmine_wire::handshake::{Control, Keepalive2, Keepalive2Ack};
use carmine_wire::{kinds, private};

use crate::connection::Connection;
use crate::error::CloseReason;
use crate::limits::DISPATCH_BATCH;
use crate::message::{Dispatcher, Message, Parts};
use crate::reader::Reader;
use crate::watch::with_timeout;

type Result<T> = std::result::Result<T, CloseReason>;

/// Reads and dispatches until the connection ends, then tells the dispatcher why.
pub(crate) async fn run(conn: Rc<Connection>, mut reader: Reader, dispatcher: Rc<dyn Dispatcher>) {
    let ended = read_all(&conn, &mut reader, &*dispatcher).await;
    if let Err(reason) = ended {
        if let CloseReason::OtherVersion { other, kind } = reason {
            if let Some(count) = conn.notice() {
                tracing::warn!(peer = %conn.peer(), count, "connection closed: {other}");
            }
            if kind != kinds::VERSION_NOTICE {
                tell_version(&conn).await;
            }
        }
        // If it was closed from this side, the first reason stays, and later errors of the reader do not matter.
        conn.close(reason.to_string());
    }
    let reason = conn.close_reason().unwrap_or_else(|| Rc::from("closed"));
    tracing::debug!(peer = %conn.peer(), %reason, "connection closed");
    dispatcher.on_closed(&conn, &reason);
}

async fn read_all(conn: &Rc<Connection>, reader: &mut Reader, dispatcher: &dyn Dispatcher) -> Result<()> {
    let (mut batch, mut receives) = (0, 0);
    while !conn.is_closed() {
        if reader.lacks() {
            reader.wait().await?;
        }
        let preamble = reader.preamble()?;
        if reader.receives != receives {
            (batch, receives) = (0, reader.receives);
            note_receive(conn, reader);
        }
        if preamble.tag == Tag::Message {
            message(conn, reader, &preamble, dispatcher).await?;
        } else {
            control(conn, reader, &preamble).await?;
        }
        batch += 1;
        if batch == DISPATCH_BATCH {
            // Yield until the next turn, not only to the ready tasks: a flooding peer would otherwise use a whole turn's quota
            // each time, and others would wait for that several times per operation.
            batch = 0;
            conn.shard.next_turn().await;
        }
    }
    Ok(())
}

/// Tells the peer our version of private messages, so that its log names both, too.
async fn tell_version(conn: &Connection) {
    conn.send(Message::from_header(private::version_notice(), Vec::new()));
    let _ = with_timeout(&conn.shard, conn.limits.handshake, conn.drained_to(0)).await;
}

/// Once per receive, not per frame.
fn note_receive(conn: &Connection, reader: &Reader) {
    conn.last_received_ns.set(conn.shard.now_ns());
    conn.carried(0, reader.received_bytes.get().saturating_sub(conn.stats().bytes_received));
    conn.count(|s| {
        s.receives = reader.receives;
        s.bytes_received = reader.received_bytes.get();
        s.bytes_copied = reader.copied_bytes;
    });
}

async fn message(
    conn: &Rc<Connection>,
    reader: &mut Reader,
    preamble: &Preamble,
    dispatcher: &dyn Dispatcher,
) -> Result<()> {
    if preamble.len(segment::MIDDLE) != 0 {
        let text = format!("message with a middle segment of {} bytes", preamble.len(segment::MIDDLE));
        return Err(CloseReason::protocol(text));
    }
    let bytes = preamble.len(segment::FRONT) + preamble.len(segment::DATA);
    // First, because a connection that waits for its own peer must not hold room that others could use.
    if must_wait_for_replies(conn) {
        conn.drained_to(conn.limits.queue_soft_bytes).await;
    }
    let admitted = match conn.throttle.try_admit(bytes) {
        None => Box::pin(conn.throttle.admit(bytes, || conn.is_closed())).await,
        admitted => admitted,
    };
    let Some(mut permit) = admitted else { return Ok(()) };
    let parts = if reader.is_long() || reader.lacks() {
        conn.receiving.set(true);
        let parts = Box::pin(receive(reader, preamble)).await?;
        conn.receiving.set(false);
        parts
    } else {
        reader.message()?
    };
    let Some(parts) = parts else { return Ok(()) };
    let kind = parts.header.kind;
    private::check_version(&parts.header).map_err(|other| CloseReason::OtherVersion { other, kind })?;
    let seq = parts.header.seq;
    if seq <= conn.seq_received.get() {
        if let Some(count) = conn.notice() {
            let last = conn.seq_received.get();
            tracing::warn!(peer = %conn.peer(), seq, last, count, "message seen before: dropped");
        }
        return Ok(());
    }
    conn.seq_received.set(seq);
    let output = dispatcher.output_bytes(conn, &parts);
    if output > 0
        && !conn.throttle.try_admit_output(&mut permit, output)
        && !Box::pin(conn.throttle.admit_output(&mut permit, output, || conn.is_closed())).await
    {
        return Ok(());
    }
    // The connection may have been closed while the message arrived.
    if !conn.is_closed() {
        conn.count(|s| s.messages_received += 1);
        dispatcher.on_message(conn, Message::received(parts, permit));
    }
    Ok(())
}

/// Receives a message that has not arrived completely.
async fn receive(reader: &mut Reader, preamble: &Preamble) -> Result<Option<Parts>> {
    if reader.is_long() {
        return reader.long_message(preamble).await;
    }
    reader.wait().await?;
    reader.message()
}

/// Whether, on the accepting side, too many replies wait to be sent.
fn must_wait_for_replies(conn: &Connection) -> bool {
    conn.accepted && !conn.is_closed() && conn.queued_bytes() > conn.limits.queue_soft_bytes
}

async fn control(conn: &Connection, reader: &mut Reader, preamble: &Preamble) -> Result<()> {
    let payload = reader.control(preamble, None).await?;
    match preamble.tag {
        Tag::Keepalive2 => conn.send_control(&Keepalive2Ack(Keepalive2::decode(&payload)?.0)),
        // Sessions are lossy: nothing is kept for acknowledgement. The frame already counted as a sign of life.
        Tag::Keepalive2Ack | Tag::Ack => {}
        other => return Err(CloseReason::protocol(format!("{other:?} frame in an open session"))),
    }
    Ok(())
}
