//! The accepting side of the handshake.

use std::rc::Rc;

use carmine_auth::service::Guest;
use carmine_reactor::{Shard, Socket};
use carmine_types::{MsMode, errno};
use carmine_wire::EntityType;
use carmine_wire::frame::Tag;
use carmine_wire::handshake::{
    AuthBadMethod, AuthDone, AuthNone, AuthReplyMore, AuthRequest, AuthRequestMore, ClientIdent, Control,
    FLAG_LOSSY, MissingFeatures, Reset, ServerIdent, Signature, auth_method, connection_mode,
};

use crate::auth::{Guard, Side, Verdict, number};
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
    let mut wire = Wire::new(stream, reader, config.guard.is_some());
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
    let Wire { stream, reader, sealer, .. } = wire;
    let global_id = peer.gid;
    let (limits, group) = (config.limits, config.group);
    let budget =
        config.budget.as_ref().filter(|(_, shares)| shares(&peer)).map(|(budget, _)| Rc::clone(budget));
    let received_bytes = Rc::clone(&reader.received_bytes);
    let made = Established {
        stream,
        peer,
        global_id,
        accepted: true,
        limits,
        budget,
        received_bytes,
        group,
        sealer,
    };
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
    let (claim, guest) = match &config.guard {
        None => (believe(wire, config, hello.entity).await?, None),
        Some(guard) => check(wire, config, &**guard, hello.entity).await?,
    };
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
        guest,
    })
}

/// Method cephx: lets in who proves to be somebody.
async fn check(
    wire: &mut Wire,
    config: &ServerConfig,
    guard: &dyn Guard,
    entity: EntityType,
) -> Result<(Claim, Option<Guest>)> {
    let allowed: Vec<u32> = config.modes.iter().map(|mode| number(*mode)).collect();
    let refuse = |method, result| AuthBadMethod {
        method,
        result,
        allowed_methods: vec![auth_method::CEPHX],
        allowed_modes: allowed.clone(),
    };
    let (mode, mut payload) = 'found: {
        for _ in 0..HANDSHAKE_TRIES {
            let request: AuthRequest = wire.expect().await?;
            // The client's order counts.
            let mode = |number_: &u32| config.modes.iter().find(|mode| number(**mode) == *number_).copied();
            let mode = request.modes.iter().find_map(mode).filter(|_| request.method == auth_method::CEPHX);
            if let Some(mode) = mode {
                break 'found (mode, request.payload);
            }
            tracing::debug!(method = request.method, modes = ?request.modes, "authentication method refused");
            wire.send(&refuse(request.method, errno::EOPNOTSUPP)).await?;
        }
        return Err(CloseReason::protocol("no authentication method and mode in common"));
    };
    let mut check = guard.check();
    for _ in 0..HANDSHAKE_TRIES {
        match check.on_payload(&payload, mode == MsMode::Secure) {
            Ok(Verdict::More(challenge)) => {
                wire.send(&AuthReplyMore { payload: challenge }).await?;
                payload = wire.expect::<AuthRequestMore>().await?.payload;
            }
            Ok(Verdict::Done { guest, session, payload }) => {
                // A daemon may be a client, too.
                if guest.entity.kind != entity && entity != EntityType::CLIENT {
                    return Err(CloseReason::protocol(format!(
                        "{} says that it is a {entity}",
                        guest.entity
                    )));
                }
                let global_id = guest.global_id;
                wire.send(&AuthDone { global_id, mode: number(mode), payload }).await?;
                wire.protect(Side::Server, mode, &session).await?;
                // An OSD is known by its number, which is its name.
                let gid = match entity {
                    EntityType::OSD => guest
                        .entity
                        .id
                        .parse::<u32>()
                        .map(u64::from)
                        .map_err(|_| CloseReason::protocol(format!("{} has no number", guest.entity)))?,
                    _ => global_id,
                };
                let claim = Claim { entity, name: guest.entity.id.clone(), gid };
                return Ok((claim, Some(guest)));
            }
            Err(error) => {
                wire.send(&refuse(auth_method::CEPHX, error.errno())).await?;
                return Err(error.into());
            }
        }
    }
    Err(CloseReason::protocol("too many payloads without a proof"))
}

/// Method none: reads requests until one for it in crc mode arrives. A client with a cephx key tries that method first.
async fn believe(wire: &mut Wire, config: &ServerConfig, entity: EntityType) -> Result<Claim> {
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
