//! `osd metadata` and `osd find`: what an OSD said of itself when it booted, and where it is.

use carmine_types::OsdId;
use serde_json::{Value, json};

use super::dump;
use crate::command::View;

/// What the OSD said, all values as text; only its number if it has not booted since this monitor began.
pub(crate) fn json(view: &View<'_>, osd: OsdId) -> Value {
    let mut out = json!({ "id": osd.0 });
    for (key, value) in view.stats.metadata(osd) {
        out[key] = json!(value);
    }
    if let Some(addrs) = view.map.client_addr(osd) {
        let shown = dump::addr_list(addrs);
        for key in ["front_addr", "back_addr", "hb_front_addr", "hb_back_addr"] {
            out[key] = json!(shown);
        }
    }
    out
}

/// Address, host and place in the CRUSH tree.
pub(crate) fn find_json(view: &View<'_>, osd: OsdId) -> Value {
    let at = osd.0 as usize;
    let host = view.stats.metadata(osd).find(|(key, _)| *key == "hostname").map_or("", |(_, value)| value);
    json!({
        "osd": osd.0,
        "addrs": dump::addr_vec(view.map.client_addrs.get(at)),
        "osd_fsid": view.map.osd_uuid.get(at).copied().unwrap_or_default().to_string(),
        "host": host,
        "crush_location": { "root": "default" },
    })
}
