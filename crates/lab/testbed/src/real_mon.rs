//! A testbed with a real monitor (`--mon ceph`): Carmine's OSDs, and `ceph-mon` with `ceph-mgr` in place of the embedded one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use carmine_client::Client;
use carmine_reactor::Group;
use carmine_reactor::sync::oneshot;
use carmine_types::OsdId;
use serde_json::{Value, json};

use crate::ceph::{CephMon, Programs, conf, free_port};
use crate::daemons::Daemons;
use crate::error::{Result, failed};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::plan::Plan;
use crate::status::{ANSWER_LIMIT, with_client};
use crate::testbed::{Event, StartOptions};

/// The device class of Carmine's OSDs: rules choose them by it.
const DEVICE_CLASS: &str = "carmine";
/// Weight of each OSD in the CRUSH map, as with the embedded monitor.
const WEIGHT: f64 = 1.0;

impl Testbed {
    /// Makes the monitor's store.
    ///
    /// # Errors
    /// A package is missing, or one of its programs fails.
    pub(crate) fn make_ceph_mon(&mut self, start: &StartOptions<'_>) -> Result<()> {
        self.plan.mon_port = free_port(self.plan.addr.port())?;
        let programs = Programs::find_mon()?;
        self.ceph_mon(&programs, start.cancel)?.make()
    }

    /// Starts the monitor, on the port of its last run if that is free.
    ///
    /// # Errors
    /// It does not lead in time; the text quotes its log.
    pub(crate) fn start_ceph_mon(
        &mut self,
        daemons: &mut Daemons,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        let port = self.plan.mon_port;
        self.plan.mon_port = free_port(port).or_else(|_| free_port(self.plan.addr.port()))?;
        let programs = Programs::find_mon()?;
        let mon = self.ceph_mon(&programs, start.cancel)?;
        if mon.plan.mon_port != port {
            mon.change_port()?;
        }
        mon.start(daemons, start)?;
        let addr = SocketAddr::new(self.plan.addr.ip(), self.plan.mon_port);
        files::write_whole(&self.layout().mon_addr(), addr.to_string().as_bytes())
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

    /// The monitor, with its configuration written.
    fn ceph_mon<'a>(&'a self, programs: &'a Programs, cancel: &'a AtomicBool) -> Result<CephMon<'a>> {
        let (layout, plan) = (self.layout(), &self.plan);
        files::write_whole(&layout.ceph_conf(), conf::of_testbed(layout, plan).as_bytes())?;
        Ok(CephMon { layout, plan, programs, cancel })
    }

    /// Registers the OSDs with a monitor that is new, and makes the pool.
    ///
    /// # Errors
    /// The monitor refuses a command.
    pub(crate) fn register_osds(&self, mons: &[SocketAddr]) -> Result<()> {
        with_client(mons, ANSWER_LIMIT, ANSWER_LIMIT, async |_, client| register(&self.plan, client).await)?
    }
}

async fn register(plan: &Plan, client: &Rc<Client>) -> Result<()> {
    // The pool is made last.
    if client.osdmap().is_some_and(|map| !map.pools.is_empty()) {
        return Ok(());
    }
    let osds: Vec<OsdId> = plan.osd_ids().collect();
    let mut new = Vec::new();
    for osd in &osds {
        new.push(json!({ "prefix": "osd new", "uuid": plan.store_uuid(*osd)?.to_string(), "id": osd.0 }));
    }
    run_all(client, new).await?;
    let place = |osd: &OsdId| {
        let args = [format!("host=host-{}", osd.0), "root=default".to_owned()];
        json!({ "prefix": "osd crush create-or-move", "id": osd.0, "weight": WEIGHT, "args": args })
    };
    run_all(client, osds.iter().map(place).collect()).await?;
    let (name, pgs) = (&plan.pool.name, plan.pool.pg_num);
    let ids: Vec<String> = osds.iter().map(|osd| osd.0.to_string()).collect();
    let class = json!({ "prefix": "osd crush set-device-class", "class": DEVICE_CLASS, "ids": ids });
    let pool = json!({ "prefix": "osd pool create", "pool": name, "pg_num": pgs, "pgp_num": pgs, "pool_type": "replicated" });
    run_all(client, vec![class, pool]).await?;
    run_all(client, vec![json!({ "prefix": "osd pool application enable", "pool": name, "app": "rbd" })])
        .await
}

/// Gives all commands at the same time: a real monitor makes one map a second.
async fn run_all(client: &Rc<Client>, commands: Vec<Value>) -> Result<()> {
    let mut answers = Vec::new();
    for command in commands {
        let (tell, told) = oneshot::channel();
        let (own, text) = (Rc::clone(client), command.to_string());
        client.shard().clone().spawn(Group::Admin, "command", async move {
            // Nobody waits any more if another command has failed.
            let _ = tell.send(own.mon_command(&text).await);
        });
        answers.push((command, told));
    }
    for (command, told) in answers {
        let answer = told.await.map_err(|_| failed!("{}: the answer was dropped", command["prefix"]))?;
        answer.map_err(|e| failed!("the monitor refuses {}: {e}", command["prefix"]))?;
    }
    Ok(())
}
