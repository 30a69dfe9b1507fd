//! Harm to single OSDs of a running testbed, by which it is seen that nothing is lost: connections that break, and files that
//! cannot be written.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use carmine_types::OsdId;
use fs_err as fs;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::error::{Result, failed};
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::process::ProcessId;

/// The program that destroys sockets.
const SS: &str = "ss";
/// State of a connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
/// Connections that are cut by one command: the kernel bounds the length of a filter.
const AT_ONCE: usize = 64;
/// Both ends of a connection that was cut know it at once.
const KNOWN_LIMIT: Duration = Duration::from_secs(1);

/// A TCP connection, by the address on its own side and by the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
}

/// Why connections of other processes cannot be cut here; `None` if they can. It is tried with a connection of this process.
#[must_use]
pub fn why_no_cuts() -> Option<String> {
    let missing =
        "connections cannot be cut: that takes root, the program `ss`, and a kernel with INET_DIAG_DESTROY";
    match try_a_cut() {
        Ok(true) => None,
        Ok(false) => Some(missing.to_owned()),
        Err(error) => Some(format!("{missing} ({error})")),
    }
}

fn try_a_cut() -> Result<bool> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (_far, remote) = listener.accept()?;
    cut(&[Connection { local: near.peer_addr()?, remote }])?;
    near.set_read_timeout(Some(KNOWN_LIMIT))?;
    Ok(near.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset))
}

/// Breaks these connections, on both sides.
///
/// # Errors
/// `ss` cannot be run, or fails.
pub fn cut(connections: &[Connection]) -> Result<()> {
    for some in connections.chunks(AT_ONCE) {
        let filter = |it: &Connection| format!("( src {} and dst {} )", it.local, it.remote);
        let filter = some.iter().map(filter).collect::<Vec<_>>().join(" or ");
        let ran = Command::new(SS).args(["-K", "-H", "-t", "-n", "state", "established", &filter]).output();
        let out = ran.map_err(|e| failed!("cannot run `{SS}`: {e}"))?;
        if !out.status.success() {
            return Err(failed!("`{SS} -K` failed: {}", String::from_utf8_lossy(&out.stderr).trim()));
        }
    }
    Ok(())
}

impl Testbed {
    /// The TCP connections that an OSD has; none if it does not run.
    ///
    /// # Errors
    /// Its record is damaged.
    pub fn connections(&self, osd: OsdId) -> Result<Vec<Connection>> {
        let Some(ProcessId { pid, .. }) = ProcessId::running(self.layout(), Daemon::Osd(osd))? else {
            return Ok(Vec::new());
        };
        // A process that has ended meanwhile has no connections.
        let own = inodes(pid).unwrap_or_default();
        let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
        let lines: String = tables.into_iter().flatten().collect();
        let is_own = |(_, inode): &(Connection, u64)| own.contains(inode);
        Ok(lines.lines().filter_map(established).filter(is_own).map(|(connection, _)| connection).collect())
    }

    /// From now on no write of an OSD's process to a file succeeds behind the file's first `bytes`. This does not hold for devices.
    ///
    /// # Errors
    /// The OSD does not run, or is another user's.
    pub fn fail_files(&self, osd: OsdId, bytes: u64) -> Result<()> {
        let process = ProcessId::running(self.layout(), Daemon::Osd(osd))?;
        let pid = process.and_then(|process| Pid::from_raw(process.pid));
        let pid = pid.ok_or_else(|| failed!("{osd} does not run"))?;
        // Nobody but root may raise the upper one.
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: Some(bytes), maximum })
            .map_err(|e| failed!("cannot limit the files of {osd}: {e}"))?;
        Ok(())
    }
}

/// Inodes of a process' sockets.
fn inodes(pid: i32) -> std::io::Result<BTreeSet<u64>> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let links = links.filter_map(|fd| fs::read_link(fd.path()).ok());
    let inode = |link: PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Ok(links.filter_map(inode).collect())
}

/// An established connection and its inode, by a line of `/proc/net/tcp` or `tcp6`.
fn established(line: &str) -> Option<(Connection, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, ESTABLISHED, _, _, _, _, _, inode, ..] = fields[..] else { return None };
    Some((Connection { local: address(local)?, remote: address(remote)? }, inode.parse().ok()?))
}

/// An address as the kernel shows it: words of 32 bits in the machine's own order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = if ip.len() == 8 {
        IpAddr::from(word(0)?)
    } else {
        let bytes: Vec<u8> = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
        Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_s_table() {
        let line = "   3: 0100007F:1A85 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 48213 1 0 20 4 30 10 -1";
        let [local, remote] = ["127.0.0.1:6789", "127.0.0.1:50000"].map(|text| text.parse().unwrap());
        assert_eq!(established(line), Some((Connection { local, remote }, 48213)));
        let listens = line.replace(" 01 ", " 0A ");
        assert_eq!(established(&listens), None);
        assert_eq!(established("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
    }

    #[test]
    fn addresses_of_both_kinds() {
        let of = |text: &str| address(text).map(|addr| addr.to_string());
        assert_eq!(of("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
        // It is one of the older kind that came to a socket for both.
        assert_eq!(of("0000000000000000FFFF00000100007F:0050").as_deref(), Some("127.0.0.1:80"));
        assert_eq!((of("0100007F"), of("01:0050"), of("0100007F:50000")), (None, None, None));
    }

    #[test]
    fn only_the_named_connection_is_cut() {
        if let Some(why) = why_no_cuts() {
            assert!(why.contains("root"), "{why}");
            return;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut cut_one, mut other) = (connect(), connect());
        let (_cut_far, mut other_far) = (listener.accept().unwrap().0, listener.accept().unwrap().0);
        let (local, remote) = (cut_one.local_addr().unwrap(), cut_one.peer_addr().unwrap());
        cut(&[Connection { local, remote }]).unwrap();
        cut_one.read(&mut [0]).unwrap_err();
        std::io::Write::write_all(&mut other_far, b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
    }
}
