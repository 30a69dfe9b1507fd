//! Buffers: a unique aligned [`Buf`], shared ranges of it ([`Bytes`]) and gather lists of those ([`Payload`]).

pub(crate) mod arena;
mod bytes;
mod payload;
mod unique;

pub use bytes::Bytes;
pub use payload::Payload;
pub use unique::Buf;

/// Alignment of every [`Buf`]: what `O_DIRECT` wants of any device in use.
pub const ALIGN: usize = 4096;

/// One piece of what [`TcpStream::send`](crate::TcpStream::send) sends.
#[derive(Debug)]
pub enum Chunk {
    /// Headers and other small bytes.
    Bytes(Vec<u8>),
    /// A shared range of a buffer; not copied.
    Slice(Bytes),
}

impl Chunk {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Bytes(v) => v,
            Chunk::Slice(b) => b,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Chunk::Bytes(v) => v.len(),
            Chunk::Slice(b) => b.len(),
        }
    }

    /// No bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(v: Vec<u8>) -> Self {
        Chunk::Bytes(v)
    }
}

impl From<Bytes> for Chunk {
    fn from(b: Bytes) -> Self {
        Chunk::Slice(b)
    }
}
