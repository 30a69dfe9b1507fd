//! The `ceph.conf` that stock clients read.

use std::net::SocketAddr;
use std::path::Path;

use crate::error::Result;
use crate::files;

/// Text of a `ceph.conf` for the monitor at `mon`, whose OSDs have their admin sockets in the folder `dir`.
pub fn ceph_conf(fsid: &str, mon: SocketAddr, dir: &Path) -> String {
    // Without a keyring line and with auth none a stock client neither looks for keys nor warns about them. Its log
    // and admin socket would go to /var/log/ceph and /var/run/ceph, which need not exist. librbd's cache would answer
    // before the OSDs do.
    format!(
        "# Written by carmine at every start. Use it as: rados -c THIS_FILE -p bench ls\n\
         [global]\n\
         fsid = {fsid}\n\
         mon host = [v2:{mon}]\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         log file = /dev/null\n\
         admin socket =\n\
         [client]\n\
         rbd cache = false\n\
         [osd]\n\
         admin socket = {}/$name.asok\n",
        dir.display()
    )
}

/// Writes it to `path`.
pub(crate) fn write(path: &Path, fsid: &str, mon: SocketAddr) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    files::write_whole(path, ceph_conf(fsid, mon, dir).as_bytes())
}
