//! Time limits: of any future, of the handshake, and of silence.

use crate::connection::Connection;
use carmine_reactor::{Group, Shard, TcpStream};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Checks per idle limit: a silent peer is closed between one limit and one and a quarter.
const CHECKS_PER_LIMIT: u32 = 4;

/// The result of `future`, or `None` if it is not ready after `limit`. The future is then dropped.
pub async fn with_timeout<T>(shard: &Shard, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut sleep = pin!(shard.sleep(limit));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Ends a handshake that takes too long: shuts the stream down, so that all waits on it end.
pub(crate) struct HandshakeLimit(Rc<Guarded>);

/// Shared with the task that waits for the limit.
struct Guarded {
    /// None once the handshake ended, so that the waiting task does not keep the socket open.
    stream: RefCell<Option<TcpStream>>,
    timed_out: Cell<bool>,
}

impl HandshakeLimit {
    pub(crate) fn start(shard: &Shard, stream: &TcpStream, limit: Duration) -> HandshakeLimit {
        let state =
            Rc::new(Guarded { stream: RefCell::new(Some(stream.clone())), timed_out: Cell::new(false) });
        let (task_state, task_shard) = (Rc::clone(&state), shard.clone());
        shard.spawn(Group::Admin, "msgr-handshake-limit", async move {
            task_shard.sleep(limit).await;
            let stream = task_state.stream.borrow_mut().take();
            if let Some(stream) = stream {
                task_state.timed_out.set(true);
                stream.shutdown();
            }
        });
        HandshakeLimit(state)
    }

    /// The handshake ended, well or not. True if that was because of the limit.
    pub(crate) fn end(self) -> bool {
        let stream = self.0.stream.borrow_mut().take();
        drop(stream);
        self.0.timed_out.get()
    }
}

/// Closes `conn` after `limit` without a byte from the peer. Ends with the connection.
pub(crate) fn idle(conn: &Rc<Connection>, limit: Duration) {
    let shard = conn.shard.clone();
    let conn = Rc::downgrade(conn);
    shard.clone().spawn(Group::Admin, "msgr-idle", watch_idle(shard, conn, limit));
}

async fn watch_idle(shard: Shard, conn: Weak<Connection>, limit: Duration) {
    loop {
        shard.sleep(limit / CHECKS_PER_LIMIT).await;
        let Some(conn) = conn.upgrade() else { return };
        if conn.is_closed() {
            return;
        }
        if conn.silence() >= limit {
            conn.close(format!("idle for {} s", conn.silence().as_secs()));
        }
    }
}
