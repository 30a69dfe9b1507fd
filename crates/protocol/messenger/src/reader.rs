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
use carmine_wire::frame::secure::{Cipher, data_at};
use carmine_wire::frame::{FrameReader, Preamble, segment};
use carmine_wire::handshake::Banner;
use carmine_wire::header::Header2;
use std::cell::Cell;
use std::rc::Rc;

/// Where the data of messages lie, for a store that writes them as they are.
const DATA_ALIGNMENT: usize = 4096;
/// By so much the memory of a long encrypted message grows each time that it is full.
const GROWTH: usize = 4;

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
            frames: FrameReader::default(),
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

    /// From here on frames are encrypted.
    pub(crate) fn decrypt(&mut self, cipher: Cipher) {
        self.frames = FrameReader::secure(cipher);
    }

    /// Copies the bytes that come next, as far as [`Self::wait`] has waited for them, into `heard`.
    pub(crate) fn overhear(&mut self, heard: Option<&mut Vec<u8>>) {
        if let Some(heard) = heard {
            heard.extend_from_slice(received(&mut self.buf, self.start, self.frames.need()));
        }
    }

    /// The peer's banner, which `heard` gets, too.
    pub(crate) async fn banner(&mut self, heard: Option<&mut Vec<u8>>) -> Result<Banner> {
        loop {
            let received = self.end - self.start;
            if let Some((banner, len)) = Banner::parse(self.peek(received))? {
                heard.into_iter().for_each(|heard| heard.extend_from_slice(self.peek(len)));
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

    /// The verified payload of a control frame, whose bytes `heard` gets.
    pub(crate) async fn control(
        &mut self,
        preamble: &Preamble,
        heard: Option<&mut Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let bytes = self.frames.need();
        if bytes > CONTROL_BYTES_MAX {
            return Err(CloseReason::protocol(format!("{:?} frame of {bytes} bytes", preamble.tag)));
        }
        self.fill(bytes).await?;
        self.overhear(heard);
        let frame = self.frames.body(received(&mut self.buf, self.start, bytes))?;
        let payload = match self.frames.is_secure() {
            true => self.frames.secure_header().to_vec(),
            false => frame.segments[segment::HEADER].to_vec(),
        };
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
        let data = aligned(&self.shard, data, block_crcs);
        let (header, data) = match frame.data_crc {
            Some(crc) => (header, data.with_crc(crc)),
            None => (self.frames.secure_header(), data),
        };
        let parts = Parts { header: Header2::decode(header)?, front: front.to_vec(), data };
        let complete = !frame.aborted;
        self.copied_bytes += parts.data.len() as u64;
        self.consume(bytes);
        Ok(complete.then_some(parts))
    }

    /// A message longer than the buffer, piece by piece.
    pub(crate) async fn long_message(&mut self, preamble: &Preamble) -> Result<Option<Parts>> {
        if self.frames.is_secure() {
            return self.long_secure_message(preamble).await;
        }
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

    /// A message longer than the buffer in secure mode. Nothing of it may be used before its last bytes have come, and it is decrypted
    /// in one piece: the memory for it grows as its bytes arrive, and its data come to lie where a store wants them.
    async fn long_secure_message(&mut self, preamble: &Preamble) -> Result<Option<Parts>> {
        let (bytes, data_at) = (self.frames.need(), data_at(preamble));
        let before = data_at.next_multiple_of(DATA_ALIGNMENT) - data_at;
        let mut whole = self.receive_whole(before, before + bytes).await?;
        let front = {
            let frame = self.frames.body(whole.get_mut(before..before + bytes).unwrap_or_default())?;
            (!frame.aborted).then(|| frame.segments[segment::FRONT].to_vec())
        };
        let Some(front) = front else { return Ok(None) };
        let header = Header2::decode(self.frames.secure_header())?;
        let data_at = before + data_at;
        let whole = Bytes::from(whole);
        let mut data = Payload::new();
        for at in (0..preamble.len(segment::DATA)).step_by(CHUNK_BYTES) {
            let end = (at + CHUNK_BYTES).min(preamble.len(segment::DATA));
            data.push(whole.slice(data_at + at..data_at + end));
        }
        Ok(Some(Parts { header, front, data }))
    }

    /// Receives the bytes `from..end` of a buffer that becomes longer as they arrive. What comes after them is kept for later.
    async fn receive_whole(&mut self, from: usize, end: usize) -> Result<Buf> {
        let mut whole = self.shard.buf(end.min(CHUNK_BYTES));
        let mut filled = from;
        while filled < end {
            let capacity = whole.capacity();
            whole.set_len(capacity);
            if filled == capacity {
                whole = self.grown(whole, filled.saturating_mul(GROWTH).min(end));
            } else if self.start == self.end && capacity.saturating_sub(end) <= RECV_BUF_FIRST_BYTES {
                let received;
                (received, whole) = self.stream.recv(whole, filled).await;
                filled += self.note_received(received)?;
            } else {
                self.fill(1).await?;
                let take = (self.end - self.start).min(capacity.min(end) - filled);
                copy(whole.get_mut(filled..).unwrap_or_default(), self.peek(take));
                self.consume(take);
                self.copied_bytes += take as u64;
                self.shard.count_copy(take);
                filled += take;
            }
        }
        let capacity = whole.capacity();
        whole.set_len(capacity);
        if let Some(more) = whole.get(end..filled).filter(|more| !more.is_empty()) {
            let mut buf = self.make_room(more.len());
            buf.set_len(buf.capacity());
            copy(&mut buf, more);
            (self.buf, self.start, self.end) = (Some(buf), 0, more.len());
        }
        Ok(whole)
    }

    /// A longer buffer with the content of this one.
    fn grown(&mut self, old: Buf, bytes: usize) -> Buf {
        let mut buf = self.shard.buf(bytes);
        buf.set_len(buf.capacity());
        copy(&mut buf, &old);
        self.copied_bytes += old.len() as u64;
        self.shard.count_copy(old.len());
        buf
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
