//! xattrs.

use carmine_codec::Encoder;
use carmine_pgtypes::{Step, Xattrs};
use carmine_reactor::{Bytes, Payload};
use carmine_types::errno;
use carmine_wire::osd_op::{OsdOp, ops};

use super::{Operation, compare, put_pairs};
use crate::error::{OpError, refuse_if};
use crate::pg::op::exec::{ObjectState, Told};

/// Prefix of clients' xattrs in the store, as in Ceph. …
const USER: &[u8] = b"_";
/// … That of watchers' xattrs, which no client sees.
pub(in crate::pg) const WATCHER: &[u8] = b"w";

/// Longest name, bytes (Ceph's osd_max_attr_name_len).
const NAME_BYTES_MAX: usize = 100;
/// Most bytes of names and values of all xattrs of one object: every write of the object stores them again.
const XATTRS_BYTES_MAX: usize = 4 << 20;

pub(super) async fn step(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<Payload, OpError> {
    let Operation { objects, client, op, input } = operation;
    let input = input.to_vec();
    let (name, value) = parts(op, &input)?;
    match op.code {
        ops::SET_XATTR => {}
        ops::RM_XATTR => state.must_exist()?,
        _ => state.must_be_stored()?,
    }
    match op.code {
        ops::GET_XATTR => {
            state.stored_xattr(name).cloned().map(Payload::from).ok_or(OpError::new(errno::ENODATA))
        }
        ops::GET_XATTRS => {
            let none = Xattrs::default();
            let stored = state.was.as_ref().map_or(&none, |was| &was.xattrs);
            client.acquire_for(objects.osd, stored.bytes() as u64).await;
            let all = of_users(stored);
            Ok(Payload::from(Encoder::collect(|e| put_pairs(e, &all))))
        }
        ops::SET_XATTR if name.len() > NAME_BYTES_MAX => Err(OpError::new(errno::ENAMETOOLONG)),
        // Ceph's OSDs keep their own metadata under the empty name.
        ops::SET_XATTR if name.is_empty() => Err(OpError::new(errno::EINVAL)),
        ops::SET_XATTR => state.set_xattr(name, Bytes::from(value.to_vec())).map(|()| Payload::new()),
        _ => {
            state.remove_xattr(name);
            Ok(Payload::new())
        }
    }
}

/// Name and value.
fn parts<'a>(op: &OsdOp, input: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), OpError> {
    input.split_at_checked(op.xattr().name_len as usize).ok_or(OpError::new(errno::EINVAL))
}

/// CMP_XATTR, of the object before the request, as in Ceph. If the comparison holds, the result is 1.
pub(in crate::pg) fn compared(state: &ObjectState<'_>, op: &OsdOp, input: &[u8]) -> Result<Told, OpError> {
    let (name, value) = parts(op, input)?;
    state.must_be_stored()?;
    let stored = state.stored_xattr(name).cloned().unwrap_or_default();
    compare::xattr(&op.xattr(), value, &stored).map(|()| (1, Payload::new()))
}

fn of_users(all: &Xattrs) -> Vec<(&[u8], &Bytes)> {
    let all = all.with_prefix(USER);
    all.filter_map(|(name, value)| Some((name.strip_prefix(USER)?, value))).collect()
}

impl ObjectState<'_> {
    /// The value of a client's xattr.
    pub(crate) fn xattr(&self, name: &[u8]) -> Option<Bytes> {
        self.xattrs.get(&[USER, name].concat()).cloned()
    }

    /// The same before the request.
    fn stored_xattr(&self, name: &[u8]) -> Option<&Bytes> {
        self.was.as_ref()?.xattrs.get(&[USER, name].concat())
    }

    /// Clients' xattrs, in order.
    pub(crate) fn user_xattrs(&self) -> Vec<(&[u8], &Bytes)> {
        of_users(&self.xattrs)
    }

    /// Sets a client's xattr.
    ///
    /// # Errors
    /// E2BIG: more than an object may have.
    pub(crate) fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), OpError> {
        self.set_stored_xattr(&[USER, name].concat(), value)
    }

    pub(crate) fn remove_xattr(&mut self, name: &[u8]) {
        self.remove_stored_xattr(&[USER, name].concat());
    }

    /// Removes all xattrs of clients.
    pub(crate) fn clear_xattrs(&mut self) {
        if self.xattrs.with_prefix(USER).next().is_some() {
            self.xattrs.clear(USER);
            self.push_attr(Step::ClearXattrs { prefix: USER.into() });
        }
    }

    /// Sets an xattr by its name in the store.
    pub(in crate::pg) fn set_stored_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), OpError> {
        let old = self.xattrs.get(name).map_or(0, |old| name.len() + old.len());
        refuse_if(self.xattrs.bytes() - old + name.len() + value.len() > XATTRS_BYTES_MAX, errno::E2BIG)?;
        self.touch();
        self.xattrs.set(name, value.clone());
        self.push_attr(Step::SetXattr { name: name.into(), value });
        Ok(())
    }

    pub(in crate::pg) fn remove_stored_xattr(&mut self, name: &[u8]) {
        self.xattrs.remove(name);
        self.push_attr(Step::RemoveXattr { name: name.into() });
    }
}
