//! Class `lock`: advisory locks on an object, each an xattr `lock.NAME` with its holders.

use carmine_codec::coded;
use carmine_types::{UTime, errno};
use carmine_wire::{Encoder, EntityAddr, EntityName, addr::kind};

use super::handle::{Handle, decode, stored};
use super::{Done, Method, read, write};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    write("lock", lock),
    write("unlock", unlock),
    write("break_lock", break_lock),
    write("set_cookie", set_cookie),
    read("assert_locked", assert_locked),
    read("get_info", get_info),
    read("list_locks", list_locks),
];

const PREFIX: &[u8] = b"lock.";
/// Lock types: one holder; many; one, and the object is removed with the lock.
const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const EXCLUSIVE_EPHEMERAL: u8 = 3;
/// Flags of `lock`: the present holder may, or must, renew it.
const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

coded! {
    #[derive(Clone, Debug)]
    struct HolderId: versioned "locker_id", 1, compat 1, oldest 0 {
        name: EntityName,
        cookie: Vec<u8>,
    }
}

coded! {
    #[derive(Clone, Debug)]
    struct HolderInfo: versioned "locker_info", 1, compat 1, oldest 0 {
        /// Zero: never.
        expires: UTime,
        addr: EntityAddr,
        description: Vec<u8>,
    }
}

coded! {
    /// lock_info_t.
    #[derive(Clone, Debug, Default)]
    struct Lock: versioned "lock_info", 1, compat 1, oldest 0 {
        holders: Vec<(HolderId, HolderInfo)>,
        kind: u8,
        tag: Vec<u8>,
    }
}

impl Lock {
    /// Encodes the lock with its holders sorted, in whatever order they arrived.
    fn encode(&mut self) -> Vec<u8> {
        self.holders.sort_by_cached_key(|(id, _)| (id.name.kind.0, id.name.num, id.cookie.clone()));
        Encoder::collect(|e| e.put(self))
    }

    /// The lock of this name, without expired holders.
    fn load(h: &mut Handle<'_, '_>, name: &[u8]) -> Result<Lock, OpError> {
        let Some(value) = h.xattr(&[PREFIX, name].concat()) else { return Ok(Lock::default()) };
        let mut lock: Lock = stored(&value, |d| d.get())?;
        let now = h.now();
        lock.holders.retain(|(_, info)| info.expires == UTime::ZERO || info.expires > now);
        Ok(lock)
    }

    fn store(&mut self, h: &mut Handle<'_, '_>, name: &[u8]) -> Done {
        h.set_xattr(&[PREFIX, name].concat(), self.encode()).map(|()| Vec::new())
    }

    fn find(&self, name: EntityName, cookie: &[u8]) -> Option<usize> {
        self.holders.iter().position(|(id, _)| id.name == name && id.cookie == cookie)
    }

    /// The caller's position among the holders of exactly this lock; EBUSY if it is not among them.
    fn held(&self, h: &Handle<'_, '_>, wish: &Claim) -> Result<usize, OpError> {
        let same = self.kind == wish.kind && self.tag == wish.tag;
        let at = self.find(h.caller.name(), &wish.cookie);
        at.filter(|_| same).ok_or(OpError::new(errno::EBUSY))
    }
}

coded! {
    /// The fields that the inputs of `lock`, `assert_locked` and `set_cookie` begin with.
    struct Claim {
        name: Vec<u8>,
        kind: u8,
        cookie: Vec<u8>,
        tag: Vec<u8>,
    }
}

impl Claim {
    /// EINVAL if the claim is not valid.
    fn check(&self) -> Result<(), OpError> {
        let valid = !self.name.is_empty() && matches!(self.kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL);
        if valid { Ok(()) } else { Err(OpError::new(errno::EINVAL)) }
    }
}

