//! Object classes: methods that clients call on an object. Each class is a module with a table of its methods; a method works on
//! a [`Handle`]: the object as the request's earlier operations left it, and the caller.
//!
//! Changes that a method makes go into the request's transaction like those of any other operation. A method that fails changes
//! nothing: it checks before it writes.

#[cfg(test)]
mod as_ceph;
mod handle;
mod hello;
mod lock;
mod log;
mod numops;
mod rbd;
mod refcount;
#[cfg(test)]
mod tests;
mod version;

use carmine_caps::MethodNeed;
use carmine_reactor::Payload;
use carmine_types::errno;
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags, ops};

pub(crate) use handle::{Caller, Handle};

use crate::error::OpError;
use crate::op::ClientOp;
use crate::pg::{METHOD_BYTES_MAX, ObjectState, Objects, Told};
use crate::shard::OsdShard;

/// The outcome of a method: its output, or an errno.
type Done = Result<Vec<u8>, OpError>;

/// A method that clients can call.
struct Method {
    name: &'static str,
    /// It reads the object, by its flags: the caps of who calls it must allow that.
    reads: bool,
    /// It changes the object, and may make it.
    writes: bool,
    /// It is answered with ENOENT where there is no object, unless its input is wrong.
    needs_object: bool,
    /// Which bytes of the object it reads.
    data: Looks,
    run: fn(&mut Handle<'_, '_>, &[u8]) -> Done,
}

/// How much of an object's bytes a method reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    Nothing,
    /// The parts that it asks for.
    Parts,
    /// All of them, which are loaded before it is called.
    Whole,
}

/// A method that only reads attributes.
const fn read(name: &'static str, run: fn(&mut Handle<'_, '_>, &[u8]) -> Done) -> Method {
    Method { name, reads: true, writes: false, needs_object: true, data: Looks::Nothing, run }
}

/// A method that changes attributes.
const fn write(name: &'static str, run: fn(&mut Handle<'_, '_>, &[u8]) -> Done) -> Method {
    Method { name, reads: true, writes: true, needs_object: false, data: Looks::Nothing, run }
}

/// The same method, which does not say that it reads.
const fn blind(method: Method) -> Method {
    Method { reads: false, ..method }
}

/// The same method, which also reads all of the object's bytes.
const fn with_data(method: Method) -> Method {
    Method { data: Looks::Whole, ..method }
}

/// The same method, which also reads parts of the object's bytes.
const fn with_parts(method: Method) -> Method {
    Method { data: Looks::Parts, ..method }
}

/// The same method, which also works if there is no object.
const fn without_object(method: Method) -> Method {
    Method { needs_object: false, ..method }
}

/// The methods of a class.
fn tables(class: &[u8]) -> &'static [&'static [Method]] {
    match class {
        b"hello" => &[hello::METHODS],
        b"lock" => &[lock::METHODS],
        b"log" => &[log::METHODS],
        b"numops" => &[numops::METHODS],
        b"rbd" => rbd::METHODS,
        b"refcount" => &[refcount::METHODS],
        b"version" => &[version::METHODS],
        _ => &[],
    }
}

/// Finds a method of a class.
fn find(class: &[u8], method: &[u8]) -> Option<&'static Method> {
    tables(class).iter().copied().flatten().find(|found| found.name.as_bytes() == method)
}

/// The classes that Ceph's OSDs load by default (osd_class_load_list).
const CLASSES: &str = "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap \
    queue 2pc_queue fifo";

/// Whether it is a class of Ceph, implemented here or not.
pub(crate) fn is_known(class: &[u8]) -> bool {
    CLASSES.split(' ').any(|known| known.as_bytes() == class)
}

/// Class, method and input of a call.
fn parts<'a>(op: &OsdOp, input: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
    let call = op.call();
    let (class, rest) = input.split_at_checked(call.class_len.into())?;
    let (method, rest) = rest.split_at_checked(call.method_len.into())?;
    Some((class, method, rest))
}

/// Whether a call changes its object. For an unknown method the request's flags decide.
#[cold]
pub(crate) fn writes(request: &OsdRequest, op: &OsdOp, input: &Payload) -> bool {
    let input = input.to_vec();
    let known = parts(op, &input).and_then(|(class, method, _)| find(class, method));
    known.map_or(request.flags & flags::WRITE != 0, |method| method.writes)
}

