//! An OSD that cannot read its metadata ends itself once, and is not started again until somebody says so: a file in its store's
//! folder keeps it from that.

use std::process::ExitCode;

use carmine_daemon::ended;
use carmine_osd::{OsdConfig, report_damage};
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
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

/// Runs it unless it gave up in an earlier life. The monitor hears why it does not.
pub(super) fn unless_damaged(
    layout: &Layout,
    osd: OsdId,
    config: impl Fn() -> anyhow::Result<OsdConfig>,
    serve: impl FnOnce(OsdConfig) -> anyhow::Result<()>,
) -> ExitCode {
    let mark = layout.damaged(osd);
    let what = if mark.exists() {
        fs_err::read_to_string(&mark).unwrap_or_default()
    } else {
        let result = config().and_then(serve);
        let Some(what) = result.as_ref().err().and_then(damage) else { return ended(result) };
        if let Err(error) = write_whole(&mark, format!("{what}\n").as_bytes()) {
            tracing::error!(
                "that is not written down, and the next start will find the damage again: {error}"
            );
        }
        what
    };
    tracing::error!("{}", damaged(layout, osd));
    if let Err(error) = config().and_then(|config| report(&config, what.trim())) {
        tracing::warn!("the monitor does not know: {error:#}");
    }
    ExitCode::from(EXIT_CODE)
}

fn report(config: &OsdConfig, what: &str) -> anyhow::Result<()> {
    let reactor = Config { name: "damage".into(), poll: PollPolicy::Sleep, ..Config::default() };
    block_on(reactor, async |shard: Shard| report_damage(&shard, config, what.to_owned()).await)??;
    Ok(())
}
