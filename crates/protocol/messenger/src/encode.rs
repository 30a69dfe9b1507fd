//! Frames on their way out.

use crate::connection::Connection;
use crate::limits::{CHUNKS_PER_SEND, INLINE_DATA_BYTES};
use carmine_reactor::{Bytes, Chunk, Payload};
use carmine_types::crc32c;
use carmine_wire::frame;
use carmine_wire::frame::secure::{self, Cipher};
use carmine_wire::handshake::Control;
use carmine_wire::header::Header2;
use std::collections::VecDeque;
use std::rc::Rc;

/// Frames that wait to be sent. The small bytes of all of them (preambles, headers, fronts, epilogues, short data) lie in
/// one run, into which `pieces` point; long data stays where it is.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Pieces of earlier runs, ready to be sent.
    ready: VecDeque<Chunk>,
    run: Vec<u8>,
    /// Length of the longest of the last runs: the next one will probably not be longer.
    run_bytes: usize,
    pieces: Vec<Piece>,
    /// Where the piece of the run that is still growing begins.
    open: usize,
    /// Secure mode: encrypts all frames, and then everything is in the run.
    sealer: Option<Box<Cipher>>,
}

/// Bounds of a run's initial capacity: at least one answer's small bytes, at most those of a burst of answers.
const RUN_BYTES_MIN: usize = 512;
const RUN_BYTES_MAX: usize = 32 << 10;

enum Piece {
    /// Bytes of the run.
    Run(std::ops::Range<usize>),
    Data(Bytes),
}

impl Outgoing {
    /// Frames that are encrypted if there is a cipher.
    pub(crate) fn new(sealer: Option<Box<Cipher>>) -> Outgoing {
        Outgoing { sealer, ..Outgoing::default() }
    }

    /// Whether frames are encrypted: then no memory is shared with other connections.
    pub(crate) fn is_secure(&self) -> bool {
        self.sealer.is_some()
    }

    /// Appends a MESSAGE frame whose front `front` writes; returns its length.
    pub(crate) fn message(
        &mut self,
        header: &Header2,
        front: impl FnOnce(&mut Vec<u8>),
        data: Payload,
    ) -> usize {
        if self.run.capacity() == 0 {
            // The last answer reserves more than it needs: without some slack the whole run would be moved for it.
            self.run.reserve((self.run_bytes + RUN_BYTES_MIN).min(RUN_BYTES_MAX));
        }
        let start = self.run.len();
        if let Some(sealer) = &mut self.sealer {
            let pieces = (data.iter().map(|chunk| &chunk[..]), data.len());
            secure::seal_message(sealer, &mut self.run, header, front, pieces);
            return self.run.len() - start;
        }
        let tail = frame::message_head_with(&mut self.run, header, data.len(), front);
        let data_crc = data.crc32c(crc32c::SEED);
        let mut beside = 0;
        if data.len() <= INLINE_DATA_BYTES {
            data.iter().for_each(|chunk| self.run.extend_from_slice(chunk));
        } else {
            beside = data.len();
            self.close_run_piece();
            self.pieces.extend(data.into_iter().map(Piece::Data));
        }
        frame::message_tail(&mut self.run, tail, data_crc);
        self.run.len() - start + beside
    }

    /// Appends a MESSAGE frame without data whose front is `before`, bytes that many messages share, and `behind`; returns its
    /// length and the part of it that follows the shared bytes.
    pub(crate) fn message_around(
        &mut self,
        header: &Header2,
        [before, behind]: [&[u8]; 2],
        shared: &Bytes,
        shared_crc: u32,
    ) -> (usize, usize) {
        let start = self.run.len();
        let front = (shared.len(), shared_crc);
        let tail = frame::message_head_around(&mut self.run, header, [before, behind], front);
        self.close_run_piece();
        self.pieces.push(Piece::Data(shared.clone()));
        let follows = self.run.len();
        self.run.extend_from_slice(behind);
        frame::message_tail(&mut self.run, tail, crc32c::SEED);
        (self.run.len() - start + shared.len(), self.run.len() - follows)
    }

    /// Appends a control frame; returns its length.
    pub(crate) fn control(&mut self, control: &impl Control) -> usize {
        let start = self.run.len();
        match &mut self.sealer {
            None => control.frame_into(&mut self.run),
            Some(sealer) => control.seal_into(sealer, &mut self.run),
        }
        self.run.len() - start
    }

    /// The chunks of the next vectored send, and their length; `None` if nothing waits.
    pub(crate) fn next_chunks(&mut self) -> Option<(Vec<Chunk>, usize)> {
        let chunks = if self.ready.is_empty() {
            let mut chunks = self.freeze();
            self.ready.extend(chunks.drain(CHUNKS_PER_SEND.min(chunks.len())..));
            chunks
        } else {
            self.ready.drain(..CHUNKS_PER_SEND.min(self.ready.len())).collect()
        };
        let bytes = chunks.iter().map(Chunk::len).sum();
        (!chunks.is_empty()).then_some((chunks, bytes))
    }

    /// Turns the run and its pieces into chunks.
    fn freeze(&mut self) -> Vec<Chunk> {
        self.close_run_piece();
        self.open = 0;
        // Decays slowly: a run that is too short has to be moved, one that is too long costs nothing.
        self.run_bytes = self.run.len().max(self.run_bytes - self.run_bytes / 1024);
        let run = std::mem::take(&mut self.run);
        if self.pieces.len() == 1 {
            // Only small bytes: no need to share them.
            self.pieces.clear();
            return vec![Chunk::Bytes(run)];
        }
        let run = Bytes::from(run);
        let chunk = |piece| match piece {
            Piece::Run(range) => Chunk::Slice(run.slice(range)),
            Piece::Data(bytes) => Chunk::Slice(bytes),
        };
        self.pieces.drain(..).map(chunk).collect()
    }

    fn close_run_piece(&mut self) {
        if self.open < self.run.len() {
            self.pieces.push(Piece::Run(self.open..self.run.len()));
            self.open = self.run.len();
        }
    }
}

/// The task that sends: one vectored send is in flight, and everything queued meanwhile is in the next one. Runs until the
/// connection ends.
pub(crate) async fn flush(conn: Rc<Connection>) {
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
        let Some((chunks, bytes)) = conn.outgoing.borrow_mut().next_chunks() else { break };
        conn.stream.send(chunks).await?;
        conn.sent(bytes);
    }
    Ok(())
}
