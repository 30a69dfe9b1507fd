//! An OSD that cannot read its metadata ends itself once, and is not started again until somebody says so: a file in its store's
//! folder keeps it from that.

use std::process::ExitCode;

use carmine_daemon::ended;
use carmine_store::StoreError;
use carmine_testbed::{Layout, damaged, write_whole};
use carmine_types::OsdId;

/// Exit code of an OSD that cannot read its metadata: a supervisor must not start it again.
const EXIT_CODE: u8 = 3;

/// It has ended itself; others have its data.
#[derive(Debug, thiserror::Error)]
#[error("this OSD cannot read its metadata and has ended itself: {0}")]
pub(super) struct GaveUp(pub(super) String);

/// What it cannot read: it gave up, or its database is damaged where a mount reads it.
fn damage(error: &anyhow::Error) -> Option<String> {
    if let Some(GaveUp(what)) = error.downcast_ref() {
        return Some(what.clone());
    }
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(StoreError::Kv(error)) if error.is_damage => Some(error.to_string()),
        _ => None,
    })
}

/// Runs it unless it gave up in an earlier life.
pub(super) fn unless_damaged(
    layout: &Layout,
    osd: OsdId,
    serve: impl FnOnce() -> anyhow::Result<()>,
) -> ExitCode {
    if layout.damaged(osd).exists() {
        tracing::error!("{}", damaged(layout, osd));
        return ExitCode::from(EXIT_CODE);
    }
    let result = serve();
    let Some(what) = result.as_ref().err().and_then(damage) else { return ended(result) };
    if let Err(error) = write_whole(&layout.damaged(osd), format!("{what}\n").as_bytes()) {
        tracing::error!("that is not written down, and the next start will find the damage again: {error}");
    }
    tracing::error!("{}", damaged(layout, osd));
    ExitCode::from(EXIT_CODE)
}
