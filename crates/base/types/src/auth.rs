//! The words for how the processes of a cluster know each other, and for what protects their connections.

crate::words! {
    /// Authentication of a cluster (Ceph's auth_cluster_required and its kin).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AuthKind: "authentication" {
        /// Everybody is who they say they are.
        #[default]
        None = "none",
        /// By keys that the monitor knows.
        Cephx = "cephx",
    }
}

crate::words! {
    /// What protects the frames of a connection (Ceph's ms_cluster_mode and its kin).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MsMode: "mode" {
        /// Checksums.
        #[default]
        Crc = "crc",
        /// Encryption: AES-128-GCM.
        Secure = "secure",
    }
}
