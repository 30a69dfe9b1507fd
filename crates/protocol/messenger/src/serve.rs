//! The accepting side of the handshake.

use std::rc::Rc;

use carmine_reactor::{Shard, Socket};
use carmine_wire::EntityType;
use carmine_wire::frame::Tag;
use carmine_wire::handshake::{
    AuthBadMethod, AuthDone, AuthNone, AuthRequest, ClientIdent, Control, FLAG_LOSSY, MissingFeatures, Reset,
    ServerIdent, Signature, auth_method, connection_mode,
};

use crate::config::{Claim, GlobalIds, ServerConfig};
use crate::connection::{Connection, Established, Peer};
use crate::error::CloseReason;
use crate::handshake::{Result, Wire, unexpected};
use crate::limits::HANDSHAKE_TRIES;
use crate::message::Dispatcher;
use crate::reader::Reader;
use crate::{places, session, watch};

/// Serves an accepted socket in a task of its own: handshake, then messages to `dispatcher` until the connection ends. Returns at
/// once. A peer that gets no place at the gate, or fails the handshake, is logged and dropped; `dispatcher` is not called.
pub async fn serve(shard: &Shard, socket: Socket, config: Rc<ServerConfig>, dispatcher: Rc<dyn Dispatcher>) {
    let task_shard = shard.clone();
    shard.spawn(config.group, "msgr-serve", run(task_shard, socket, config, dispatcher));
}

async fn run(shard: Shard, socket: Socket, config: Rc<ServerConfig>, dispatcher: Rc<dyn Dispatcher>) {
    let stream = socket.into_stream(&shard);
    let sock = stream.peer_addr();
    let Some(place) = places::enter(&shard, &config.gate, &stream, config.limits.patience).await else {
        if let Some(refused) = config.gate.refused().count(shard.now_ns()) {
            let open = config.gate.connections_max();
            tracing::warn!(peer = %sock, "connection refused: {open} are open, the most there may be; {refused} refused since the last such line");
        }
        return stream.shutdown();
    };
    if !config.banner_pause.is_zero() {
        shard.sleep(config.banner_pause).await;
    }
    let limit = watch::HandshakeLimit::start(&shard, &stream, config.limits.handshake);
    let reader = Reader::new(&shard, stream.clone(), config.limits.recv_buf_bytes);
    let mut wire = Wire { stream, reader };
    let outcome = accept(&mut wire, &config).await;
    let timed_out = limit.end();
    let peer = match outcome {
        Ok(peer) => peer,
        // Port scans and health checks connect and disconnect.
        Err(CloseReason::Eof) if !timed_out => {
            return tracing::debug!(peer = %sock, "left during the handshake");
        }
        Err(reason) => {
            if let Some(failed) = config.gate.failed().count(shard.now_ns()) {
                let reason =
                    if timed_out { "it was not finished in time".into() } else { reason.to_string() };
                tracing::info!(peer = %sock, "handshake failed: {reason}; {failed} failed since the last such line");
            }
            return wire.stream.shutdown();
        }
    };
    let Wire { stream, reader } = wire;
    let global_id = peer.gid;
    let (limits, group) = (config.limits, config.group);
    let budget =
        config.budget.as_ref().filter(|(_, shares)| shares(&peer)).map(|(budget, _)| Rc::clone(budget));
    let received_bytes = Rc::clone(&reader.received_bytes);
    let made = Established { stream, peer, global_id, accepted: true, limits, budget, received_bytes, group };
    let conn = Connection::start(&shard, made);
    place.opened(&conn);
    if let Some(idle) = limits.idle {
        watch::idle(&conn, idle);
    }
    tracing::debug!(peer = %conn.peer(), "accepted");
    dispatcher.on_accepted(&conn);
    session::run(conn, reader, dispatcher).await;
}

async fn accept(wire: &mut Wire, config: &ServerConfig) -> Result<Peer> {
    let hello = wire.greet(config.entity).await?;
    if !config.accept.contains(&hello.entity) {
        return Err(CloseReason::protocol(format!("a {} may not connect here", hello.entity)));
    }
    let claim = authenticate(wire, config, hello.entity).await?;
    let ident = identify(wire).await?;
    let missing = config.required_features & !ident.supported | ident.required & !config.features;
    if missing != 0 {
        wire.send(&MissingFeatures(missing)).await?;
        return Err(CloseReason::protocol(format!("feature bits {missing:#x} are missing")));
    }
    wire.send(&ServerIdent {
        addrs: config.addrs.clone(),
        gid: config.id,
        global_seq: ident.global_seq,
        supported: config.features,
        required: config.required_features,
        flags: FLAG_LOSSY,
        cookie: 0,
    })
    .await?;
    Ok(Peer {
        entity: hello.entity,
        name: claim.name,
        gid: claim.gid,
        addr: ident.addrs.0.first().copied().unwrap_or_default(),
        sock: wire.stream.peer_addr(),
        features: config.features & ident.supported,
    })
}

/// Reads requests until one for method none in crc mode arrives. A client with a cephx key tries that method first.
async fn authenticate(wire: &mut Wire, config: &ServerConfig, entity: EntityType) -> Result<Claim> {
    for _ in 0..HANDSHAKE_TRIES {
        let request: AuthRequest = wire.expect().await?;
        let fits = request.method == auth_method::NONE && request.modes.contains(&connection_mode::CRC);
        if !fits {
            tracing::debug!(method = request.method, modes = ?request.modes, "authentication method refused");
            wire.send(&AuthBadMethod::only_none(request.method)).await?;
            continue;
        }
        let AuthNone { name, global_id, .. } = AuthNone::decode(&request.payload)?;
        let mut claim = Claim { entity, name, gid: global_id };
        if let GlobalIds::Assign(assign) = &config.global_ids {
            claim.gid = assign(&claim).ok_or_else(|| CloseReason::protocol("no global id is free now"))?;
        }
        wire.send(&AuthDone { global_id: claim.gid, mode: connection_mode::CRC, payload: Vec::new() })
            .await?;
        wire.send(&Signature::default()).await?;
        wire.expect::<Signature>().await?.check_none()?;
        return Ok(claim);
    }
    Err(CloseReason::protocol("no authentication method in common"))
}

/// Reads frames until CLIENT_IDENT arrives. Sessions do not survive their connection here, so a RECONNECT is refused.
async fn identify(wire: &mut Wire) -> Result<ClientIdent> {
    for _ in 0..HANDSHAKE_TRIES {
        let (tag, payload) = wire.next().await?;
        match tag {
            Tag::ClientIdent => return Ok(ClientIdent::decode(&payload)?),
            Tag::SessionReconnect => wire.send(&Reset { full: true }).await?,
            other => return Err(unexpected(other, "ClientIdent")),
        }
    }
    Err(CloseReason::protocol("too many attempts to reconnect a session that is gone"))
}
