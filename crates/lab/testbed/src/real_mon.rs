//! A testbed with real monitors (`--mon ceph`): Carmine's OSDs, and `ceph-mon` with `ceph-mgr` in place of the embedded one.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use carmine_client::{Access, Client};
use carmine_types::OsdId;
use serde_json::{Value, json};

use crate::ceph::{CephMons, LEADER, Programs, choose_ports, conf, mon_state};
use crate::daemons::{self, Daemons};
use crate::error::{Result, failed};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::plan::Plan;
use crate::status::{ANSWER_LIMIT, with_client};
use crate::testbed::{Event, StartOptions};

impl Testbed {
    /// Makes the monitors' stores.
    ///
    /// # Errors
    /// A package is missing, or one of its programs fails.
    pub(crate) fn make_ceph_mons(&mut self, start: &StartOptions<'_>) -> Result<()> {
        choose_ports(&mut self.plan)?;
        let programs = Programs::find_mon()?;
        self.ceph_mons(&programs, start.cancel)?.make()
    }

    /// Starts these monitors on the ports of their last run. If nothing else runs (`is_first`), they get others where these are
    /// not free.
    ///
    /// # Errors
    /// One is not in the quorum in time; the text quotes its log.
    pub(crate) fn start_ceph_mons(
        &mut self,
        mons: &[u8],
        daemons: &mut Daemons,
        is_first: bool,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        let has_moved = is_first && choose_ports(&mut self.plan)?;
        let programs = Programs::find_mon()?;
        let all = self.ceph_mons(&programs, start.cancel)?;
        if has_moved {
            all.change_ports()?;
        }
        all.start(mons, daemons, start)?;
        let addrs: String =
            self.plan.mon_numbers().map(|mon| format!("{}\n", self.plan.mon_addr(mon))).collect();
        files::write_whole(&self.layout().mon_addr(), addrs.as_bytes())
    }

    /// Starts the manager, which is of use once the monitor knows it: nobody waits for that.
    ///
    /// # Errors
    /// Its package is missing, or it ends at once.
    pub(crate) fn start_ceph_mgr(&self, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<()> {
        let programs = Programs::find_mon()?;
        daemons.adopt(Daemon::Mgr, programs.launch(self.layout(), &self.plan, None, Daemon::Mgr)?)?;
        (start.events)(Event::Started(Daemon::Mgr));
        Ok(())
    }

    /// Ends a monitor or the manager at once, as in a crash.
    ///
    /// # Errors
    /// Its record is damaged, or it does not end.
    pub fn kill_daemon(&self, daemon: Daemon) -> Result<()> {
        daemons::kill(self.layout(), &[daemon]).map(drop)
    }

    /// Starts a real monitor, where it was, or the manager, and does not wait until it is of use.
    ///
    /// # Errors
    /// Its package is missing, or it ends at once.
    pub fn launch_ceph(&self, daemon: Daemon) -> Result<()> {
        let programs = Programs::find_mon()?;
        let mut daemons = Daemons::new(self.layout());
        daemons.adopt(daemon, programs.launch(self.layout(), &self.plan, None, daemon)?)?;
        daemons.keep();
        Ok(())
    }

    /// The monitor that leads, if real ones have a leader.
    #[must_use]
    pub fn leader(&self) -> Option<Daemon> {
        let leads = |mon: &u8| mon_state(self.layout(), *mon).is_some_and(|state| state == LEADER);
        self.plan.mon_numbers().find(leads).map(Daemon::Mon)
    }

    /// The monitors, with their configuration written.
    fn ceph_mons<'a>(&'a self, programs: &'a Programs, cancel: &'a AtomicBool) -> Result<CephMons<'a>> {
        let (layout, plan) = (self.layout(), &self.plan);
        files::write_whole(&layout.ceph_conf(), conf::of_testbed(layout, plan).as_bytes())?;
        Ok(CephMons { layout, plan, programs, cancel })
    }

    /// Registers the OSDs with a monitor that is new, and makes the pool.
    ///
    /// # Errors
    /// The monitor refuses a command.
    pub(crate) fn register_osds(&self, access: &Access) -> Result<()> {
        with_client(access, ANSWER_LIMIT, ANSWER_LIMIT, async |_, client| register(&self.plan, client).await)?
    }
}

async fn register(plan: &Plan, client: &Rc<Client>) -> Result<()> {
    // The pool is made last.
    if client.osdmap().is_some_and(|map| !map.pools.is_empty()) {
        return Ok(());
    }
    let new = |osd: OsdId| -> Result<Value> {
        Ok(json!({ "prefix": "osd new", "uuid": plan.store_uuid(osd)?.to_string(), "id": osd.0 }))
    };
    run_all(client, plan.osd_ids().map(new).collect::<Result<_>>()?).await?;
    let (name, pgs) = (&plan.pool.name, plan.pool.pg_num);
    let pool = json!({ "prefix": "osd pool create", "pool": name, "pg_num": pgs, "pgp_num": pgs, "pool_type": "replicated" });
    run_all(client, vec![pool]).await?;
    run_all(client, vec![json!({ "prefix": "osd pool application enable", "pool": name, "app": "rbd" })])
        .await
}

async fn run_all(client: &Client, commands: Vec<Value>) -> Result<()> {
    let texts: Vec<String> = commands.iter().map(Value::to_string).collect();
    for (command, answer) in commands.iter().zip(client.mon_commands(&texts).await) {
        answer.map_err(|e| failed!("the monitor refuses {}: {e}", command["prefix"]))?;
    }
    Ok(())
}
