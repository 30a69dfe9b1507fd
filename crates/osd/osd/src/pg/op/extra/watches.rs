//! The operations of watch and notify. Each watcher is an xattr of its object, so that a new primary knows it; its connection,
//! and the notifications that it must answer, are known only to the primary ([`crate::watch`]).

use std::time::Duration;

use carmine_reactor::{Bytes, Payload};
use carmine_types::errno;
use carmine_wire::osd_op::{Watcher, encode_watchers, flags, ops};
use carmine_wire::{Encoder, EntityName};

use super::xattr::WATCHER;
use super::{Effect, Operation, decode};
use crate::error::{OpError, refuse_if};
use crate::pg::op::exec::ObjectState;
use crate::watch::{Notification, Registered, WatcherId};

/// Most watchers of one object.
const WATCHERS_MAX: usize = 4096;
/// Longest text of a notification, and of an answer to it, bytes.
const NOTIFY_BYTES_MAX: usize = 1 << 20;
/// Default timeout of a watch (Ceph's osd_client_watch_timeout), and of a notification (osd_default_notify_timeout).
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

fn timeout(seconds: u32) -> Duration {
    match seconds {
        0 => TIMEOUT_DEFAULT,
        seconds => Duration::from_secs(seconds.into()).min(TIMEOUT_MAX),
    }
}

pub(super) fn step(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<Payload, OpError> {
    state.must_exist()?;
    // Also watchers that have not reconnected to this primary: their timeout starts now.
    let known = registered(state);
    state.extra.get_or_insert_default().watchers.clone_from(&known);
    match operation.op.code {
        ops::WATCH => watch(operation, state).map(|()| Payload::new()),
        ops::NOTIFY => notify(operation, state, known),
        ops::NOTIFY_ACK => answer(operation, state).map(|()| Payload::new()),
        _ => Ok(Payload::from(encode_watchers(&watchers(known)))),
    }
}

fn watch(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<(), OpError> {
    let Operation { objects, client, op, .. } = operation;
    let wish = op.watch();
    let id = WatcherId { gid: client.reqid.client, cookie: wish.cookie };
    let name = [WATCHER, &id.key()].concat();
    let known = state.xattrs.get(&name).map(|value| Registered::decode(value));
    match wish.op {
        flags::watch::WATCH | flags::watch::LEGACY_WATCH => {
            refuse_if(registered(state).len() >= WATCHERS_MAX && known.is_none(), errno::E2BIG)?;
            let timeout = timeout(wish.timeout);
            let registered = Registered { timeout, addr: objects.osd.client_addr(client) };
            state.set_stored_xattr(&name, Bytes::from(registered.encode()))?;
            state.after(Effect::Watch { id, registered });
        }
        flags::watch::UNWATCH => {
            if known.is_some() {
                state.remove_stored_xattr(&name);
            }
            state.after(Effect::Unwatch(id));
        }
        flags::watch::RECONNECT | flags::watch::PING => {
            let registered = known.ok_or(OpError::new(errno::ENOTCONN))?;
            state.after(Effect::Watch { id, registered });
        }
        _ => return Err(OpError::new(errno::EINVAL)),
    }
    Ok(())
}

/// The watchers of the object.
fn registered(state: &ObjectState<'_>) -> Vec<(WatcherId, Registered)> {
    let each = state.xattrs.with_prefix(WATCHER);
    let each = each.filter_map(|(name, value)| {
        Some((WatcherId::of_key(name.strip_prefix(WATCHER)?)?, Registered::decode(value)))
    });
    each.collect()
}

/// The same in the clients' format.
fn watchers(registered: Vec<(WatcherId, Registered)>) -> Vec<Watcher> {
    let each = registered.into_iter().map(|(id, registered)| Watcher {
        name: EntityName::client(id.gid),
        cookie: id.cookie,
        timeout_seconds: registered.timeout.as_secs() as u32,
        addr: registered.addr,
    });
    each.collect()
}

/// Answers at once with the notification's number; its end is reported later.
fn notify(
    operation: Operation<'_>,
    state: &mut ObjectState<'_>,
    watchers: Vec<(WatcherId, Registered)>,
) -> Result<Payload, OpError> {
    let Operation { objects, client, op, input } = operation;
    refuse_if(input.len() > NOTIFY_BYTES_MAX, errno::EMSGSIZE)?;
    let (seconds, payload) = decode(&input.to_vec(), |d| {
        d.u32()?; // version
        Ok((d.u32()?, d.blob()?.to_vec()))
    })?;
    let notification = Notification {
        id: objects.osd.shard.random_u64(),
        notifier: client.reqid.client,
        cookie: op.notify().cookie,
        payload,
        timeout: timeout(seconds),
        watchers: watchers.into_iter().map(|(id, _)| id).collect(),
    };
    let id = notification.id;
    state.after(Effect::Notify(notification));
    Ok(Payload::from(Encoder::collect(|e| e.u64(id))))
}

fn answer(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<(), OpError> {
    let Operation { client, input, .. } = operation;
    refuse_if(input.len() > NOTIFY_BYTES_MAX, errno::EMSGSIZE)?;
    let (notify_id, cookie, reply) = decode(&input.to_vec(), |d| {
        let (notify_id, cookie) = (d.u64()?, d.u64()?);
        let reply = if d.is_empty() { Vec::new() } else { d.blob()?.to_vec() };
        Ok((notify_id, cookie, reply))
    })?;
    let id = WatcherId { gid: client.reqid.client, cookie };
    state.after(Effect::Answer { notify_id, id, reply });
    Ok(())
}
