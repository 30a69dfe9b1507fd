//! Error numbers as RADOS sends them: Linux values, negative.

use std::fmt;

/// A negative Linux errno, as found in `result` fields of replies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal: $text:literal,)*) => {
        $(#[doc = $text] pub const $name: i32 = $value;)*

        /// The symbol (`"ENOENT"`) and the meaning of a negative errno.
        pub fn describe(code: i32) -> Option<(&'static str, &'static str)> {
            match code {
                $($value => Some((stringify!($name), $text)),)*
                _ => None,
            }
        }
    };
}

errnos! {
    EPERM = -1: "operation not permitted",
    ENOENT = -2: "no such object or pool",
    EIO = -5: "input/output error",
    ENXIO = -6: "no such device or address",
    E2BIG = -7: "argument too long",
    ENOEXEC = -8: "not of this kind",
    EBADF = -9: "bad handle",
    EAGAIN = -11: "try again",
    ENOMEM = -12: "out of memory",
    EACCES = -13: "permission denied",
    EBUSY = -16: "busy",
    EEXIST = -17: "already exists",
    EXDEV = -18: "across namespaces",
    ENOTDIR = -20: "not a directory",
    EINVAL = -22: "invalid argument",
    EFBIG = -27: "too large",
    ENOSPC = -28: "no space left",
    EROFS = -30: "read-only",
    EDOM = -33: "outside of the domain",
    ERANGE = -34: "out of range",
    ENAMETOOLONG = -36: "name too long",
    ENOSYS = -38: "not implemented",
    ENOTEMPTY = -39: "not empty",
    ELOOP = -40: "a loop",
    ENODATA = -61: "no such attribute",
    EBADMSG = -74: "stored value is malformed",
    EOVERFLOW = -75: "value too large",
    EILSEQ = -84: "checksum mismatch or illegal bytes",
    EOLDSNAPC = -85: "snapshot context is out of date",
    EMSGSIZE = -90: "message too long",
    EOPNOTSUPP = -95: "operation not supported",
    ECONNRESET = -104: "connection reset",
    ENOTCONN = -107: "not connected",
    ESHUTDOWN = -108: "shut down",
    ETIMEDOUT = -110: "timed out",
    ECONNREFUSED = -111: "connection refused",
    ESTALE = -116: "stale",
    EDQUOT = -122: "quota exceeded",
    ECANCELED = -125: "cancelled",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match describe(self.0) {
            Some((name, text)) => write!(f, "{text} ({name}, {})", self.0),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match describe(self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_number_and_its_meaning() {
        assert_eq!(Errno(ENOENT).to_string(), "no such object or pool (ENOENT, -2)");
        assert_eq!(format!("{:?}", Errno(-95)), "EOPNOTSUPP");
        assert_eq!(Errno(-4095).to_string(), "error -4095");
    }
}
