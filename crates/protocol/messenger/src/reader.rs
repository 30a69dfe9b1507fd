//! Bytes from the socket to verified frames.
//!
//! Bytes are received in bulk into one buffer per connection; all complete frames are parsed before the next receive. A frame
//! that fits the buffer is parsed in place, and its data segment is copied into an aligned buffer of its own (cheaper than a
//! second receive up to some tens of KiB). A longer one is read piece by piece, whole pieces of its data segment straight from
//! the socket, so that memory is allocated only as bytes arrive.

use crate::error::CloseReason;
use crate::limits::{BANNER_BYTES_MAX, CHUNK_BYTES, CONTROL_BYTES_MAX, RECV_BUF_FIRST_BYTES};
use crate::message::Parts;
use carmine_reactor::{Buf, Bytes, Payload, Shard, TcpStream};
use carmine_wire::frame::{Codec, FrameReader, Preamble, segment};
use carmine_wire::handshake::Banner;
use carmine_wire::header::Header2;
use std::cell::Cell;
use std::rc::Rc;

type Result<T> = std::result::Result<T, CloseReason>;

/// Receives for one connection.
pub(crate) struct Reader {
    shard: Shard,
    stream: TcpStream,
    frames: FrameReader,
    /// None only while the kernel has it.
    buf: Option<Buf>,
    /// Bytes `start..end` of the buffer are received and not consumed.
    start: usize,
    end: usize,
    /// Size to which the buffer may grow.
    capacity_max: usize,
    /// The last receive filled the buffer: the next compaction takes a larger one.
    grow: bool,
    /// Totals for the connection's counters.
    pub(crate) received_bytes: Rc<Cell<u64>>,
    pub(crate) receives: u64,
    pub(crate) copied_bytes: u64,
}

impl Reader {
    pub(crate) fn new(shard: &Shard, stream: TcpStream, recv_buf_bytes: usize) -> Reader {
        Reader {
            shard: shard.clone(),
            stream,
            frames: FrameReader::new(Codec::Crc),
            buf: None,
            start: 0,
            end: 0,
            capacity_max: recv_buf_bytes.max(RECV_BUF_FIRST_BYTES),
            grow: false,
            received_bytes: Rc::default(),
            receives: 0,
            copied_bytes: 0,
        }
    }

    /// The peer's banner.
    pub(crate) async fn banner(&mut self) -> Result<Banner> {
        loop {
            let received = self.end - self.start;
            if let Some((banner, len)) = Banner::parse(self.peek(received))? {
                self.consume(len);
                return Ok(banner);
            }
            if received > BANNER_BYTES_MAX {
                return Err(CloseReason::protocol(format!("a banner of more than {BANNER_BYTES_MAX} bytes")));
            }
            self.fill(received + 1).await?;
        }
    }

    /// Whether the next bytes have not all arrived: then call [`Self::wait`] first. Usually many messages arrive at a time.
    #[inline]
    pub(crate) fn lacks(&self) -> bool {
        self.end - self.start < self.frames.need()
    }

