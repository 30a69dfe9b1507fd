//! How a drive is reached: through the block layer, with or without interrupts, or by NVMe commands.
//!
//! Everything here blocks: it runs on an alien thread, or before the reactors do.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use carmine_types::IoPath;

use crate::nvme::{Command, Identity, Layout, Namespace, Part};
use crate::op::Way;
use crate::sys;
use crate::whole::{PAGE_BYTES, Whole};

/// Bytes of the sectors that `/sys` counts in, whatever the drive's blocks are.
const SECTOR_BYTES: u64 = 512;
/// Bytes of memory in pages of which the kernel makes one `bio` (`BIO_MAX_VECS`).
const BIO_BYTES_MAX: u64 = 256 * PAGE_BYTES;

/// The way to a file or device, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPath {
    /// Never [`IoPath::Auto`].
    pub path: IoPath,
    /// Why: facts of the drive, or what it lacks.
    pub why: String,
}

/// The path that [`Shard::open`](crate::Shard::open) will use for `path` if `asked` for it. Blocks: not for reactors.
///
/// # Errors
/// The drive or the kernel does not offer what is asked for; the text says what to do. Never for `auto` and `block`.
pub fn choose_io_path(path: &Path, asked: IoPath) -> io::Result<ChosenPath> {
    way(path, asked).map(|(way, why)| ChosenPath { path: way.io_path(), why })
}

impl Way {
    pub(crate) fn io_path(&self) -> IoPath {
        match self {
            Way::Plain => IoPath::Block,
            Way::Polled(_) => IoPath::Poll,
            Way::Commands(_) => IoPath::Passthru,
        }
    }
}

