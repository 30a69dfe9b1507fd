//! The place of an OSD in the CRUSH map of a cluster that it has joined. The OSD asks for it at each start, as Ceph's do
//! (osd_crush_update_on_start, osd_class_update_on_start): without a place an OSD that is up has no PGs.

use std::time::Duration;

use carmine_client::MonSession;
use carmine_reactor::Shard;
use carmine_types::{Errno, OsdId, errno};
use serde_json::{Value, json};

/// Longest wait for a monitor's answer; a cluster without a quorum gives none.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause before a command that failed is given again.
const PAUSE: Duration = Duration::from_secs(1);

/// Where an OSD is in the CRUSH map.
#[derive(Clone, Debug, PartialEq)]
pub struct CrushPlace {
    /// Its weight if it has none yet: TiB of its store, as in Ceph.
    pub weight: f64,
    /// Its buckets, each `TYPE=NAME`, such as `host=a` and `root=default`.
    pub location: Vec<String>,
    /// Its device class unless it has another one; `None`: the monitor gives it one.
    pub class: Option<String>,
}

/// Asks until the monitor has given the OSD its place.
pub(crate) async fn ask_for(place: &CrushPlace, osd: OsdId, session: &MonSession, shard: &Shard) {
    while let Err(why) = try_once(place, osd, session).await {
        tracing::warn!("{osd} has no place in the CRUSH map yet: {why}");
        shard.sleep(PAUSE).await;
    }
}

async fn try_once(place: &CrushPlace, osd: OsdId, session: &MonSession) -> Result<(), String> {
    // Before the first map the session does not know the cluster's id, which a command must have.
    session.ready(ANSWER).await.map_err(|e| e.to_string())?;
    let CrushPlace { weight, location, class } = place;
    let to = json!({ "prefix": "osd crush create-or-move", "id": osd.0, "weight": weight, "args": location });
    let class = class.as_ref().map(
        |class| json!({ "prefix": "osd crush set-device-class", "class": class, "ids": [osd.0.to_string()] }),
    );
    let commands: Vec<String> = [Some(to), class].iter().flatten().map(Value::to_string).collect();
    for reply in session.commands(&commands, ANSWER).await {
        let reply = reply.map_err(|e| e.to_string())?;
        match reply.result {
            // Only the class, which somebody has chosen.
            errno::EBUSY => tracing::info!("{osd} keeps its device class: {}", reply.status),
            result if result < 0 => return Err(format!("{}: {}", reply.status, Errno(result))),
            _ => {}
        }
    }
    Ok(())
}
