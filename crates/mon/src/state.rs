//! The monitor's durable state: two files, one of them current, each append-only and checksummed.
//!
//! A change is appended to the current file and synced before anybody hears of it. When the file has
//! grown past [`COMPACT_BYTES`], the newest state is written to the *other* file with the next generation
//! number, synced, and that file becomes the current one. A crash in between leaves the other file
//! without its three opening records, so the old one stays current; nothing is ever renamed or deleted.

use std::path::{Path, PathBuf};

use carmine_reactor::{Bytes, File, FileOptions, Shard};
use carmine_types::Uuid;
use tracing::{info, warn};

use crate::MonError;
use crate::record::{Content, RECORD_BYTES_MAX, Record};

/// Appended bytes after which the file is rewritten: a thousand epochs of a small cluster.
const COMPACT_BYTES: u64 = 8 << 20;
/// Nothing that we write comes near this; a longer file is not ours.
const FILE_BYTES_MAX: u64 = COMPACT_BYTES + 4 * RECORD_BYTES_MAX as u64;
/// Bytes read at once while opening.
const READ_BYTES: usize = 256 << 10;

/// What was found on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Saved {
    pub(crate) fsid: Uuid,
    pub(crate) next_gid: u64,
    pub(crate) map: Vec<u8>,
}

/// The open state. After a failed append or sync it refuses further use: what the disk holds is unknown.
pub(crate) struct StateFile {
    files: [(PathBuf, File); 2],
    current: usize,
    generation: u64,
    /// Next append goes here.
    end: u64,
    /// Bytes of the opening records: the file is rewritten only when that makes it much smaller.
    base_bytes: u64,
    failed: bool,
}

async fn read_whole(shard: &Shard, path: &Path, file: &File) -> Result<Vec<u8>, MonError> {
    let io = |e| MonError::state("read", path, e);
    let len = file.len().await.map_err(io)?;
    if len > FILE_BYTES_MAX {
        return Err(MonError::NotAState { path: path.to_path_buf(), len });
    }
    let mut bytes = Vec::with_capacity(len as usize);
    while (bytes.len() as u64) < len {
        let want = READ_BYTES.min(len as usize - bytes.len());
        let (got, buf) = file.read_at(shard.buf(READ_BYTES), want, bytes.len() as u64).await;
        let got = got.map_err(io)?;
        if got == 0 {
            break;
        }
        bytes.extend_from_slice(buf.get(..got).unwrap_or_default());
    }
    Ok(bytes)
}

impl StateFile {
    /// Opens the state in the existing folder `dir`; `None` for a folder without one. A torn tail is cut
    /// off with a log line.
    pub(crate) async fn open(shard: &Shard, dir: &Path) -> Result<(Self, Option<Saved>), MonError> {
        let options = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
        let mut files = Vec::new();
        let mut found: Option<(usize, Content, usize)> = None;
        for slot in 0..2 {
            let path = dir.join(format!("state.{slot}"));
            let file = shard.open(&path, options).await.map_err(|e| MonError::state("open", &path, e))?;
            let bytes = read_whole(shard, &path, &file).await?;
            if let Some(content) = Content::read(&bytes)
                && found.as_ref().is_none_or(|(_, best, _)| content.generation > best.generation)
            {
                found = Some((slot, content, bytes.len()));
            }
            files.push((path, file));
        }
        let Ok(files) = <[_; 2]>::try_from(files) else { unreachable!("two slots are opened") };
        let mut state = Self { files, current: 1, generation: 0, end: 0, base_bytes: 0, failed: false };
        let Some((slot, content, file_bytes)) = found else { return Ok((state, None)) };
        state.current = slot;
        state.generation = content.generation;
        state.end = content.valid_bytes as u64;
        state.base_bytes = state.end;
        let (path, file) = &state.files[slot];
        if file_bytes > content.valid_bytes {
            warn!(
                "{}: cut a torn tail of {} bytes after byte {}",
                path.display(),
                file_bytes - content.valid_bytes,
                content.valid_bytes
            );
            file.set_len(state.end).await.map_err(|e| MonError::state("truncate", path, e))?;
        }
        let saved = Saved { fsid: content.fsid, next_gid: content.next_gid, map: content.map };
        Ok((state, Some(saved)))
    }

