//! The answering side of heartbeats: ports of their own, in a group of their own.

use std::net::IpAddr;
use std::rc::{Rc, Weak};

use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_reactor::{Group, Listener};
use carmine_types::{Epoch, UTime};
use carmine_wire::osd_msg::OsdPing;
use carmine_wire::{EntityAddr, EntityType, Front};

use crate::shard::OsdShard;
use crate::start::{self, OsdError, accept};

/// Listens on a free port of this address and answers pings there; the port's address.
pub(super) async fn listen(osd: &Rc<OsdShard>, ip: IpAddr) -> Result<EntityAddr, OsdError> {
    let listener = start::listen(osd, ip).await?;
    let addr = EntityAddr::msgr2(listener.local_addr(), osd.config.nonce);
    let mut config = ServerConfig {
        accept: vec![EntityType::OSD],
        gate: osd.config.gates.heartbeat.clone(),
        group: Group::Heartbeat,
        ..ServerConfig::new(EntityType::OSD, osd.config.id.0.into(), addr.into())
    };
    osd.guard(&mut config);
    let serving = serve_all(Rc::clone(osd), listener, Rc::new(config));
    osd.shard.spawn(Group::Heartbeat, "accept-heartbeat", serving);
    Ok(addr)
}

async fn serve_all(osd: Rc<OsdShard>, listener: Listener, config: Rc<ServerConfig>) {
    loop {
        let socket = accept(&osd, &listener, "heartbeats").await;
        let answers = Rc::new(Answers(Rc::downgrade(&osd)));
        serve(&osd.shard, socket, Rc::clone(&config), answers).await;
    }
}

/// The fields about this OSD that pings and answers share.
pub(super) fn ping(osd: &OsdShard) -> OsdPing {
    let view = osd.view();
    let map = view.as_ref().map(|view| view.map());
    let up_from = map.and_then(|map| map.osd_info.get(osd.config.id.0 as usize)).map(|info| info.up_from);
    OsdPing {
        fsid: map.map(|map| map.fsid).unwrap_or_default(),
        epoch: osd.epoch(),
        op: OsdPing::REPLY,
        stamp: UTime::ZERO,
        padding_bytes: OsdPing::PADDING_BYTES,
        up_from: up_from.unwrap_or(Epoch(0)),
        mono_ping_ns: 0,
        mono_send_ns: osd.shard.now_ns(),
        delta_ub_ns: None,
    }
}

struct Answers(Weak<OsdShard>);

impl Dispatcher for Answers {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        let Some(osd) = self.0.upgrade() else { return conn.close("shut down") };
        match OsdPing::from_front(&msg.header, &msg.front) {
            Ok(asked) if asked.op == OsdPing::PING => {
                let OsdPing { stamp, mono_ping_ns, .. } = asked;
                conn.send(Message::encode(&OsdPing { stamp, mono_ping_ns, ..ping(&osd) }));
            }
            Ok(_) => {}
            Err(error) => conn.close(format!("ping: {error}")),
        }
    }

    fn on_closed(&self, _conn: &Rc<Connection>, _reason: &str) {}
}