/// Refuses a request that calls an unknown method, before any of its operations is executed.
///
/// # Errors
/// EOPNOTSUPP; EPERM if there is no such class; EINVAL if the input names none.
pub(crate) fn refusal(osd: &OsdShard, op: &ClientOp) -> Result<(), OpError> {
    for names in calls(op) {
        let (names, class_bytes) = names?;
        let (class, method) = names.split_at(class_bytes);
        if find(class, method).is_none() && !looks_at_mirroring(class, method) {
            osd.refuse(&format!("method {}.{}", class.escape_ascii(), method.escape_ascii()));
            return Err(OpError::new(if is_known(class) { errno::EOPNOTSUPP } else { errno::EPERM }));
        }
    }
    Ok(())
}

/// Class and method of each call of a request, as one text, and the length of the class.
fn calls(op: &ClientOp) -> impl Iterator<Item = Result<(Vec<u8>, usize), OpError>> {
    op.with_inputs().filter(|(op, _)| op.code == ops::CALL).map(|(call, input)| {
        // Only the names: the input after them may be long.
        let names = usize::from(call.call().class_len) + usize::from(call.call().method_len);
        let names = op.data.slice(input.start, names.min(input.len())).to_vec();
        let (class, ..) = parts(call, &names).ok_or(OpError::new(errno::EINVAL))?;
        let class_bytes = class.len();
        Ok((names, class_bytes))
    })
}

/// What the caps of a request's client must allow for its calls.
///
/// # Errors
/// Those of [`refusal`].
pub(crate) fn needs(osd: &OsdShard, op: &ClientOp) -> Result<Vec<MethodNeed<'static>>, OpError> {
    refusal(osd, op)?;
    let need = |(names, class_bytes): (Vec<u8>, usize)| {
        let (class, method) = names.split_at(class_bytes);
        need(class, method)
    };
    calls(op).map(|names| names.map(need)).collect()
}

fn need(class: &[u8], method: &[u8]) -> MethodNeed<'static> {
    let listed = CLASSES.split(' ').find(|known| known.as_bytes() == class);
    // Methods that query mirroring read the object; our tables do not have them.
    let (name, reads, writes) =
        find(class, method).map_or(("", true, false), |found| (found.name, found.reads, found.writes));
    MethodNeed { class: listed.unwrap_or_default(), method: name, reads, writes, is_listed: listed.is_some() }
}

/// Whether a method only queries mirroring, as common commands do before they remove or show an image. Nothing is mirrored, so
/// such a method answers, as in Ceph, that there is no object. Other methods of mirroring are refused, so that their errors name
/// it.
fn looks_at_mirroring(class: &[u8], method: &[u8]) -> bool {
    let has = |word: &[u8]| method.windows(word.len()).any(|part| part == word);
    class == b"rbd" && method.starts_with(b"mirror_") && (has(b"_get") || has(b"_list"))
}

/// How often a method is called again because something it asked for had to be loaded first.
const CALLS_MAX: usize = 1024;

/// Calls a method, and calls it again until everything it asks for is loaded.
///
/// # Errors
/// Those of the method; EOPNOTSUPP if it is unknown.
pub(crate) async fn call(
    objects: Objects<'_>,
    op: &ClientOp,
    state: &mut ObjectState<'_>,
    request: &OsdOp,
    input: &[u8],
) -> Result<Told, OpError> {
    let osd = objects.osd;
    let (class, method, input) = parts(request, input).ok_or(OpError::new(errno::EINVAL))?;
    let Some(found) = find(class, method) else {
        state.must_exist()?;
        osd.refuse(&format!("method {}.{}", class.escape_ascii(), method.escape_ascii()));
        return Err(OpError::new(errno::EOPNOTSUPP));
    };
    // The input is checked first.
    let loaded = match found.data {
        Looks::Whole => state.load_data(objects, op, METHOD_BYTES_MAX).await,
        Looks::Parts | Looks::Nothing => Ok(()),
    };
    let random = [osd.shard.random_u64(), osd.shard.random_u64()];
    let caller = Caller { gid: op.reqid.client, addr: osd.client_addr(op), random };
    for _ in 0..CALLS_MAX {
        let before = state.steps();
        let mut handle = Handle::new(state, caller);
        let done = (found.run)(&mut handle, input);
        let told = handle.told;
        if !state.look_up_missing(objects, op).await? {
            let output = done?;
            loaded?;
            if found.needs_object {
                state.must_exist()?;
            }
            return Ok((told, Payload::from(output)));
        }
        if state.steps() != before {
            tracing::error!("method {} changes an object before it has looked at it", found.name);
            return Err(OpError::new(errno::EIO));
        }
    }
    Err(OpError::new(errno::E2BIG))
}
