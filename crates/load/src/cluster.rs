//! placeholder
pub struct ClusterTarget;
