//! The header of a MESSAGE frame.

use crate::{DecodeError, Decoder, Encoder, Result};

pub const HEADER2_BYTES: usize = 41;

/// Values of [`Header2::priority`]. They do not matter to the receiver.
pub mod priority {
    /// Client OSD operations.
    pub const OSD_OP: u16 = 63;
    pub const DEFAULT: u16 = 127;
    /// Replies of a monitor.
    pub const MON_REPLY: u16 = 196;
}

/// The value of [`Header2::flags`] that real peers send.
const FLAGS: u8 = 3;

/// ceph_msg_header2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header2 {
    /// Number of the message on its connection and direction: 1, 2, 3, ... without gaps.
    pub seq: u64,
    /// Chosen by the requester, echoed by the reply.
    pub tid: u64,
    /// Message type, one of [`crate::kinds`].
    pub kind: u16,
    /// One of [`priority`].
    pub priority: u16,
    /// Version of the front's encoding.
    pub version: u16,
    /// Oldest version that a reader must know.
    pub compat: u16,
    /// Hint where the data should lie in a page; 0 in all traffic seen.
    pub data_off: u16,
    /// The sender's last received `seq`.
    pub ack_seq: u64,
    pub flags: u8,
}

impl Header2 {
    /// A header for a front of this type and version; `seq` and `ack_seq` are the connection's to fill.
    pub const fn new(kind: u16, version: u16, compat: u16) -> Header2 {
        Header2 {
            seq: 0,
            tid: 0,
            kind,
            priority: priority::DEFAULT,
            version,
            compat,
            data_off: 0,
            ack_seq: 0,
            flags: FLAGS,
        }
    }

    pub const fn with_tid(mut self, tid: u64) -> Header2 {
        self.tid = tid;
        self
    }

    pub const fn with_priority(mut self, priority: u16) -> Header2 {
        self.priority = priority;
        self
    }

    pub fn decode(bytes: &[u8]) -> Result<Header2> {
        let fixed: [u8; HEADER2_BYTES] = Decoder::all(bytes, "message header", |d| d.array())?;
        Header2::decode_fields(&mut Decoder::new(&fixed, "message header"))
    }

    #[inline]
    fn decode_fields(d: &mut Decoder<'_>) -> Result<Header2> {
        let (seq, tid) = (d.u64()?, d.u64()?);
        let (kind, priority, version) = (d.u16()?, d.u16()?, d.u16()?);
        let padding = d.u32()?;
        if padding != 0 {
            return Err(DecodeError::BadValue { what: "data padding", value: padding.into() });
        }
        let (data_off, ack_seq, flags) = (d.u16()?, d.u64()?, d.u8()?);
        let compat = d.u16()?;
        d.u16()?; // reserved
        Ok(Header2 { seq, tid, kind, priority, version, compat, data_off, ack_seq, flags })
    }

    #[inline]
    pub fn encode(&self) -> [u8; HEADER2_BYTES] {
        let mut bytes = [0; HEADER2_BYTES];
        bytes[0..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tid.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.priority.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.version.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.data_off.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.ack_seq.to_le_bytes());
        bytes[36] = self.flags;
        bytes[37..39].copy_from_slice(&self.compat.to_le_bytes());
        bytes
    }
}

/// A message's front as a value. Data segments travel beside it.
pub trait Front: Sized {
    /// Message type, one of [`crate::kinds`].
    const KIND: u16;
    /// Version of the encoding that [`Front::encode`] writes, and the newest that is fully understood.
    const VERSION: u16;
    /// Oldest reader that can make sense of what is written.
    const COMPAT: u16;
    /// Oldest version that is decoded.
    const OLDEST: u16 = Self::VERSION;
    const PRIORITY: u16 = priority::DEFAULT;

    fn encode(&self, e: &mut Encoder<'_>);

    /// Reads the fields of a front of this `version` (at least [`Front::OLDEST`]).
    fn decode(version: u16, d: &mut Decoder<'_>) -> Result<Self>;

    /// A header for this message.
    fn header() -> Header2 {
        Header2::new(Self::KIND, Self::VERSION, Self::COMPAT).with_priority(Self::PRIORITY)
    }

    fn to_front(&self) -> Vec<u8> {
        Encoder::collect(|e| self.encode(e))
    }

    /// Decodes a message's front, which must be of this type. Bytes left over are an error, unless the
    /// sender's version is newer than ours.
    fn from_front(header: &Header2, front: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(front, crate::kinds::name(Self::KIND));
        check_header(header, Self::KIND, Self::OLDEST, Self::VERSION)?;
        let value = Self::decode(header.version, &mut d)?;
        if header.version <= Self::VERSION {
            d.finish()?;
        }
        Ok(value)
    }
}

/// Defines messages and says the layout of each front once: a structure as [`carmine_codec::fields!`] has it, with its
/// type (one of [`crate::kinds`]), version and compat version. By default no older version is decoded, and the priority
/// is [`priority::DEFAULT`].
macro_rules! messages {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident: $kind:ident, $version:tt, compat $compat:tt
            $(, oldest $oldest:literal)? $(, priority $priority:ident)?
        { $($fields:tt)* }
    )*) => {$(
        carmine_codec::fields! {
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name { $($fields)* }
        }

        impl $crate::Front for $name {
            const KIND: u16 = $crate::kinds::$kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            $(const OLDEST: u16 = $oldest;)?
            $(const PRIORITY: u16 = $crate::header::priority::$priority;)?

            fn encode(&self, e: &mut $crate::Encoder<'_>) {
                carmine_codec::Fields::put_fields(self, e, $version);
            }

            fn decode(version: u16, d: &mut $crate::Decoder<'_>) -> $crate::Result<$name> {
                carmine_codec::Fields::get_fields(d, version)
            }
        }
    )*};
}
pub(crate) use messages;

/// Checks that a front of type `kind` with this header can be decoded.
pub(crate) fn check_header(header: &Header2, kind: u16, oldest: u16, newest: u16) -> Result<()> {
    let what = crate::kinds::name(kind);
    if header.kind != kind {
        return Err(DecodeError::BadValue { what: "message type", value: header.kind.into() });
    }
    if header.compat > newest {
        return Err(DecodeError::TooNew { what, compat: header.compat, known: newest });
    }
    if header.version < oldest {
        return Err(DecodeError::TooOld { what, version: header.version, oldest });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            seq: u64, tid: u64, kind: u16, priority: u16, version: u16, compat: u16,
            data_off: u16, ack_seq: u64, flags: u8,
        ) {
            let header =
                Header2 { seq, tid, kind, priority, version, compat, data_off, ack_seq, flags };
            prop_assert_eq!(Header2::decode(&header.encode())?, header);
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = Header2::decode(&bytes);
        }
    }

    #[test]
    fn versions_are_checked() {
        let header = Header2::new(15, 4, 4);
        let error = check_header(&header, 15, 3, 3).unwrap_err();
        assert_eq!(error.to_string(), "MON_SUBSCRIBE: needs a reader of version 4, this one knows 3");
        let error = check_header(&Header2::new(15, 2, 1), 15, 3, 3).unwrap_err();
        assert_eq!(error.to_string(), "MON_SUBSCRIBE: version 2 is older than 3, the oldest one accepted");
        assert!(check_header(&Header2::new(16, 3, 1), 15, 3, 3).is_err());
        assert!(check_header(&Header2::new(15, 9, 1), 15, 3, 3).is_ok());
    }
}
