//! Why bytes could not be decoded.

/// Result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// Bytes that are not what their type says. `what` names the field or structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A field, or a declared length or count, goes past the end of the bytes.
    #[error("{what}: needs {need} more bytes, {left} are left")]
    Truncated { what: &'static str, need: u64, left: usize },
    /// A structure ended before its bytes did.
    #[error("{what}: {left} bytes are left over at the end")]
    Trailing { what: &'static str, left: usize },
    /// The sender says that a reader must understand a newer version than ours.
    #[error("{what}: needs a reader of version {compat}, this one knows {known}")]
    TooNew { what: &'static str, compat: u16, known: u16 },
    /// The encoding is older than any that this reader accepts.
    #[error("{what}: version {version} is older than {oldest}, the oldest one accepted")]
    TooOld { what: &'static str, version: u16, oldest: u16 },
    /// A value outside the ones that have a meaning.
    #[error("{what}: {value:#x} is not a valid value")]
    BadValue { what: &'static str, value: u64 },
    /// A length above the limit for its kind.
    #[error("{what}: {len} bytes are over the limit of {limit}")]
    TooLong { what: &'static str, len: u64, limit: usize },
    /// The bytes have a meaning that is not served. The text names it and the remedy.
    #[error("{0}")]
    Unsupported(&'static str),
    /// What is encrypted was changed, or with another key.
    #[error("{what}: the tag of AES-GCM does not fit: it was changed on its way, or the key is another one")]
    BadTag { what: &'static str },
    /// A checksum does not match its bytes.
    #[error("{what}: checksum is {found:#010x}, the bytes give {computed:#010x}")]
    BadCrc { what: &'static str, found: u32, computed: u32 },
}
