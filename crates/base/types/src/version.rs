//! Versions of PG log entries and ids of client requests.

use std::fmt;

/// Position in a PG's log: ordered by epoch, then version. Printed as Ceph does: `epoch'version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eversion {
    // The derived order depends on the order of these two fields.
    pub epoch: u32,
    pub version: u64,
}

impl Eversion {
    pub const ZERO: Eversion = Eversion { epoch: 0, version: 0 };

    pub const fn new(epoch: u32, version: u64) -> Eversion {
        Eversion { epoch, version }
    }
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

/// What a PG log entry did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// The object exists after it.
    Modify,
    /// The object does not exist after it.
    Delete,
    /// Nothing: the request failed, or had no effect. It is kept so that a resend is answered the same.
    Error,
}

/// Identity of a client request, equal for all resends of it: the client's global id, its incarnation and
/// the transaction id from the message header. (The reqid field on the wire is always zero.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    /// Global id of the client, from its connection.
    pub client: u64,
    pub inc: i32,
    pub tid: u64,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client.{}.{}:{}", self.client, self.inc, self.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eversions_sort_by_epoch_first() {
        assert!(Eversion::new(2, 1) > Eversion::new(1, 9));
        assert!(Eversion::new(2, 2) > Eversion::new(2, 1));
        assert_eq!(Eversion::new(16, 5).to_string(), "16'5");
    }
}
