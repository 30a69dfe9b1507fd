//! OSDs that join a running testbed, with a new store, and OSDs that leave it for good when others have their data.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_client::Access;
use carmine_topology::OsdRow;
use carmine_types::{AuthKind, MonKind, OsdId};
use serde_json::{Value, json};

use crate::auth::{CAPS_OF_OSD, access, access_at, entity_of};
use crate::daemons;
use crate::error::{Result, fail_if, failed, refuse};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::places;
use crate::plan::real;
use crate::status::{LIMIT, PgCounts, Probe, look, pgs_of, with_client};
use crate::testbed::{Event, StartOptions, make_store};

/// Pause between two looks at an OSD that is emptied.
const PAUSE: Duration = Duration::from_millis(200);

impl Testbed {
    /// Adds an OSD: the first number that was removed, else a new one. Makes its store, gives it a place in the map, starts it and
    /// waits until it is up; PGs move to it meanwhile and later. `wipe` lets it overwrite a device that is not blank. `device` is its
    /// drive; without it an OSD that was removed has its old one again.
    ///
    /// # Errors
    /// The testbed does not run, has named devices and none for another OSD, or has no CPUs for it.
    pub fn add_osd(
        &mut self,
        device: Option<PathBuf>,
        wipe: bool,
        start: &mut StartOptions<'_>,
    ) -> Result<OsdId> {
        self.running()?;
        let before = self.plan.clone();
        let mut osd = self.place_for_another(device)?;
        let place = self.plan.place_of(osd).unwrap_or_default();
        let added = self.register_another(place).and_then(|registered| {
            osd = registered;
            self.make_and_start(osd, wipe, start)
        });
        if added.is_err() {
            // If the OSD got as far as the map of a testbed, its number stays there, and the next attempt takes it.
            daemons::stop(self.layout(), &[Daemon::Osd(osd)], false)?;
            self.remove_store(osd)?;
            if self.plan.joined.is_some() {
                self.forget_joined(&[osd]);
            }
            self.plan = before;
            self.write_plan()?;
        }
        added.map(|()| osd)
    }

    /// How the cluster is reached, which must run.
    pub(crate) fn running(&self) -> Result<Access> {
        if let Some(joined) = &self.plan.joined {
            return access_at(self.layout(), &self.plan, joined.mons.clone());
        }
        let dir = self.layout().dir().display();
        let (running, _) = self.parts()?;
        fail_if!(
            !self.plan.have_quorum(&running),
            "the testbed in {dir} is not running: `carmine up --dir {dir}`"
        );
        access(self.layout(), &self.plan)
    }

    /// Extends the plan by an OSD.
    fn place_for_another(&mut self, device: Option<PathBuf>) -> Result<OsdId> {
        let is_given = device.is_some();
        let device = device.map(|device| self.new_device(device)).transpose()?;
        if let Some(free) = self.plan.removed.pop_first() {
            let place = self.plan.place_of(OsdId(free));
            let place = place.and_then(|place| self.plan.spec.devices.get_mut(place));
            place.zip(device).into_iter().for_each(|(place, device)| *place = device);
            return Ok(OsdId(free));
        }
        let known: BTreeSet<u32> = self.plan.numbers().map(|osd| osd.0).collect();
        let osd = OsdId((0..).find(|id| !known.contains(id)).unwrap_or_default());
        let have_devices = !self.plan.devices.is_empty() || !self.plan.slices.is_empty();
        refuse!(
            have_devices && !is_given,
            "the OSDs of this testbed have devices, and there is none for another: name one with --dev"
        );
        self.plan.spec.devices.extend(device);
        refuse!(
            self.plan.wal_devs.len() > 1,
            "each log of this testbed has a place of its own, and there is none for another"
        );
        let like = self.plan.grid.osds.last().cloned().ok_or_else(|| failed!("the plan has no OSD"))?;
        let reactors = u16::try_from(self.plan.cpu.reactors).unwrap_or(1);
        self.plan.spec.osds += 1;
        self.plan.cpu.osds += 1;
        self.plan.joined.iter_mut().for_each(|joined| joined.ids.push(osd.0));
        // On CPUs of its own, if there are any.
        self.plan.grid.osds.push(OsdRow { osd: osd.0 as usize, ..like });
        self.place_anew(osd, reactors)?;
        Ok(osd)
    }

