//! A connected client.

use crate::access::Access;
use crate::error::{ClientError, Result};
use crate::mon::{CommandReply, MonSession, NoHandler};
use crate::objecter::Objecter;
use crate::options::Options;
use crate::pool::Pool;
use carmine_crush::MapView;
use carmine_messenger::ClientConfig;
use carmine_reactor::{Payload, Shard};
use carmine_types::OsdId;
use carmine_types::errno::Errno;
use carmine_wire::EntityType;
use carmine_wire::osdmap::OsdMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Limit of requests to monitors and admin requests for which the options name none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one cluster, on one shard. Ends its connections when the last handle (also of its pools) is dropped.
pub struct Client {
    shard: Shard,
    options: Options,
    mon: Rc<MonSession>,
    objecter: Rc<Objecter>,
}

impl Client {
    /// Connects to one of the monitors and waits for the first map. Where the others are, the monitor says; those of `access` serve until
    /// then.
    ///
    /// # Errors
    /// No map within `options.connect_timeout`; the text names the reason.
    pub async fn connect(shard: &Shard, access: &Access, options: Options) -> Result<Rc<Client>> {
        let nonce = shard.random_u64() as u32;
        let keys = access.keys(shard, false);
        let mut config = ClientConfig::new(EntityType::CLIENT, options.name.clone(), nonce);
        access.protect(&mut config, keys.as_ref());
        let mon = MonSession::start(shard, access.mon_addrs(), Rc::new(config), keys, Rc::new(NoHandler));
        let objecter =
            Objecter::start(shard, Rc::clone(mon.config()), options.clone(), Rc::clone(mon.maps()));
        // Made first: if the map does not come, dropping it ends the session.
        let client = Rc::new(Client { shard: shard.clone(), options, mon, objecter });
        client.mon.ready(client.options.connect_timeout).await?;
        Ok(client)
    }

    /// The pool of this name in the current map.
    ///
    /// # Errors
    /// [`ClientError::NoPool`].
    pub fn pool(self: &Rc<Self>, name: &str) -> Result<Pool> {
        let id = self.osdmap().and_then(|map| map.pool_id(name));
        let id = id.ok_or_else(|| ClientError::NoPool(name.to_owned()))?;
        Ok(Pool::new(Rc::clone(self), id, name))
    }

    /// The pool with this number in the current map.
    ///
    /// # Errors
    /// [`ClientError::NoPool`].
    pub fn pool_by_id(self: &Rc<Self>, id: i64) -> Result<Pool> {
        let map = self.osdmap().ok_or_else(|| ClientError::NoPool(id.to_string()))?;
        let name = map.pool_names.get(&id).ok_or_else(|| ClientError::NoPool(id.to_string()))?;
        Ok(Pool::new(Rc::clone(self), id, name))
    }

    /// The same as [`Client::pool`], after getting the newest map if the pool is not in the current one.
    ///
    /// # Errors
    /// [`ClientError::NoPool`], or the monitor does not answer.
    pub async fn wait_pool(self: &Rc<Self>, name: &str) -> Result<Pool> {
        if let Ok(pool) = self.pool(name) {
            return Ok(pool);
        }
        self.wait_newest_map().await?;
        self.pool(name)
    }

    /// Gets the newest map that the monitor has.
    ///
    /// # Errors
    /// The monitor does not answer.
    pub async fn wait_newest_map(&self) -> Result<Arc<OsdMap>> {
        let limit = self.request_timeout();
        let newest = self.mon.newest_osdmap(limit).await?;
        self.mon.wait_for_map(newest, limit).await
    }

    /// Runs a monitor command given as JSON and returns its output.
    ///
    /// # Errors
    /// The command's errno with its status text, or the monitor does not answer.
    pub async fn mon_command(&self, json: &str) -> Result<CommandReply> {
        let reply = self.mon.command(json, Payload::new(), self.request_timeout()).await?;
        reply.checked(json)
    }

    /// Runs several monitor commands at the same time, since a real monitor makes one map a second. Returns for each what
    /// [`Client::mon_command`] would.
    pub async fn mon_commands(&self, commands: &[String]) -> Vec<Result<CommandReply>> {
        let replies = self.mon.commands(commands, self.request_timeout()).await;
        commands.iter().zip(replies).map(|(json, reply)| reply?.checked(json)).collect()
    }

    /// Asks an OSD of Carmine something, in JSON, and returns its answer.
    ///
    /// # Errors
    /// The OSD's errno with its answer, no answer in time, or the OSD is down.
    pub async fn admin(&self, osd: OsdId, json: &str) -> Result<String> {
        let reply = self.objecter.admin(osd, json, self.request_timeout()).await?;
        let text = String::from_utf8_lossy(&reply.json).into_owned();
        if reply.result < 0 {
            let what = format!("admin request {json} to {osd} ({text})");
            return Err(ClientError::Errno { what, errno: Errno(reply.result) });
        }
        Ok(text)
    }

    /// The current map.
    pub fn osdmap(&self) -> Option<Arc<OsdMap>> {
        self.mon.osdmap()
    }

    /// The current map with all its placements.
    pub fn view(&self) -> Option<Arc<MapView>> {
        self.objecter.view()
    }

    /// The session with the monitor.
    pub fn mon(&self) -> &Rc<MonSession> {
        &self.mon
    }

    /// The shard that this client lives on.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The id that the cluster knows this client by.
    pub fn global_id(&self) -> u64 {
        self.mon.global_id()
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.objecter.in_flight()
    }

    /// Connections to OSDs that stand: OSD, TCP port, counters.
    pub fn connections(&self) -> Vec<(OsdId, u16, carmine_messenger::ConnectionStats)> {
        self.objecter.connections()
    }

    /// Ends all connections; operations in flight fail with [`ClientError::Closed`].
    pub fn shutdown(&self) {
        self.objecter.shutdown();
        self.mon.shutdown();
    }

    pub(crate) fn objecter(&self) -> &Rc<Objecter> {
        &self.objecter
    }

    fn request_timeout(&self) -> Duration {
        self.options.op_timeout.unwrap_or(REQUEST_TIMEOUT)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.global_id())
    }
}
