//! The 28-byte union inside an operation, by type of operation.

use super::OsdOp;
use crate::{Decoder, Result};

/// Defines an argument type: its fields in wire order, and the accessor and setter of [`OsdOp`].
macro_rules! args {
    ($($(#[$doc:meta])* $name:ident by $get:ident { $($(#[$field_doc:meta])* $field:ident: $type:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $name {
            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<$name> {
                Ok($name { $($field: d.$type()?,)* })
            }
        }

        impl From<$name> for Arg {
            #[inline]
            fn from(value: $name) -> Arg {
                let mut bytes = [0; ARG_BYTES];
                let mut rest = &mut bytes[..];
                $(put(&mut rest, &value.$field.to_le_bytes());)*
                Arg(bytes)
            }
        }

        impl OsdOp {
            /// The arguments, if the code is of an operation that has these: the bytes have no tag.
            #[inline]
            pub fn $get(&self) -> $name {
                // All argument types are shorter than the union, so this cannot fail.
                $name::decode(&mut Decoder::new(&self.arg, "op argument")).unwrap_or_default()
            }
        }
    )*};
}

/// Length of the union.
pub(super) const ARG_BYTES: usize = 28;

/// Encoded arguments.
pub(super) struct Arg(pub(super) [u8; ARG_BYTES]);

/// Writes to the start of `rest` and moves it past that.
#[inline]
fn put(rest: &mut &mut [u8], bytes: &[u8]) {
    if let Some((place, left)) = std::mem::take(rest).split_at_mut_checked(bytes.len()) {
        place.copy_from_slice(bytes);
        *rest = left;
    }
}

args! {
    /// Range of an object's bytes: read, write, zero, truncate and so on.
    Extent by extent {
        /// TRUNCATE: the new size.
        offset: u64,
        /// READ: 0 means to the end. In a reply: the bytes returned.
        length: u64,
        truncate_size: u64,
        truncate_seq: u32,
    }

    /// Lengths of the name and value that the payload holds, and how to compare.
    Xattr by xattr {
        name_len: u32,
        value_len: u32,
        /// 1 EQ, 2 NE, 3 GT, 4 GTE, 5 LT, 6 LTE.
        cmp_op: u8,
        /// 1 as strings, 2 as u64.
        cmp_mode: u8,
    }

    /// Class method: the payload holds class name, method name and input.
    Call by call {
        class_len: u8,
        method_len: u8,
        argc: u8,
        input_len: u32,
    }

    /// Listing of a PG; the payload is the cursor ([`crate::pgls::HObject`]).
    PgLs by pgls {
        max_entries: u64,
        /// Epoch at which the listing began; 0 in continuations.
        start_epoch: u32,
    }

    /// Watch of an object.
    Watch by watch {
        cookie: u64,
        ver: u64,
        /// One of [`super::flags::watch`].
        op: u8,
        generation: u32,
        /// In seconds.
        timeout: u32,
    }

    /// The cookie of a notification, by which its sender knows the end of it.
    Notify by notify {
        cookie: u64,
    }

    /// Where a copy comes from: its version, 0 for any. The payload is name and locator.
    CopyFrom by copy_from {
        snapid: u64,
        src_version: u64,
        flags: u8,
        src_hints: u32,
    }

    /// The snapshot that an object is rolled back to.
    Snap by snap {
        snapid: u64,
    }

    /// Checksums of a range, one for each chunk; the payload is what they begin with.
    Checksum by checksum {
        offset: u64,
        length: u64,
        /// 0: one of all of it.
        chunk_bytes: u32,
        /// One of [`super::flags::checksum`].
        kind: u8,
    }

    /// Writing the payload (`data_length` bytes) again and again.
    WriteSame by write_same {
        offset: u64,
        /// A multiple of `data_length`.
        length: u64,
        data_length: u64,
    }

    /// Expected sizes, in bytes.
    AllocHint by alloc_hint {
        object_size: u64,
        write_size: u64,
        flags: u32,
    }

    /// User version that an object must have.
    AssertVer by assert_ver {
        unused: u64,
        ver: u64,
    }
}