    /// Checks the drive of an OSD that is added.
    fn new_device(&self, device: PathBuf) -> Result<PathBuf> {
        let (plan, shown) = (&self.plan, device.display());
        refuse!(
            plan.devices.is_empty() || !plan.slices.is_empty(),
            "--dev {shown}: the OSDs of this testbed have files, or share their devices"
        );
        let is_used =
            plan.osd_ids().filter_map(|osd| plan.device_of(osd)).any(|used| real(used) == real(&device));
        refuse!(is_used, "--dev {shown}: another OSD has it");
        Ok(device)
    }

    /// Registers the OSD at a place of the plan with the cluster that the others have joined, which may give it another number. (A
    /// testbed's monitor hears of an OSD when its store is made.)
    fn register_another(&mut self, place: usize) -> Result<OsdId> {
        if self.plan.joined.is_some() {
            self.register_joined(vec![place])?;
        }
        self.plan.numbers().nth(place).ok_or_else(|| failed!("the plan has no OSD at place {place}"))
    }

    fn make_and_start(&mut self, osd: OsdId, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        self.write_plan()?;
        files::private_dir(self.layout().osd_dir(osd))?;
        if self.plan.store.is_durable() {
            make_store(self.layout(), osd, wipe, start)?;
        }
        if self.plan.joined.is_none() {
            let uuid = self.plan.store_uuid(osd)?.to_string();
            self.mon_command(&json!({ "prefix": "osd new", "uuid": uuid, "id": osd.0 }))?;
        }
        self.give_key(osd)?;
        if self.plan.mon == MonKind::Embedded && self.plan.joined.is_none() {
            // With a real monitor, and in a cluster that it joins, the OSD does this itself.
            let (place, weight) = self.plan.crush_place(osd)?;
            let id = osd.to_string();
            let place = json!({ "prefix": "osd crush add", "id": id, "weight": weight, "args": place });
            self.mon_command(&place)?;
        }
        let started = self.start_some(&[Daemon::Osd(osd)], start)?;
        fail_if!(started.is_lost(osd), "{}", started.reasons());
        Ok(())
    }

    /// Has the monitor make a key for an OSD, where OSDs have keys.
    fn give_key(&self, osd: OsdId) -> Result<()> {
        if self.plan.auth == AuthKind::None {
            return Ok(());
        }
        let entity = entity_of(osd);
        let caps: Vec<&str> = CAPS_OF_OSD.iter().flat_map(|(service, caps)| [*service, *caps]).collect();
        let wish = json!({ "prefix": "auth get-or-create", "entity": entity.to_string(), "caps": caps });
        let keyring = self.mon_command(&wish)?;
        files::write_private(&self.layout().keyring(&entity), &keyring)
    }

    /// Removes an OSD for good: takes it out, waits until others have its data and every PG is clean, stops it, and forgets it. Of an
    /// OSD that does not run the others have to serve all data; where too few are left for the pool's copies, these are made
    /// when another OSD is added.
    ///
    /// # Errors
    /// There is no such OSD, too few would be left for the pool's copies, or its data was not moved in time: then it stays, out.
    pub fn remove_osd(&mut self, osd: OsdId, start: &mut StartOptions<'_>) -> Result<()> {
        let end = Instant::now() + start.limit;
        self.running()?;
        self.plan.require_osd(osd)?;
        let is_dead = self.parts()?.1.contains(&Daemon::Osd(osd));
        let needs_clean = self.plan.is_part() || self.can_be_clean_without(osd, is_dead)?;
        if is_dead {
            self.mon_command(&json!({ "prefix": "osd down", "ids": [osd.0.to_string()] }))?;
        }
        self.mon_command(&json!({ "prefix": "osd out", "ids": [osd.0.to_string()] }))?;
        if self.plan.is_part() {
            self.wait_until_unneeded(osd, end, start)?;
        } else {
            self.wait_until_empty(osd, needs_clean, end, start)?;
        }
        daemons::stop(self.layout(), &[Daemon::Osd(osd)], true)?;
        self.purge(osd)?;
        self.plan.removed.insert(osd.0);
        self.write_plan()?;
        self.remove_store(osd)
    }

