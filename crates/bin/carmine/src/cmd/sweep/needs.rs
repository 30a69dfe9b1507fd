//! Programs that the points need and that are not ours: found before anything is started, not by every point again.

use std::collections::BTreeSet;
use std::path::Path;

use carmine_load::hosted::Tool;
use carmine_study::commands::{is_hosted, is_peer, tool};
use carmine_study::expand::Expansion;
use carmine_testbed::peer::Programs;

use carmine_bench::bench::require_tool;

/// Fails with what to install, or what is wrong with `--peer-build`.
pub(crate) fn check(expansion: &Expansion) -> anyhow::Result<()> {
    let configs = || expansion.points.iter().map(|planned| &planned.point.config);
    let builds: BTreeSet<Option<&str>> =
        configs().filter(|config| is_peer(config)).map(|config| config.text("peer_build")).collect();
    for build in builds {
        Programs::find(build.map(Path::new))?;
    }
    let mut tools: Vec<Tool> = Vec::new();
    for tool in configs().filter(|config| is_hosted(config)).map(tool) {
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    tools.into_iter().try_for_each(require_tool)
}
