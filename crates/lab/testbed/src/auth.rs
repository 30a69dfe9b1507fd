//! Who may connect to a testbed, and what protects its connections.

use std::net::SocketAddr;

use carmine_client::Access;
use carmine_types::{AuthKind, MsMode};

use crate::error::{Result, failed, refuse};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::spec::TestbedSpec;
use crate::testbed::mon_addrs;

impl TestbedSpec {
    /// Fails if connections cannot be protected as asked for.
    pub(crate) fn check_modes(&self) -> Result<()> {
        refuse!(
            self.ms_mode == MsMode::Secure && self.auth == AuthKind::None,
            "--ms-mode secure: its keys come with --auth cephx, which a testbed gets when it is made; this one has --auth none"
        );
        Ok(())
    }
}

/// How the cluster of a folder is reached by those who run it: as `client.admin`.
///
/// # Errors
/// The monitor has not said yet where it is, or the key cannot be read.
pub fn access(layout: &Layout, plan: &Plan) -> Result<Access> {
    let mons = mon_addrs(layout)
        .ok_or_else(|| failed!("the monitor of {} has no address yet", layout.dir().display()))?;
    access_at(layout, plan, mons)
}

/// The same, where the monitors' addresses are known.
pub(crate) fn access_at(_layout: &Layout, _plan: &Plan, mons: Vec<SocketAddr>) -> Result<Access> {
    Ok(mons.into())
}
