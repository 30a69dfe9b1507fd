//! OSDs that join a running testbed, with a new store, and OSDs that leave it for good when others have their data.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carmine_topology::OsdRow;
use carmine_types::OsdId;
use serde_json::json;

use crate::daemons;
use crate::error::{Result, fail_if, failed, refuse, usage};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::places;
use crate::status::{LIMIT, Probe, look, pgs_of, with_client};
use crate::testbed::{Event, StartOptions, make_store, mon_addr};

/// Pause between two looks at an OSD that is emptied.
const PAUSE: Duration = Duration::from_millis(200);

impl Testbed {
    /// Adds an OSD: the first number that was removed, else a new one. Makes its store, gives it a place in the map, starts it and
    /// waits until it is up; PGs move to it meanwhile and later. `wipe` lets it overwrite a device that is not blank.
    ///
    /// # Errors
    /// The testbed does not run, has named devices and none for another OSD, or has no CPUs for it.
    pub fn add_osd(&mut self, wipe: bool, start: &mut StartOptions<'_>) -> Result<OsdId> {
        self.running_mon()?;
        let before = self.plan.clone();
        let osd = self.place_for_another()?;
        let added = self.make_and_start(osd, wipe, start);
        if added.is_err() {
            // If the OSD got as far as the map, its number stays there, and the next attempt takes it.
            daemons::stop(self.layout(), &[Daemon::Osd(osd)], false)?;
            self.remove_store(osd)?;
            self.plan = before;
            self.write_plan()?;
        }
        added.map(|()| osd)
    }

    pub(crate) fn running_mon(&self) -> Result<SocketAddr> {
        let dir = self.layout().dir().display();
        let (_, missing) = self.parts()?;
        fail_if!(
            missing.contains(&Daemon::Mon),
            "the testbed in {dir} is not running: `carmine up --dir {dir}`"
        );
        mon_addr(self.layout()).ok_or_else(|| failed!("the monitor of {dir} has no address yet"))
    }

    /// Extends the plan by an OSD.
    fn place_for_another(&mut self) -> Result<OsdId> {
        if let Some(free) = self.plan.removed.pop_first() {
            return Ok(OsdId(free));
        }
        let osd = OsdId(self.plan.osds());
        refuse!(
            !self.plan.devices.is_empty() || !self.plan.slices.is_empty(),
            "the OSDs of this testbed have devices, and there is none for another: make a testbed with more --devs"
        );
        refuse!(
            self.plan.wal_devs.len() > 1,
            "each log of this testbed has a place of its own, and there is none for another"
        );
        let like = self.plan.grid.osds.last().cloned().ok_or_else(|| failed!("the plan has no OSD"))?;
        let reactors = u16::try_from(self.plan.cpu.reactors).unwrap_or(1);
        self.plan.spec.osds += 1;
        self.plan.cpu.osds += 1;
        // On CPUs of its own, if there are any.
        self.plan.grid.osds.push(OsdRow { osd: osd.0 as usize, ..like });
        self.place_anew(osd, reactors)?;
        Ok(osd)
    }

    fn make_and_start(&mut self, osd: OsdId, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        self.write_plan()?;
        files::private_dir(self.layout().osd_dir(osd))?;
        if self.plan.store.is_durable() {
            make_store(self.layout(), osd, wipe, start)?;
        }
        let uuid = self.plan.store_uuid(osd)?.to_string();
        let new = json!({ "prefix": "osd new", "uuid": uuid, "id": osd.0.to_string() });
        let place = [format!("host=host-{}", osd.0), "root=default".to_owned()];
        let place = json!({ "prefix": "osd crush add", "id": osd.to_string(), "weight": 1.0, "args": place });
        self.mon_command(&new)?;
        self.mon_command(&place)?;
        self.start_some(&[Daemon::Osd(osd)], start).map(drop)
    }

    /// Removes an OSD for good: takes it out, waits until others have its data and every PG is clean, stops it, and forgets it.
    ///
    /// # Errors
    /// There is no such OSD, too few would be left for the pool's copies, or its data was not moved in time: then it stays, out.
    pub fn remove_osd(&mut self, osd: OsdId, start: &mut StartOptions<'_>) -> Result<()> {
        let end = Instant::now() + start.limit;
        let mon = self.running_mon()?;
        let count = self.plan.osd_ids().count();
        if self.plan.osd_ids().all(|own| own != osd) {
            return Err(usage!("{osd}: this testbed has no such OSD"));
        }
        let size = usize::from(self.plan.pool.size);
        refuse!(
            count <= size,
            "{osd}: the pool has {size} copies, and {} OSDs would be left: `carmine osd add` first",
            count - 1
        );
        self.mon_command(&json!({ "prefix": "osd out", "ids": [osd.0.to_string()] }))?;
        with_client(mon, LIMIT, LIMIT, async |shard, client| {
            loop {
                let Some(left) = left_on(&look(client).await, osd) else { return Ok(()) };
                fail_if!(
                    start.cancel.load(std::sync::atomic::Ordering::Relaxed),
                    "interrupted: {osd} is out, and stays"
                );
                fail_if!(
                    Instant::now() > end,
                    "{osd} did not become empty in time ({left}): it is out, and stays; `carmine osd remove` goes on"
                );
                (start.events)(Event::Waiting(format!("others to have the data of {osd}: {left}")));
                shard.sleep(PAUSE).await;
            }
        })??;
        daemons::stop(self.layout(), &[Daemon::Osd(osd)], true)?;
        self.mon_command(&json!({ "prefix": "osd down", "ids": [osd.0.to_string()] }))?;
        let purge = json!({ "prefix": "osd purge", "id": osd.0, "yes_i_really_mean_it": true });
        self.mon_command(&purge)?;
        self.plan.removed.insert(osd.0);
        self.write_plan()?;
        self.remove_store(osd)
    }

    /// Removes what was made for an OSD; a named device is left as it is.
    fn remove_store(&self, osd: OsdId) -> Result<()> {
        let layout = self.layout();
        places::remove_parts(layout, osd)?;
        let files = [layout.admin_socket(osd), layout.http_addr(osd), layout.log(Daemon::Osd(osd))];
        files.iter().try_for_each(|file| files::remove_file(file))?;
        files::remove_dir(&layout.osd_dir(osd))
    }
}

/// The reason why an OSD cannot be removed yet; `None`: all PGs are clean without it.
fn left_on(seen: &Probe, osd: OsdId) -> Option<String> {
    let left = pgs_of(seen.up.values().flatten(), osd).len();
    let clean = seen.counts().clean;
    let waits = left > 0 || clean < seen.pgs || seen.up.values().any(std::result::Result::is_err);
    waits.then(|| format!("{left} PGs left, {clean} of {} clean", seen.pgs))
}
