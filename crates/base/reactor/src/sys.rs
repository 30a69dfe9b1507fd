//! The few system calls that neither `std` nor the ring offers, each behind a safe function.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::nvme::{self, Command};

#[cfg(target_arch = "x86_64")]
mod crc32c;

/// Lets checksums use the CPU's own instructions, if it has them.
pub(crate) fn use_crc32c_instruction() {
    #[cfg(target_arch = "x86_64")]
    crc32c::use_instructions();
}

fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the result; the clock ids in use always exist.
    unsafe { libc::clock_gettime(id, &mut t) };
    t
}

fn nanoseconds(t: libc::timespec) -> u64 {
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock(libc::CLOCK_MONOTONIC))
}

/// Wall clock in nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    nanoseconds(clock(libc::CLOCK_REALTIME))
}

/// CPU time of the calling thread in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// A counter that runs at a constant rate and is cheap to read; only differences on one thread mean anything.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has the time stamp counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// Kernel id of the calling thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Random bits from the kernel; the clock if it has none.
pub(crate) fn random_seed() -> u64 {
    let mut v = [0u8; 8];
    // SAFETY: writes at most 8 bytes to `v`.
    let n = unsafe { libc::getrandom(v.as_mut_ptr().cast(), v.len(), 0) };
    if n == 8 { u64::from_ne_bytes(v) } else { realtime_ns() ^ (u64::from(gettid()) << 40) }
}

/// A new eventfd (non-semaphore). Blocking mode, as the ring wants it.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd.
pub(crate) fn eventfd_signal(fd: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: reads 8 bytes of `one`. A full counter is as good as a signal, so errors do not matter.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes timed waits of the calling thread end on time instead of up to 50 µs late.
pub fn precise_timers() {
    // SAFETY: sets a property of the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000usize, 0usize, 0usize, 0usize) };
}

/// Asks the scheduler for short slices, the shortest that it grants: it then lets the calling thread run soon after it wakes,
/// even if a thread with a long slice (an alien in a compaction) is on the same CPU; otherwise that thread would run until the
/// next tick, up to 4 ms. The share of the CPU stays the same. Linux before 6.12 does nothing.
pub(crate) fn short_slices() {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: sched_attr is plain data for which zeros are valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attr);
    // SAFETY: writes at most `size` bytes to `attr`; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if got == 0 && attr.sched_policy == libc::SCHED_OTHER as u32 {
        attr.sched_runtime = SLICE_NS;
        // SAFETY: reads `attr.size` bytes of `attr`, which the kernel has filled in. A refusal leaves the thread as it is.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// Receive buffer of a raw socket: what a burst brings while its reader waits for a CPU.
const PACKET_BUFFER_BYTES: libc::c_int = 16 << 20;

/// A raw socket for all frames that come in at a network interface; what is written to it goes out there. Before each frame stands the
/// kernel's note (virtio_net_hdr) of what is left to do: checksums, and the division into segments. Takes root.
///
/// # Errors
/// The system refuses, or there is no such interface.
pub fn packet_socket(interface: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved. Protocol 0 brings no frames before `bind` below.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    for (level, option, value) in [
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
        (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, PACKET_BUFFER_BYTES),
    ] {
        let size = size_of_val(&value) as libc::socklen_t;
        // SAFETY: reads `size` bytes of `value`.
        check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), size) })?;
    }
    // SAFETY: sockaddr_ll is plain data for which zeros are valid.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    addr.sll_ifindex = interface as libc::c_int;
    let size = size_of_val(&addr) as libc::socklen_t;
    // SAFETY: reads `size` bytes of `addr`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), size) })?;
    Ok(fd)
}

/// Frames that a raw socket has lost since this was asked last: its buffer was full.
///
/// # Errors
/// It is no such socket.
pub fn lost_packets(socket: &OwnedFd) -> io::Result<u32> {
    let mut counts = [0u32; 2];
    let mut size = size_of_val(&counts) as libc::socklen_t;
    let place = counts.as_mut_ptr().cast();
    // SAFETY: writes at most `size` bytes to `counts`.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, place, &raw mut size)
    })?;
    Ok(counts[1])
}

