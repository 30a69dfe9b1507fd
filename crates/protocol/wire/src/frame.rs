//! msgr v2.1 frames in crc mode; [`secure`] has those of secure mode.
//!
//! ```text
//! preamble (32) | segment 0 | crc of segment 0 (4) | segments 1..3, unpadded | epilogue (13)
//! ```
//! Segment 0 and its crc are both absent if it is empty; the epilogue is absent if there is one segment only.
//! Control frames have one segment. MESSAGE frames: 0 = header2, 1 = front, 2 = middle (unused), 3 = data.

mod codec;
mod encode;
mod epilogue;
mod preamble;
mod reader;
pub mod secure;

pub use codec::Codec;
pub use encode::{MessageTail, control, message_head, message_head_around, message_head_with, message_tail};
pub use epilogue::{EPILOGUE_BYTES, Epilogue};
pub use preamble::{PREAMBLE_BYTES, Preamble, SEGMENTS_MAX, Tag};
pub use reader::{Frame, FrameReader};

/// Index of each segment of a MESSAGE frame.
pub mod segment {
    pub const HEADER: usize = 0;
    pub const FRONT: usize = 1;
    pub const MIDDLE: usize = 2;
    pub const DATA: usize = 3;
}

/// Longest control payload, front and middle that are accepted (the limit of the kernel client).
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Longest data segment that is accepted: to a replica goes as much as one request may write (a copy of Ceph's largest object,
/// 128 MiB) with the object's attributes. Of clients Ceph takes 90 MiB, and a longer write has to arrive to be told so.
pub const DATA_BYTES_MAX: usize = 160 << 20;
/// Length of the checksum behind segment 0.
pub const CRC_BYTES: usize = 4;

#[cfg(test)]
mod tests;