fn lock(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (wish, description, duration, flags) = decode(input, |d| {
        let mut d = d.envelope("lock_op", 1)?.body;
        Ok((d.get::<Claim>()?, d.blob()?.to_vec(), d.utime()?, d.u8()?))
    })?;
    wish.check()?;
    refuse_if(flags & MAY_RENEW != 0 && flags & MUST_RENEW != 0, errno::EINVAL)?;
    let mut lock = Lock::load(h, &wish.name)?;
    let caller = h.caller;
    refuse_if(!lock.holders.is_empty() && lock.tag != wish.tag, errno::EBUSY)?;
    match lock.find(caller.name(), &wish.cookie) {
        Some(_) if flags & (MAY_RENEW | MUST_RENEW) == 0 => return Err(OpError::new(errno::EEXIST)),
        Some(at) => drop(lock.holders.remove(at)),
        None if flags & MUST_RENEW != 0 => return Err(OpError::new(errno::ENOENT)),
        None => {}
    }
    refuse_if(!lock.holders.is_empty() && (wish.kind != SHARED || lock.kind != wish.kind), errno::EBUSY)?;
    let expires = if duration == UTime::ZERO { UTime::ZERO } else { sum(h.now(), duration) };
    let id = HolderId { name: caller.name(), cookie: wish.cookie };
    lock.holders.push((id, HolderInfo { expires, addr: caller.addr, description }));
    (lock.kind, lock.tag) = (wish.kind, wish.tag);
    lock.store(h, &wish.name)
}

fn sum(a: UTime, b: UTime) -> UTime {
    let nsec = u64::from(a.nsec) + u64::from(b.nsec);
    let sec = a.sec.saturating_add(b.sec).saturating_add((nsec / 1_000_000_000) as u32);
    UTime { sec, nsec: (nsec % 1_000_000_000) as u32 }
}

fn unlock(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (name, cookie): (Vec<u8>, Vec<u8>) = decode(input, |d| d.envelope("unlock_op", 1)?.body.get())?;
    release(h, &name, h.caller.name(), &cookie)
}

fn break_lock(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (name, holder, cookie) = decode(input, |d| {
        let mut d = d.envelope("break_op", 1)?.body;
        Ok((d.blob()?, d.get()?, d.blob()?))
    })?;
    release(h, name, holder, cookie)
}

fn release(h: &mut Handle<'_, '_>, name: &[u8], holder: EntityName, cookie: &[u8]) -> Done {
    h.must_exist()?;
    let mut lock = Lock::load(h, name)?;
    let at = lock.find(holder, cookie).ok_or(OpError::new(errno::ENOENT))?;
    lock.holders.remove(at);
    if !lock.holders.is_empty() || lock.kind != EXCLUSIVE_EPHEMERAL {
        return lock.store(h, name);
    }
    h.remove_object();
    Ok(Vec::new())
}

fn set_cookie(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (wish, cookie): (Claim, Vec<u8>) = decode(input, |d| d.envelope("set_cookie_op", 1)?.body.get())?;
    wish.check()?;
    h.must_exist()?;
    let mut lock = Lock::load(h, &wish.name)?;
    let at = lock.held(h, &wish)?;
    refuse_if(lock.find(h.caller.name(), &cookie).is_some(), errno::EBUSY)?;
    if let Some((id, _)) = lock.holders.get_mut(at) {
        id.cookie = cookie;
    }
    lock.store(h, &wish.name)
}

fn assert_locked(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish = decode(input, |d| d.envelope("assert_op", 1)?.body.get::<Claim>())?;
    wish.check()?;
    let lock = Lock::load(h, &wish.name)?;
    lock.held(h, &wish).map(|_| Vec::new())
}

fn get_info(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let name = decode(input, |d| d.envelope("get_info_op", 1)?.body.blob())?;
    h.must_be_stored()?;
    let mut lock = Lock::load(h, name)?;
    // As in Ceph: clients expect the holder's address to be one of msgr v1.
    lock.holders.iter_mut().for_each(|(_, info)| info.addr.kind = kind::LEGACY);
    Ok(lock.encode())
}

fn list_locks(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    h.must_be_stored()?;
    let names = h.xattrs(PREFIX);
    Ok(Encoder::collect(|e| e.envelope(1, 1, |e| e.vec(names, |e, name| e.blob(&name)))))
}
