//! Another server to measure beside: a Ceph cluster started from its own binaries on loopback.