    async fn write(&mut self, slot: usize, at: u64, bytes: Vec<u8>) -> Result<(), MonError> {
        let (path, file) = &self.files[slot];
        if self.failed {
            return Err(MonError::StateFailed { path: path.clone() });
        }
        let written = match file.write_at(vec![Bytes::from(bytes)], at, false).await {
            Ok(()) => file.fdatasync().await,
            Err(e) => Err(e),
        };
        if let Err(e) = written {
            self.failed = true;
            return Err(MonError::state("write", path, e));
        }
        Ok(())
    }

    /// Starts a new current file that holds exactly `saved`; durable when this returns.
    pub(crate) async fn rewrite(&mut self, saved: &Saved) -> Result<(), MonError> {
        let slot = 1 - self.current;
        let generation = self.generation + 1;
        let mut bytes = Vec::new();
        Record::Header { generation, fsid: saved.fsid }.encode(&mut bytes);
        Record::Gid { next: saved.next_gid }.encode(&mut bytes);
        Record::Map(saved.map.clone()).encode(&mut bytes);
        let len = bytes.len() as u64;
        let (path, file) = &self.files[slot];
        file.set_len(0).await.map_err(|e| MonError::state("truncate", path, e))?;
        self.write(slot, 0, bytes).await?;
        info!("{}: generation {generation}, {len} bytes", self.files[slot].0.display());
        (self.current, self.generation, self.end, self.base_bytes) = (slot, generation, len, len);
        Ok(())
    }

    /// Appends records; durable when this returns. `saved` is the state *after* them, for compaction.
    pub(crate) async fn append(&mut self, records: &[Record], saved: &Saved) -> Result<(), MonError> {
        if self.end > COMPACT_BYTES && self.end > 4 * self.base_bytes {
            return self.rewrite(saved).await;
        }
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes);
        }
        let len = bytes.len() as u64;
        self.write(self.current, self.end, bytes).await?;
        self.end += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use carmine_reactor::sim::Sim;

    use super::*;

    /// Runs `work` on a simulated machine whose files survive from one call to the next.
    fn on<F: Future<Output = ()> + 'static>(sim: &Sim, work: impl Fn(Shard) -> F + 'static) {
        let done = Rc::new(RefCell::new(false));
        let flag = Rc::clone(&done);
        let work = Rc::new(work);
        let node = sim.node("mon", 1, move |shard| {
            let (flag, work) = (Rc::clone(&flag), Rc::clone(&work));
            async move {
                work(shard).await;
                *flag.borrow_mut() = true;
            }
        });
        sim.run(|| *done.borrow(), Duration::from_secs(60)).unwrap();
        sim.kill(node);
    }

    fn saved(gid: u64, map: &[u8]) -> Saved {
        Saved { fsid: Uuid([1; 16]), next_gid: gid, map: map.to_vec() }
    }

    #[test]
    fn survives_kills_and_torn_tails() {
        let sim = Sim::new(1);
        let dir = Path::new("/mon");
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, None);
            state.rewrite(&saved(10, b"one")).await.unwrap();
            state.append(&[Record::Map(b"two".to_vec())], &saved(10, b"two")).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(10, b"two")));
            state.append(&[Record::Gid { next: 20 }], &saved(20, b"two")).await.unwrap();
            // A record of which only a part reached the disk.
            let mut torn = Vec::new();
            Record::Map(b"three".to_vec()).encode(&mut torn);
            torn.truncate(torn.len() - 2);
            state.write(state.current, state.end, torn).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(20, b"two")));
            state.append(&[Record::Map(b"four".to_vec())], &saved(20, b"four")).await.unwrap();
            // A rewrite that did not get to its end leaves the current file in force.
            let other = 1 - state.current;
            let mut bytes = Vec::new();
            Record::Header { generation: 99, fsid: Uuid([1; 16]) }.encode(&mut bytes);
            state.write(other, 0, bytes).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(20, b"four")));
            state.rewrite(&saved(30, b"five")).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (_, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(30, b"five")));
        });
    }

    #[test]
    fn is_compacted() {
        let sim = Sim::new(2);
        let dir = Path::new("/mon");
        on(&sim, move |shard| async move {
            let (mut state, _) = StateFile::open(&shard, dir).await.unwrap();
            let map = vec![7; 1 << 20];
            state.rewrite(&saved(1, &map)).await.unwrap();
            for _ in 0..30 {
                state.append(&[Record::Map(map.clone())], &saved(1, &map)).await.unwrap();
                assert!(state.end < COMPACT_BYTES + (2 << 20), "{} bytes", state.end);
            }
            assert!(state.generation > 3);
        });
    }
}
