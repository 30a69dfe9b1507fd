//! The words for how an OSD stores its data and for its monitor, which the OSD, the testbed and results share.

crate::words! {
    /// The object stores.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StoreKind: "store" {
        /// In memory: shows the OSD's own cost; empty after every start.
        Cyan = "cyan",
        /// Accepts writes and forgets their data.
        Null = "null",
        /// A block file or device, with metadata in RocksDB.
        Blue = "blue",
    }
}

impl StoreKind {
    /// True if data outlives the process.
    #[must_use]
    pub fn is_durable(self) -> bool {
        self == StoreKind::Blue
    }
}

crate::words! {
    /// The monitor of a cluster.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MonKind: "monitor" {
        /// Carmine's own, for a testbed on one machine.
        #[default]
        Embedded = "embedded",
        /// A real `ceph-mon`.
        Ceph = "ceph",
    }
}

/// How much `blue` reads ahead of a reader who goes through an object in order, unless told otherwise, in bytes.
pub const READAHEAD_BYTES: u64 = 256 << 10;

crate::words! {
    /// How writes to a device become durable.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum FlushMode: "flush mode" {
        /// Many writes, then one flush of the device's cache (`fdatasync`); few as with `Dsync`, where that
        /// costs less.
        #[default]
        Flush = "flush",
        /// Each write by itself (`RWF_DSYNC`), which is one command where the device has FUA.
        Dsync = "dsync",
        /// Not at all. Only a device whose cache is power-safe keeps what it acknowledged.
        None = "none",
    }
}

crate::words! {
    /// How a reactor gives its reads and writes to a drive.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IoPath: "I/O path" {
        /// `Passthru` where the drive and the kernel offer it, else `Block`.
        Auto = "auto",
        /// The kernel's block layer, with interrupts: every file and every device.
        #[default]
        Block = "block",
        /// The block layer without interrupts: the reactor asks the drive whether it is done, as long as reads or writes
        /// are under way. Needs queues for that (`nvme.poll_queues`).
        Poll = "poll",
        /// NVMe commands to the drive's generic device (`/dev/ngXnY`), past the block layer.
        Passthru = "passthru",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in StoreKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
        for mode in FlushMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(*mode));
        }
        for path in IoPath::ALL {
            assert_eq!(path.to_string().parse(), Ok(*path));
        }
        let error = "green".parse::<StoreKind>().unwrap_err().to_string();
        assert_eq!(error, "`green` is no store; take cyan, null or blue");
    }
}
