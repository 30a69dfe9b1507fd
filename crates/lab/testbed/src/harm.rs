//! Harm to single OSDs of a running testbed, by which it is seen that nothing is lost: connections that break, and files that
//! cannot be written.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use carmine_types::OsdId;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::error::{Result, failed};
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::process::ProcessId;

/// The program that lists sockets, and destroys them.
const SS: &str = "ss";
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
        ss("-K", Some(some.iter().map(filter).collect::<Vec<_>>().join(" or ")))?;
    }
    Ok(())
}

/// Runs `ss` with an option on the established TCP connections (those of `filter`), and returns its lines, in which addresses and
/// ports are numbers.
fn ss(option: &str, filter: Option<String>) -> Result<String> {
    let ran = Command::new(SS).args([option, "-H", "-t", "-n", "state", "established"]).args(filter).output();
    let out = ran.map_err(|e| failed!("cannot run `{SS}`: {e}"))?;
    if !out.status.success() {
        return Err(failed!("`{SS} {option}` failed: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

impl Testbed {
    /// The TCP connections that an OSD has; none if it does not run.
    ///
    /// # Errors
    /// Its record is damaged, or `ss` fails.
    pub fn connections(&self, osd: OsdId) -> Result<Vec<Connection>> {
        let process = ProcessId::running(self.layout(), Daemon::Osd(osd))?;
        process.map_or(Ok(Vec::new()), |process| Ok(of_process(process.pid, &ss("-p", None)?)))
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

/// The connections of a process in the lines of `ss -p`: bytes received and to be sent, both addresses, the processes.
fn of_process(pid: i32, lines: &str) -> Vec<Connection> {
    let owner = format!(",pid={pid},");
    let connection = |line: &str| {
        let mut addresses = line.split_ascii_whitespace().skip(2).map_while(address);
        Some(Connection { local: addresses.next()?, remote: addresses.next()? })
    };
    lines.lines().filter(|line| line.contains(&owner)).filter_map(connection).collect()
}

/// An address; one of IPv4 that came to a socket for both kinds is shown as one of IPv6.
fn address(text: &str) -> Option<SocketAddr> {
    let shown: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(shown.ip().to_canonical(), shown.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_the_process_count() {
        let line = "0  0   127.0.0.1:6789  127.0.0.1:50000 users:((\"carmine-osd\",pid=717,fd=30))\n";
        let [local, remote] = ["127.0.0.1:6789", "127.0.0.1:50000"].map(|text| text.parse().unwrap());
        assert_eq!(of_process(717, line), [Connection { local, remote }]);
        assert_eq!((of_process(17, line), of_process(71, line)), (vec![], vec![]));
        assert_eq!(of_process(717, &line.replace("6789", "https")), []);
    }

    #[test]
    fn addresses_of_both_kinds() {
        let of = |text: &str| address(text).map(|addr| addr.to_string());
        assert_eq!(of("[::1]:80").as_deref(), Some("[::1]:80"));
        // It is one of the older kind that came to a socket for both.
        assert_eq!(of("[::ffff:127.0.0.1]:80").as_deref(), Some("127.0.0.1:80"));
        assert_eq!((of("127.0.0.1"), of("*:80"), of("127.0.0.1:80000")), (None, None, None));
    }

    #[test]
    fn the_connections_of_this_process_are_listed() {
        let Ok(listed) = ss("-p", None) else { return };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() };
        let pid = std::process::id() as i32;
        assert!(!of_process(pid, &listed).contains(&own));
        assert!(of_process(pid, &ss("-p", None).unwrap()).contains(&own));
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
