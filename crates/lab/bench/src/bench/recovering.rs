//! A recovery under the load: an OSD is taken out when the window begins, others get its data, and behind the window it comes
//! in again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use carmine_client::Client;
use carmine_reactor::Group;
use carmine_types::OsdId;
use serde_json::{Value, json};

/// Time between two looks at whether all PGs are clean.
const LOOK: Duration = Duration::from_millis(50);
/// An OSD that came in again has its data back after this time at the latest.
const BACK_LIMIT: Duration = Duration::from_secs(300);

/// An OSD that is out.
pub(super) struct Recovering {
    client: Rc<Client>,
    osds: Vec<OsdId>,
    out: OsdId,
    seen: Rc<Seen>,
}

/// What the looks at the PGs have shown.
#[derive(Default)]
struct Seen {
    /// Seconds from the beginning until all PGs were clean without the OSD.
    clean_s: Cell<Option<f64>>,
    /// Nobody wants to know it any more.
    is_over: Cell<bool>,
}

impl Recovering {
    /// Takes an OSD out, and begins to look.
    ///
    /// # Errors
    /// The monitor refuses.
    pub(super) async fn begin(client: &Rc<Client>, osds: Vec<OsdId>, out: OsdId) -> Result<Recovering> {
        let began = Instant::now();
        let recovering = Recovering { client: Rc::clone(client), osds, out, seen: Rc::default() };
        recovering.order("osd out").await?;
        let (client, osds, seen) = (Rc::clone(client), recovering.osds.clone(), Rc::clone(&recovering.seen));
        let shard = client.shard().clone();
        shard.clone().spawn(Group::Client, "recovery", async move {
            while !seen.is_over.get() && seen.clean_s.get().is_none() {
                if has_left(&client, out) && are_clean(&client, &osds).await && !seen.is_over.get() {
                    seen.clean_s.set(Some(began.elapsed().as_secs_f64()));
                }
                shard.sleep(LOOK).await;
            }
        });
        Ok(recovering)
    }

    /// The OSD, and the seconds until all PGs were clean, if they are. Nothing is seen from then on.
    pub(super) fn seen(&self) -> (OsdId, Option<f64>) {
        self.seen.is_over.set(true);
        (self.out, self.seen.clean_s.get())
    }

    /// Takes the OSD in again; if it `waits`, the OSD has its data when this returns.
    ///
    /// # Errors
    /// The monitor refuses, or the OSD does not get its data back in time.
    pub(super) async fn end(self, waits: bool) -> Result<()> {
        self.seen.is_over.set(true);
        self.order("osd in").await?;
        let end = Instant::now() + BACK_LIMIT;
        while waits && !are_clean(&self.client, &self.osds).await {
            if Instant::now() > end {
                bail!("not all PGs were clean {BACK_LIMIT:?} after {} came in again", self.out);
            }
            self.client.shard().sleep(LOOK).await;
        }
        Ok(())
    }

    async fn order(&self, prefix: &str) -> Result<()> {
        let order = json!({ "prefix": prefix, "ids": [self.out.0.to_string()] });
        let ordered = self.client.mon_command(&order.to_string()).await;
        ordered.map_err(|error| anyhow!("{error}")).with_context(|| format!("`{prefix} {}`", self.out.0))?;
        let newest = self.client.wait_newest_map().await;
        newest.map(drop).map_err(|error| anyhow!("{error}"))
    }
}

/// No PG has this OSD as a member.
fn has_left(client: &Client, out: OsdId) -> bool {
    client.view().is_some_and(|view| view.pgs_of(out).next().is_none())
}

/// All PGs are active and clean, by the OSDs that lead them and the newest map.
async fn are_clean(client: &Client, osds: &[OsdId]) -> bool {
    let Some(epoch) = client.view().map(|view| u64::from(view.epoch().0)) else { return false };
    for osd in osds {
        let told = client.admin(*osd, r#"{"prefix":"status"}"#).await;
        let told = told.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
        let is_clean = told["pgs"]["clean"].is_u64() && told["pgs"]["clean"] == told["pgs"]["total"];
        if !is_clean || told["epoch"].as_u64() < Some(epoch) {
            return false;
        }
    }
    true
}