    /// Waits for the next preamble, or for the bytes after it.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        self.fill(self.frames.need()).await
    }

    /// The next frame's preamble, which must have arrived; [`Self::control`] or [`Self::message`] reads the rest of the frame.
    pub(crate) fn preamble(&mut self) -> Result<Preamble> {
        let bytes = self.frames.need();
        let preamble = self.frames.preamble(received(&mut self.buf, self.start, bytes))?;
        self.consume(bytes);
        Ok(preamble)
    }

    /// The verified payload of a control frame.
    pub(crate) async fn control(&mut self, preamble: &Preamble) -> Result<Vec<u8>> {
        let bytes = self.frames.need();
        if bytes > CONTROL_BYTES_MAX {
            return Err(CloseReason::protocol(format!("{:?} frame of {bytes} bytes", preamble.tag)));
        }
        self.fill(bytes).await?;
        let frame = self.frames.body(received(&mut self.buf, self.start, bytes))?;
        let payload = frame.segments[segment::HEADER].to_vec();
        self.consume(bytes);
        Ok(payload)
    }

    /// Whether a message is longer than the buffer may be: then call [`Self::long_message`].
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.frames.need() > self.capacity_max
    }

    /// The verified message after a MESSAGE preamble with an empty middle, which must have arrived; `None` if its sender aborted
    /// it.
    pub(crate) fn message(&mut self) -> Result<Option<Parts>> {
        let (bytes, mut block_crcs) = (self.frames.need(), Vec::new());
        let received = received(&mut self.buf, self.start, bytes);
        let frame = self.frames.body_with_blocks(received, &mut block_crcs)?;
        let [header, front, _, data] = frame.segments;
        let parts = Parts {
            header: Header2::decode(header)?,
            front: front.to_vec(),
            data: aligned(&self.shard, data, block_crcs).with_crc(frame.data_crc),
        };
        let complete = !frame.aborted;
        self.copied_bytes += parts.data.len() as u64;
        self.consume(bytes);
        Ok(complete.then_some(parts))
    }

    /// A message longer than the buffer, piece by piece.
    pub(crate) async fn long_message(&mut self, preamble: &Preamble) -> Result<Option<Parts>> {
        let bytes = self.frames.head_bytes();
        self.fill(bytes).await?;
        let header = Header2::decode(self.frames.head(received(&mut self.buf, self.start, bytes))?)?;
        self.consume(bytes);

        let front = self.long_front(preamble.len(segment::FRONT)).await?;
        let data = self.long_data().await?.with_crc(self.frames.data_crc());

        let bytes = self.frames.end_bytes();
        self.fill(bytes).await?;
        let aborted = self.frames.end(received(&mut self.buf, self.start, bytes))?;
        self.consume(bytes);
        Ok((!aborted).then_some(Parts { header, front, data }))
    }

    async fn long_front(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut front = Vec::with_capacity(len.min(CHUNK_BYTES));
        while self.frames.segment() == segment::FRONT {
            self.fill(1).await?;
            let take = (self.end - self.start).min(self.frames.left());
            let piece = received(&mut self.buf, self.start, take);
            let kept = self.frames.piece(piece);
            front.extend_from_slice(piece.get(..kept).unwrap_or_default());
            self.consume(take);
        }
        Ok(front)
    }

    /// The data segment in chunks.
    async fn long_data(&mut self) -> Result<Payload> {
        let mut data = Payload::new();
        while self.frames.segment() == segment::DATA {
            let mut chunk = self.long_chunk(self.frames.left().min(CHUNK_BYTES)).await?;
            let mut block_crcs = Vec::new();
            let kept = self.frames.piece_with_blocks(&mut chunk, &mut block_crcs);
            chunk.set_len(kept);
            data.push(Bytes::with_block_crcs(chunk, block_crcs));
        }
        Ok(data)
    }

    async fn long_chunk(&mut self, len: usize) -> Result<Buf> {
        let mut chunk = self.shard.buf(len);
        let mut filled = 0;
        // A receive fills the capacity: read straight into the chunk only if both end at the same place.
        let direct = chunk.capacity() == len;
        while filled < len {
            if self.start == self.end && direct {
                let (received, back) = self.stream.recv(chunk, filled).await;
                chunk = back;
                filled += self.note_received(received)?;
                continue;
            }
            self.fill(1).await?;
            let take = (self.end - self.start).min(len - filled);
            chunk.set_len(len);
            if let Some(place) = chunk.as_mut_slice().get_mut(filled..filled + take) {
                copy(place, self.peek(take));
            }
            self.consume(take);
            self.copied_bytes += take as u64;
            self.shard.count_copy(take);
            filled += take;
        }
        chunk.set_len(len);
        Ok(chunk)
    }

    /// Receives until at least `need` bytes are in the buffer.
    async fn fill(&mut self, need: usize) -> Result<()> {
        while self.end - self.start < need {
            let mut buf = self.make_room(need);
            let capacity = buf.capacity();
            let received;
            (received, buf) = self.stream.recv(buf, self.end).await;
            buf.set_len(capacity);
            self.buf = Some(buf);
            self.end = (self.end + self.note_received(received)?).min(capacity);
            self.grow = self.end == capacity;
        }
        Ok(())
    }

    fn note_received(&mut self, received: std::io::Result<usize>) -> Result<usize> {
        match received? {
            0 => Err(CloseReason::Eof),
            bytes => {
                self.received_bytes.set(self.received_bytes.get() + bytes as u64);
                self.receives += 1;
                Ok(bytes)
            }
        }
    }

    /// The buffer, with place for `need` bytes from `start` on and for at least one more byte at `end`.
    fn make_room(&mut self, need: usize) -> Buf {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let old = self.buf.take();
        let capacity = old.as_ref().map_or(0, Buf::capacity);
        let grow = need > capacity || (self.grow && capacity < self.capacity_max);
        match old {
            Some(mut buf) if !grow => {
                if self.start + need > capacity || self.end == capacity {
                    buf.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                }
                buf
            }
            old => self.larger(old, need),
        }
    }

    /// A first small buffer, or one of full size with what was left in the old one.
    fn larger(&mut self, old: Option<Buf>, need: usize) -> Buf {
        let first = old.is_none() && need <= RECV_BUF_FIRST_BYTES;
        let mut buf = self.shard.buf(if first { RECV_BUF_FIRST_BYTES } else { self.capacity_max });
        buf.set_len(buf.capacity());
        if let Some(left) = old.as_ref().and_then(|old| old.get(self.start..self.end)) {
            copy(&mut buf, left);
        }
        (self.start, self.end) = (0, self.end - self.start);
        self.grow = false;
        buf
    }

    /// The first `len` received bytes. Call [`Self::fill`] first.
    fn peek(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(self.start + len <= self.end);
        received(&mut self.buf, self.start, len)
    }

    fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }
}

/// `len` bytes of the receive buffer.
fn received(buf: &mut Option<Buf>, start: usize, len: usize) -> &mut [u8] {
    buf.as_mut().and_then(|buf| buf.get_mut(start..start + len)).unwrap_or_default()
}

/// A data segment, copied into an aligned buffer of its own that keeps the checksums of its blocks.
fn aligned(shard: &Shard, data: &[u8], block_crcs: Vec<u32>) -> Payload {
    if data.is_empty() {
        return Payload::new();
    }
    let mut buf = shard.buf(data.len());
    buf.set_len(data.len());
    copy(&mut buf, data);
    shard.count_copy(data.len());
    Bytes::with_block_crcs(buf, block_crcs).into()
}

/// Copies as much of `source` as fits.
fn copy(target: &mut [u8], source: &[u8]) {
    let len = target.len().min(source.len());
    if let (Some(target), Some(source)) = (target.get_mut(..len), source.get(..len)) {
        target.copy_from_slice(source);
    }
}