    /// Whether the other OSDs of a testbed are enough for all copies.
    ///
    /// # Errors
    /// They are too few to do without this one.
    fn can_be_clean_without(&self, osd: OsdId, is_dead: bool) -> Result<bool> {
        let (size, min_size) = (usize::from(self.plan.pool.size), usize::from(self.plan.pool.min_size));
        let (left, least) = (self.plan.osd_ids().count() - 1, if is_dead { min_size } else { size });
        refuse!(
            left < least,
            "{osd}: the pool has {size} copies and serves with {min_size}, and {left} OSDs would be left: `carmine osd add` first"
        );
        Ok(left >= size)
    }

    /// Removes an OSD that does not run from the map.
    pub(crate) fn purge(&self, osd: OsdId) -> Result<()> {
        self.mon_command(&json!({ "prefix": "osd down", "ids": [osd.0.to_string()] }))?;
        // A real manager has `osd purge`, and gives its monitor this one when it has found that the OSD may go.
        let prefix = if self.plan.mon == MonKind::Ceph { "osd purge-actual" } else { "osd purge" };
        let purge = json!({ "prefix": prefix, "id": osd.0, "yes_i_really_mean_it": true });
        self.mon_command(&purge).map(drop)
    }

    /// Waits until the other OSDs of a testbed have the data of one that is out.
    fn wait_until_empty(
        &self,
        osd: OsdId,
        needs_clean: bool,
        end: Instant,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        with_client(&self.running()?, LIMIT, LIMIT, async |shard, client| {
            loop {
                let seen = look(client, &self.plan).await;
                let Some(left) = left_on(&seen, osd, needs_clean) else { return Ok(()) };
                keep_waiting(osd, &left, end, start)?;
                shard.sleep(PAUSE).await;
            }
        })?
    }

    /// Removes what was made for an OSD; a named device is left as it is.
    fn remove_store(&self, osd: OsdId) -> Result<()> {
        let layout = self.layout();
        places::remove_parts(layout, osd)?;
        let log = layout.log(Daemon::Osd(osd));
        let files = [layout.admin_socket(osd), layout.http_addr(osd), log, layout.keyring(&entity_of(osd))];
        files.iter().try_for_each(|file| files::remove_file(file))?;
        files::remove_dir(&layout.osd_dir(osd))
    }
}

/// Between two looks at an OSD that is out, and whose data others need for this reason: tells that it waits.
///
/// # Errors
/// It is after `end`, or the start is cancelled.
pub(crate) fn keep_waiting(osd: OsdId, why: &str, end: Instant, start: &mut StartOptions<'_>) -> Result<()> {
    fail_if!(start.cancel.load(Ordering::Relaxed), "interrupted: {osd} is out, and stays");
    fail_if!(
        Instant::now() > end,
        "{osd} did not become empty in time ({why}): it is out, and stays; `carmine osd remove` continues"
    );
    (start.events)(Event::Waiting(format!("others to have the data of {osd}: {why}")));
    Ok(())
}

/// The reason why an OSD cannot be removed yet; `None`: the others have all copies without it (`needs_clean`), or whole ones, but
/// fewer than the pool's size.
fn left_on(seen: &Probe, osd: OsdId, needs_clean: bool) -> Option<String> {
    let left = pgs_of(seen.up.values().flatten(), osd).len();
    let (counts, unfound) = (seen.counts(), pgs_with_unfound(seen));
    let ready = if needs_clean { counts.clean } else { counts.active };
    let silent = seen.up.values().any(std::result::Result::is_err);
    let waits = left > 0 || unfound > 0 || ready < seen.pgs || silent;
    let PgCounts { active, clean, .. } = counts;
    waits.then(|| {
        format!(
            "{left} PGs left, {active} of {} active, {clean} clean, {unfound} with objects that nobody else has",
            seen.pgs
        )
    })
}

/// PGs that look for objects of which only OSDs that are not there have a whole copy.
fn pgs_with_unfound(seen: &Probe) -> usize {
    let states = seen.up.values().flatten().filter_map(|account| account["pg_states"].as_array()).flatten();
    let has_unfound = |pg: &&Value| pg["state"].as_str().is_some_and(|state| state.contains("unfound"));
    states.filter(|pg| pg["primary"] == true).filter(has_unfound).count()
}
