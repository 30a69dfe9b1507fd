//! What the stores of running OSDs lie on.

use std::path::PathBuf;

use crate::sample::device_of;
use anyhow::Context;
use carmine_load::drive::StoreFacts;
use carmine_testbed::{Layout, Plan, ask_osd};
use carmine_types::OsdId;

/// As the OSDs say; none for stores in memory.
pub(super) fn stores(layout: &Layout, plan: &Plan) -> anyhow::Result<Vec<StoreFacts>> {
    let ask = |osd: OsdId| -> anyhow::Result<Option<StoreFacts>> {
        let answer = ask_osd(layout, osd, r#"{"prefix":"dump_store"}"#)?;
        serde_json::from_str(&answer).with_context(|| format!("{osd} does not say what its store lies on"))
    };
    (0..plan.osds()).map(OsdId).filter_map(|osd| ask(osd).transpose()).collect()
}

/// Block devices to watch, as the kernel's statistics name them: those of all parts of the stores; of stores in memory and of
/// others', what the OSDs' folders and the named devices lie on.
pub(super) fn watched(layout: &Layout, osds: u32, devices: &[PathBuf], stores: &[StoreFacts]) -> Vec<String> {
    let mut names: Vec<String> = if stores.is_empty() {
        let folders = (0..osds).map(|id| layout.osd_dir(OsdId(id)));
        devices.iter().cloned().chain(folders).filter_map(|path| device_of(&path)).collect()
    } else {
        stores.iter().flat_map(StoreFacts::nodes).map(str::to_owned).collect()
    };
    names.sort_unstable();
    names.dedup();
    names
}

/// Distinct devices that hold data.
pub(super) fn data_drives(stores: &[StoreFacts]) -> u32 {
    let mut names: Vec<&String> = stores.iter().filter_map(|store| store.data.drive.node.as_ref()).collect();
    names.sort_unstable();
    names.dedup();
    names.len() as u32
}