/// Lowers the priority of the calling thread, and of threads that it creates: against a reactor that wants the whole CPU, such a
/// thread gets a tenth. With equal shares a reactor that needs more than half waits for the thread's slices, up to 4 ms each.
pub fn give_way() {
    const NICE: libc::c_int = 10;
    // SAFETY: no memory is involved; on Linux 0 is the calling thread. A refusal leaves the thread as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// CPU mask of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Affinity(libc::cpu_set_t);

/// The calling thread's CPU mask, to restore it later.
pub(crate) fn affinity() -> io::Result<Affinity> {
    // SAFETY: cpu_set_t is plain data; zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for its size.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) })?;
    Ok(Affinity(set))
}

impl Affinity {
    /// Sets the calling thread's mask back to this.
    pub(crate) fn restore(&self) {
        // SAFETY: `self.0` is valid for its size.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

/// Pins the calling thread to one CPU; false if that CPU does not exist or is not allowed.
pub(crate) fn pin(cpu: usize) -> bool {
    // core_affinity aborts on numbers that its mask has no bit for.
    cpu < libc::CPU_SETSIZE as usize && core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}

/// A TCP socket for the address family of `addr`, tuned.
pub(crate) fn tcp_socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    tune(&fd, addr);
    Ok(fd)
}

/// Sets `TCP_NODELAY`, and over loopback a congestion control that paces nothing: there is nothing to congest, and BBR, where the
/// machine has it, costs a quarter of the bytes a second there
/// (benches/notebook/2026-11-28-one-queue-lookup-and-bbr.md). A socket that refuses works all the same.
pub(crate) fn tune(fd: &OwnedFd, peer: &SocketAddr) {
    set_tcp(fd, libc::TCP_NODELAY, &1_i32.to_ne_bytes());
    if peer.ip().is_loopback() {
        set_tcp(fd, libc::TCP_CONGESTION, b"cubic");
    }
}

fn set_tcp(fd: &OwnedFd, option: libc::c_int, value: &[u8]) {
    let (at, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: `value` is valid for its length.
    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, at, len) };
}

/// Ends both directions of a socket; pending receives return.
pub(crate) fn shutdown(fd: &OwnedFd) {
    // SAFETY: no memory is involved. An error means that the peer was faster.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// A socket address as the kernel reads it.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl SockAddr {
    /// Pointer for an operation descriptor.
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    /// Bytes in use.
    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(a: SocketAddr) -> Self {
        // SAFETY: sockaddr_storage is plain data for which zeros are valid.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let len = match a {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every address type.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(sin) };
                size_of_val(&sin)
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(sin6) };
                size_of_val(&sin6)
            }
        };
        SockAddr { storage, len: len as libc::socklen_t }
    }
}

