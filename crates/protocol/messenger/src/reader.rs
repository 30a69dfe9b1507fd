//! Bytes from the socket to verified frames.
//!
//! Bytes are received in bulk into one buffer per connection; as many frames as are there are parsed before the next
//! receive. A frame that fits the buffer is parsed in place, and its data segment is copied into an aligned buffer of its
//! own (cheaper than a second receive up to some tens of KiB). A longer one is taken piece by piece, whole pieces of its
//! data segment straight from the socket, so that memory is taken only as bytes arrive.

use crate::error::CloseReason;
use crate::limits::{BANNER_BYTES_MAX, CHUNK_BYTES, CONTROL_BYTES_MAX, RECV_BUF_FIRST_BYTES};
use crate::message::Parts;
use carmine_reactor::{Buf, Payload, Shard, TcpStream};
use carmine_types::crc32c;
use carmine_wire::frame::{CRC_BYTES, EPILOGUE_BYTES, Epilogue, PREAMBLE_BYTES, Preamble, segment};
use carmine_wire::handshake::Banner;
use carmine_wire::header::{HEADER2_BYTES, Header2};
use std::cell::Cell;
use std::rc::Rc;

type Result<T> = std::result::Result<T, CloseReason>;

/// Receives for one connection.
pub(crate) struct Reader {
    shard: Shard,
    stream: TcpStream,
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
            if let Some((banner, len)) = Banner::parse(self.peek(0, received))? {
                self.consume(len);
                return Ok(banner);
            }
            if received > BANNER_BYTES_MAX {
                return Err(CloseReason::protocol(format!("a banner of more than {BANNER_BYTES_MAX} bytes")));
            }
            self.fill(received + 1).await?;
        }
    }

    /// The next frame's preamble. It stays in the buffer until [`Self::control`] or [`Self::message`] takes the frame.
    pub(crate) async fn preamble(&mut self) -> Result<Preamble> {
        self.fill(PREAMBLE_BYTES).await?;
        Ok(Preamble::decode(self.peek(0, PREAMBLE_BYTES))?)
    }

    /// The verified payload of a control frame.
    pub(crate) async fn control(&mut self, preamble: &Preamble) -> Result<Vec<u8>> {
        let body = preamble.body_bytes();
        if body > CONTROL_BYTES_MAX {
            return Err(CloseReason::protocol(format!("{:?} frame of {body} bytes", preamble.tag)));
        }
        self.fill(PREAMBLE_BYTES + body).await?;
        let payload = preamble.verify_head(self.peek(PREAMBLE_BYTES, body))?.to_vec();
        self.consume(PREAMBLE_BYTES + body);
        Ok(payload)
    }

    /// The verified message behind a MESSAGE preamble that passed [`check_message`]; `None` if its sender aborted it.
    pub(crate) async fn message(&mut self, preamble: &Preamble) -> Result<Option<Parts>> {
        let (front_len, data_len) = (preamble.len(segment::FRONT), preamble.len(segment::DATA));
        let head = HEADER2_BYTES + CRC_BYTES;
        let total = PREAMBLE_BYTES + preamble.body_bytes();
        let in_place = total <= self.capacity_max;
        self.fill(if in_place { total } else { PREAMBLE_BYTES + head }).await?;

        let header = Header2::decode(preamble.verify_head(self.peek(PREAMBLE_BYTES, head))?)?;
        self.consume(PREAMBLE_BYTES + head);

        let (front, data, data_crc);
        if in_place {
            front = self.peek(0, front_len).to_vec();
            (data, data_crc) = self.copy_data(front_len, data_len);
            self.consume(front_len + data_len);
        } else {
            front = self.long_front(front_len).await?;
            (data, data_crc) = self.long_data(data_len).await?;
        }
        let complete = preamble.count == 1 || self.epilogue(preamble, &front, data_crc).await?;
        let data_crc = (data_len > 0).then_some(data_crc);
        Ok(complete.then_some(Parts { header, front, data, data_crc }))
    }

    /// Checks the epilogue; false if the sender aborted the frame.
    async fn epilogue(&mut self, preamble: &Preamble, front: &[u8], data_crc: u32) -> Result<bool> {
        self.fill(EPILOGUE_BYTES).await?;
        let epilogue = Epilogue::decode(self.peek(0, EPILOGUE_BYTES))?;
        self.consume(EPILOGUE_BYTES);
        if epilogue.aborted {
            return Ok(false);
        }
        // The checksum of the middle, which is empty, is not looked at.
        epilogue.verify(preamble, [crc32c::raw(crc32c::SEED, front), 0, data_crc])?;
        Ok(true)
    }

    /// Copies a data segment that is in the buffer, `skip` bytes from its start, and its checksum.
    fn copy_data(&mut self, skip: usize, len: usize) -> (Payload, u32) {
        if len == 0 {
            return (Payload::new(), crc32c::SEED);
        }
        let mut buf = self.shard.buf(len);
        buf.set_len(len);
        let source = self.peek(skip, len);
        debug_assert_eq!(source.len(), len);
        copy(&mut buf, source);
        let crc = crc32c::raw(crc32c::SEED, &buf);
        self.note_copy(len);
        (buf.freeze().into(), crc)
    }

    /// A front longer than the buffer.
    async fn long_front(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut front = Vec::with_capacity(len.min(CHUNK_BYTES));
        while front.len() < len {
            self.fill(1).await?;
            let take = (self.end - self.start).min(len - front.len());
            front.extend_from_slice(self.peek(0, take));
            self.consume(take);
        }
        Ok(front)
    }

    /// A data segment longer than the buffer, in chunks, and its checksum.
    async fn long_data(&mut self, len: usize) -> Result<(Payload, u32)> {
        let mut data = Payload::new();
        let mut crc = crc32c::SEED;
        while data.len() < len {
            let chunk = self.long_chunk((len - data.len()).min(CHUNK_BYTES)).await?;
            crc = crc32c::raw(crc, &chunk);
            data.push(chunk.freeze());
        }
        Ok((data, crc))
    }

    async fn long_chunk(&mut self, len: usize) -> Result<Buf> {
        let mut chunk = self.shard.buf(len);
        let mut filled = 0;
        // A receive takes whatever fits the capacity: straight into the chunk only if that ends where the chunk ends.
        let direct = chunk.capacity() == len;
        while filled < len {
            if self.start == self.end && direct {
                let (received, back) = self.stream.recv(chunk, filled).await;
                chunk = back;
                filled += self.received(received)?;
                continue;
            }
            self.fill(1).await?;
            let take = (self.end - self.start).min(len - filled);
            chunk.set_len(len);
            if let Some(place) = chunk.as_mut_slice().get_mut(filled..filled + take) {
                copy(place, self.peek(0, take));
            }
            self.consume(take);
            self.note_copy(take);
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
            self.end = (self.end + self.received(received)?).min(capacity);
            self.grow = self.end == capacity;
        }
        Ok(())
    }

    fn received(&mut self, received: std::io::Result<usize>) -> Result<usize> {
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

    fn note_copy(&mut self, bytes: usize) {
        self.copied_bytes += bytes as u64;
        self.shard.count_copy(bytes);
    }

    /// `len` received bytes, `skip` bytes from the first one. Call [`Self::fill`] first.
    fn peek(&self, skip: usize, len: usize) -> &[u8] {
        let from = self.start + skip;
        debug_assert!(from + len <= self.end);
        self.buf.as_ref().and_then(|buf| buf.get(from..from + len)).unwrap_or(&[])
    }

    fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }
}

/// Copies as much of `source` as fits.
fn copy(target: &mut [u8], source: &[u8]) {
    let len = target.len().min(source.len());
    if let (Some(target), Some(source)) = (target.get_mut(..len), source.get(..len)) {
        target.copy_from_slice(source);
    }
}
