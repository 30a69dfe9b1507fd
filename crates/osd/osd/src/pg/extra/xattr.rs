//! xattrs.

use carmine_reactor::{Bytes, Payload};
use carmine_types::errno;
use carmine_wire::Encoder;
use carmine_wire::osd_op::{OsdOp, ops};

use super::compare;
use crate::attrs::Kind;
use crate::pg::exec::State;

/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 256;

pub(super) fn step(state: &mut State<'_>, op: &OsdOp, input: &[u8]) -> Result<Payload, i32> {
    let (name, value) = input.split_at_checked(op.xattr().name_len as usize).ok_or(errno::EINVAL)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(errno::ENAMETOOLONG);
    }
    if op.code != ops::SET_XATTR {
        state.must_exist()?;
    }
    match op.code {
        ops::GET_XATTR => {
            let value = state.view().get(Kind::Xattr, name).ok_or(errno::ENODATA)?;
            Ok(Payload::from(value.clone()))
        }
        ops::GET_XATTRS => {
            let view = state.view();
            let all: Vec<(&[u8], &Bytes)> = view.after(Kind::Xattr, None, b"").collect();
            Ok(Payload::from(Encoder::collect(|e| {
                e.vec(all, |e, (name, value)| {
                    e.blob(name);
                    e.blob(value);
                });
            })))
        }
        ops::CMP_XATTR => {
            let stored = state.view().get(Kind::Xattr, name).cloned().unwrap_or_default();
            compare::xattr(&op.xattr(), value, &stored).map(|()| Payload::new())
        }
        ops::SET_XATTR => {
            state.touch();
            state.view().set(Kind::Xattr, name, Bytes::from(value.to_vec()));
            Ok(Payload::new())
        }
        _ => {
            state.view().remove(Kind::Xattr, name);
            Ok(Payload::new())
        }
    }
}