/// Takes ownership of a descriptor that a completion delivered.
///
/// `fd` must come from the result of an operation that creates descriptors, and be taken once.
pub(crate) fn own_fd(fd: RawFd) -> OwnedFd {
    // SAFETY: by the contract above the descriptor is new and ours.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Discards these bytes of a block device. Blocks.
pub(crate) fn discard(device: &OwnedFd, off: u64, len: u64) -> io::Result<()> {
    // <linux/fs.h>: _IO(0x12, 119)
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [off, len];
    // SAFETY: the kernel reads two numbers from `range`.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) }).map(drop)
}

/// The number of the namespace behind a generic NVMe device. Blocks.
pub(crate) fn nvme_namespace(generic: &OwnedFd) -> io::Result<u32> {
    // <linux/nvme_ioctl.h>: NVME_IOCTL_ID, _IO('N', 0x40)
    const ID: libc::Ioctl = 0x4e40;
    // SAFETY: no memory is involved.
    let id = check(unsafe { libc::ioctl(generic.as_raw_fd(), ID) })?;
    Ok(id.unsigned_abs())
}

/// Runs an admin command that answers with a page. Blocks.
pub(crate) fn nvme_admin(device: &OwnedFd, command: Command) -> io::Result<Vec<u8>> {
    // <linux/nvme_ioctl.h>: NVME_IOCTL_ADMIN_CMD, _IOWR('N', 0x41, struct nvme_passthru_cmd) of 72 bytes
    const ADMIN: libc::Ioctl = 0xc048_4e41_u32 as libc::Ioctl;
    let mut answer = vec![0; nvme::IDENTIFY_BYTES];
    let mut bytes = command.with(answer.as_mut_ptr() as u64, answer.len()).encode();
    // SAFETY: the kernel reads and writes the 72 bytes of a command in `bytes`, which has 80, and writes at most as many
    // bytes to `answer` as it has; both live across the call.
    let status = check(unsafe { libc::ioctl(device.as_raw_fd(), ADMIN, bytes.as_mut_ptr()) })?;
    if status > 0 {
        return Err(io::Error::other(format!("the drive answers with status {status:#x}")));
    }
    Ok(answer)
}

/// Registers a ring's own descriptor; the index to enter by, or `None` where the kernel refuses.
pub(crate) fn register_ring_fd(ring: RawFd) -> Option<u32> {
    #[repr(C)]
    struct Update {
        offset: u32,
        resv: u32,
        data: u64,
    }
    const IORING_REGISTER_RING_FDS: libc::c_uint = 20;
    let mut up = Update { offset: u32::MAX, resv: 0, data: u64::try_from(ring).ok()? };
    // SAFETY: the kernel reads and writes one `Update`, which lives across the call.
    let n = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            IORING_REGISTER_RING_FDS,
            &raw mut up,
            1 as libc::c_uint,
        )
    };
    (n == 1).then_some(up.offset)
}

/// Which descriptor `io_uring_enter` gets.
#[derive(Clone, Copy)]
pub(crate) enum RingFd {
    Plain(RawFd),
    Registered(u32),
}

/// `io_uring_enter` with GETEVENTS; `timeout_ns` bounds the wait for `want` completions.
pub(crate) fn ring_enter(ring: RingFd, submit: u32, want: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
    #[repr(C)]
    struct GetEventsArg {
        sigmask: u64,
        sigmask_sz: u32,
        min_wait_usec: u32,
        ts: u64,
    }
    const GETEVENTS: u32 = 1;
    const EXT_ARG: u32 = 8;
    const REGISTERED_RING: u32 = 16;
    let (fd, mut flags) = match ring {
        RingFd::Plain(fd) => (fd as libc::c_long, GETEVENTS),
        RingFd::Registered(i) => (libc::c_long::from(i), GETEVENTS | REGISTERED_RING),
    };
    let ts = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let arg = GetEventsArg {
        sigmask: 0,
        sigmask_sz: 0,
        min_wait_usec: 0,
        ts: ts.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64),
    };
    let (arg_ptr, arg_len) = if ts.is_some() {
        flags |= EXT_ARG;
        (std::ptr::from_ref(&arg) as usize, size_of::<GetEventsArg>())
    } else {
        (0, 0)
    };
    // SAFETY: `arg` and `ts` live across the call; what the submitted entries point to is the ring driver's duty.
    let n = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, want, flags, arg_ptr, arg_len) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn congestion_control(fd: &OwnedFd) -> String {
        let (mut name, mut len) = ([0u8; 16], 16 as libc::socklen_t);
        let at = name.as_mut_ptr().cast();
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe {
            libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, at, &raw mut len)
        })
        .unwrap();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }

    #[test]
    fn nothing_is_paced_over_loopback() {
        let setting = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        if setting("tcp_allowed_congestion_control").split_whitespace().any(|name| name == "cubic") {
            let near = tcp_socket(&"127.0.0.1:1".parse().unwrap()).unwrap();
            assert_eq!(congestion_control(&near), "cubic");
            assert!(std::net::TcpStream::from(near).nodelay().unwrap());
        }
        let far = tcp_socket(&"192.0.2.1:1".parse().unwrap()).unwrap();
        assert_eq!(congestion_control(&far), setting("tcp_congestion_control").trim());
    }
}