/// The chosen path, and why.
pub(crate) fn way(path: &Path, asked: IoPath) -> io::Result<(Way, String)> {
    let refused = |why: String| {
        let text = format!("--io-path {asked}: {}: {why}", path.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    };
    if asked == IoPath::Block {
        return Ok((Way::Plain, "asked for".to_owned()));
    }
    let drive = fs::metadata(path)
        .map_err(|error| error.to_string())
        .and_then(|found| Drive::read_from(Path::new("/sys"), &found));
    let way = match (asked, drive) {
        (_, Err(why)) => Err(why),
        (IoPath::Poll, Ok(drive)) => drive.polled().map(|why| (Way::Polled(drive.whole), why)),
        (_, Ok(drive)) => drive.commanded(asked == IoPath::Auto).map(|namespace| {
            let why = describe(&namespace.layout);
            (Way::Commands(Box::new(namespace)), why)
        }),
    };
    match way {
        Ok(found) => Ok(found),
        Err(why) if asked == IoPath::Auto => Ok((Way::Plain, why)),
        Err(why) => refused(why),
    }
}

fn describe(layout: &Layout) -> String {
    let (lba, atomic, most) = (layout.lba_bytes(), layout.atomic_bytes(), layout.transfer_bytes_max());
    format!("namespace {}, blocks of {lba} bytes, {atomic} bytes atomic, {most} bytes a command", layout.id)
}

fn has_entries(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// A block device as `/sys` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Drive {
    /// Of the whole drive, such as `nvme0n1`.
    name: String,
    part: Part,
    whole_bytes: u64,
    has_poll_queues: bool,
    whole: Whole,
}

impl Drive {
    fn read_from(sys: &Path, found: &Metadata) -> Result<Drive, String> {
        if !found.file_type().is_block_device() {
            return Err("it is a file, and only a block device can be reached so: take block".to_owned());
        }
        let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
        Drive::read(&sys.join(format!("dev/block/{major}:{minor}")))
    }

    /// Reads the folder of a drive or partition.
    fn read(link: &Path) -> Result<Drive, String> {
        let folder = link.canonicalize().map_err(|error| format!("{}: {error}", link.display()))?;
        let is_part = folder.join("partition").exists();
        let whole = folder.parent().filter(|_| is_part).unwrap_or(&folder).to_path_buf();
        let number = |folder: &Path, name: &str| {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or_default()
        };
        let sectors = |folder: &Path, name: &str| number(folder, name).saturating_mul(SECTOR_BYTES);
        let queue = whole.join("queue");
        let by_segments = number(&queue, "max_segments").saturating_mul(PAGE_BYTES);
        let begin_bytes = if is_part { sectors(&folder, "start") } else { 0 };
        Ok(Drive {
            name: whole.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            part: Part {
                begin_bytes,
                bytes: sectors(&folder, "size"),
                transfer_bytes_max: number(&queue, "max_hw_sectors_kb").saturating_mul(1024).min(by_segments),
            },
            whole_bytes: sectors(&whole, "size"),
            // A drive made of others splits requests at their boundaries, which cannot be seen here.
            has_poll_queues: number(&queue, "io_poll") == 1 && !has_entries(&whole.join("slaves")),
            whole: Whole {
                begin_bytes,
                // A buffer that does not begin at a page has one more segment.
                bytes_max: number(&queue, "max_sectors_kb")
                    .saturating_mul(1024)
                    .min(by_segments.min(BIO_BYTES_MAX).saturating_sub(PAGE_BYTES)),
                boundary_bytes: sectors(&queue, "chunk_sectors"),
            },
        })
    }

    /// The numbers of an NVMe namespace's name: `0n1`.
    fn nvme_numbers(&self) -> Result<&str, String> {
        let numbers = self.name.strip_prefix("nvme");
        numbers.ok_or_else(|| format!("{} is no NVMe drive: take block", self.name))
    }

    fn polled(&self) -> Result<String, String> {
        if self.has_poll_queues {
            return Ok(format!("{} has poll queues", self.name));
        }
        Err(match self.nvme_numbers() {
            Ok(_) => format!(
                "{} has no poll queues: boot the kernel with nvme.poll_queues=N (N: the number of reactors), or write \
                 `options nvme poll_queues=N` to /etc/modprobe.d/nvme.conf and load the module anew",
                self.name
            ),
            Err(_) => format!("the driver of {} has no poll queues: take block", self.name),
        })
    }

    /// Opens the generic device of the drive and asks it what it is.
    fn commanded(&self, is_auto: bool) -> Result<Namespace, String> {
        let generic = PathBuf::from(format!("/dev/ng{}", self.nvme_numbers()?));
        let failed = |what: &str, error: io::Error| {
            let todo = match error.kind() {
                io::ErrorKind::NotFound => "; Linux has it since 5.13, and udev must have made it",
                io::ErrorKind::PermissionDenied => {
                    "; run as root, or give this user the device (before Linux 6.2: CAP_SYS_ADMIN)"
                }
                _ => "",
            };
            format!("cannot {what} {}: {error}{todo}", generic.display())
        };
        let opened = File::options().read(true).write(true).open(&generic);
        let opened = OwnedFd::from(opened.map_err(|error| failed("open", error))?);
        let id = sys::nvme_namespace(&opened).map_err(|error| failed("ask the namespace of", error))?;
        let ask = |id, cns| {
            sys::nvme_admin(&opened, Command::identify(id, cns)).map_err(|error| failed("identify", error))
        };
        let identity = Identity::decode(&ask(0, 1)?, &ask(id, 0)?)?;
        if identity.bytes() != self.whole_bytes {
            return Err(format!(
                "{} has {} bytes, and {} has {}: they are not the same drive",
                generic.display(),
                identity.bytes(),
                self.name,
                self.whole_bytes
            ));
        }
        if is_auto && identity.is_shared {
            // The block layer continues over the other path when one fails; a command fails with its path.
            return Err(format!("{} has several controllers", self.name));
        }
        Ok(Namespace { generic: opened, layout: Layout { id, identity, part: self.part } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like that of a drive with one partition.
    fn drive(name: &str, io_poll: &str) -> (tempfile::TempDir, Drive, Drive) {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join(name);
        let part = whole.join("p1");
        for folder in [whole.join("queue"), part.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        for (file, text) in [
            ("size", "8192\n"),
            ("queue/max_hw_sectors_kb", "512\n"),
            ("queue/max_sectors_kb", "256\n"),
            ("queue/chunk_sectors", "256\n"),
            ("queue/max_segments", "127\n"),
            ("queue/io_poll", io_poll),
            ("p1/partition", "1\n"),
            ("p1/start", "2048\n"),
            ("p1/size", "1024\n"),
        ] {
            fs::write(whole.join(file), text).unwrap();
        }
        let (all, one) = (Drive::read(&whole).unwrap(), Drive::read(&part).unwrap());
        (dir, all, one)
    }

    #[test]
    fn a_partition_has_its_drive_s_queue_and_its_own_place() {
        let (_dir, whole, part) = drive("nvme0n1", "1\n");
        assert_eq!(whole.part, Part { begin_bytes: 0, bytes: 4 << 20, transfer_bytes_max: 508 << 10 });
        assert_eq!(part.part, Part { begin_bytes: 1 << 20, bytes: 512 << 10, transfer_bytes_max: 508 << 10 });
        assert_eq!((part.name.as_str(), part.whole_bytes, part.has_poll_queues), ("nvme0n1", 4 << 20, true));
        assert_eq!(part.nvme_numbers(), Ok("0n1"));
        let limits = Whole { begin_bytes: 1 << 20, bytes_max: 256 << 10, boundary_bytes: 128 << 10 };
        assert_eq!((part.whole, whole.whole), (limits, Whole { begin_bytes: 0, ..limits }));
    }

    #[test]
    fn who_asks_for_what_a_drive_lacks_is_told_what_to_do() {
        let (_dir, nvme, _) = drive("nvme7n1", "0\n");
        assert!(nvme.polled().unwrap_err().contains("nvme.poll_queues=N"));
        let (stack, _, _) = drive("dm-0", "1\n");
        fs::create_dir_all(stack.path().join("dm-0/slaves/nvme0n1")).unwrap();
        let disk = Drive::read(&stack.path().join("dm-0")).unwrap();
        assert!(disk.polled().unwrap_err().contains("the driver of dm-0 has no poll queues"));
        let (_dir, disk, _) = drive("vda", "0\n");
        assert!(disk.polled().unwrap_err().contains("take block"));
        assert!(disk.commanded(true).err().unwrap().contains("vda is no NVMe drive"));
        let (_dir, none, _) = drive("nvme977n1", "1\n");
        let why = none.commanded(false).err().unwrap();
        assert!(why.contains("cannot open /dev/ng977n1") && why.contains("5.13"), "{why}");
    }

    #[test]
    fn a_file_is_reached_through_the_block_layer_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for asked in [IoPath::Poll, IoPath::Passthru] {
            let error = choose_io_path(file.path(), asked).unwrap_err().to_string();
            let path = file.path().display().to_string();
            assert!(
                error.contains(&path) && error.contains(asked.word()) && error.contains("it is a file"),
                "{error}"
            );
        }
        for asked in [IoPath::Auto, IoPath::Block] {
            assert_eq!(choose_io_path(file.path(), asked).unwrap().path, IoPath::Block);
        }
    }
}
