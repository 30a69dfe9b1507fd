//! The monitor's durable state: two files, one of them current, each append-only and checksummed.
//!
//! A change is appended to the current file and synced before anybody hears of it. When the file has
//! grown past [`COMPACT_BYTES`], the newest state is written to the *other* file with the next generation
//! number, synced, and that file becomes the current one. A crash in between leaves the other file
//! without its three opening records, so the old one stays current; nothing is ever renamed or deleted.
//!
//! After each of these a mark behind the records of the other file says how much of the current one is durable. Nobody waits
//! for that to reach the disk: it is for the day on which a record cannot be read any more, so that this is not taken for a
//! crash and older epochs not for the newest ones.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use carmine_reactor::{Bytes, File, FileOptions, Shard};
use carmine_types::Uuid;
use tracing::{info, warn};

use crate::MonError;
use crate::record::{Content, Durable, RECORD_BYTES_MAX, Reading, Record};

/// Appended bytes after which the file is rewritten: a thousand epochs of a small cluster.
const COMPACT_BYTES: u64 = 8 << 20;
/// Nothing that we write comes near this; a longer file is not ours.
const FILE_BYTES_MAX: u64 = COMPACT_BYTES + 4 * RECORD_BYTES_MAX as u64;
/// Bytes read at once while opening.
const READ_BYTES: usize = 256 << 10;

/// The state that was found on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Saved {
    pub(crate) fsid: Uuid,
    pub(crate) next_gid: u64,
    pub(crate) map: Vec<u8>,
    /// The options of clients; empty if none were ever stored.
    pub(crate) options: Vec<u8>,
}

/// The open state. After a failed append or sync it refuses further use: what the disk holds is unknown.
pub(crate) struct StateFile {
    files: [(PathBuf, File); 2],
    current: usize,
    generation: u64,
    /// Of each file the end of its records: the next append goes there, or the mark.
    ends: [u64; 2],
    /// Bytes of the opening records: the file is rewritten only when that makes it much smaller.
    base_bytes: u64,
    /// The maps before the newest one, oldest first: those that were found, and that a new file gets.
    pub(crate) older: Vec<Rc<Vec<u8>>>,
    /// [`COMPACT_BYTES`], less in tests.
    pub(crate) compact_bytes: u64,
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

/// The slot with the newest state.
///
/// # Errors
/// A newer one was in force: records of it are damaged.
fn newest(paths: [&Path; 2], readings: &[Reading; 2]) -> Result<Option<usize>, MonError> {
    let generation = |slot: &usize| readings[*slot].content.as_ref().map(|content| content.generation);
    let best = [0, 1].into_iter().filter(|slot| generation(slot).is_some()).max_by_key(generation);
    let durable = readings.iter().map(|reading| reading.durable).max().unwrap_or_default();
    let reach = best.and_then(|slot| readings[slot].content.as_ref()).map(Content::reach);
    if reach.unwrap_or_default() >= durable {
        return match readings.iter().position(|reading| reading.is_first_version) {
            Some(slot) if best.is_none() => Err(MonError::FirstVersion { path: paths[slot].to_path_buf() }),
            _ => Ok(best),
        };
    }
    let damaged = match (best, reach) {
        (Some(slot), Some(reach)) if reach.generation == durable.generation => slot,
        (Some(slot), _) => 1 - slot,
        (None, _) => usize::from(readings[1].good_bytes > readings[0].good_bytes),
    };
    let cut = |slot: usize| {
        let end = readings[slot].content.as_ref().map_or(0, |content| content.valid_bytes);
        format!("truncate -s {end} {}", paths[slot].display())
    };
    let remedy = match best {
        Some(_) => format!("to give up what is newer than that: {}; {}", cut(0), cut(1)),
        None => "nothing else there can be read".into(),
    };
    let at = readings[damaged].good_bytes as u64;
    Err(MonError::StateDamaged { path: paths[damaged].to_path_buf(), at, remedy })
}

impl StateFile {
    /// Opens the state in the existing folder `dir`; `None` for a folder without one. A torn tail is cut
    /// off with a log line.
    pub(crate) async fn open(shard: &Shard, dir: &Path) -> Result<(Self, Option<Saved>), MonError> {
        let options = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
        let paths = [0, 1].map(|slot| dir.join(format!("state.{slot}")));
        let (mut files, mut lens, mut readings) =
            (Vec::new(), [0; 2], [Reading::default(), Reading::default()]);
        for (slot, path) in paths.iter().enumerate() {
            let file = shard.open(path, options).await.map_err(|e| MonError::state("open", path, e))?;
            let bytes = read_whole(shard, path, &file).await?;
            (lens[slot], readings[slot]) = (bytes.len(), Reading::from_bytes(&bytes));
            files.push((path.clone(), file));
        }
        // Data in a new file is lost if its name is not durable.
        shard.sync_folder(dir).await.map_err(|e| MonError::state("sync", dir, e))?;
        let Ok(files) = <[_; 2]>::try_from(files) else { unreachable!("two slots are opened") };
        let found = newest([&paths[0], &paths[1]], &readings)?;
        let ends =
            readings.each_ref().map(|reading| reading.content.as_ref().map_or(0, |c| c.valid_bytes as u64));
        let mut state = Self {
            files,
            current: 1,
            generation: 0,
            ends,
            base_bytes: 0,
            older: Vec::new(),
            compact_bytes: COMPACT_BYTES,
            failed: false,
        };
        let Some((slot, content)) = found.and_then(|slot| Some((slot, readings[slot].content.take()?)))
        else {
            return Ok((state, None));
        };
        (state.current, state.generation) = (slot, content.generation);
        state.base_bytes = ends[slot];
        let (path, file) = &state.files[slot];
        if lens[slot] > content.valid_bytes {
            let torn = lens[slot] - content.valid_bytes;
            warn!("{}: cut a torn tail of {torn} bytes after byte {}", path.display(), content.valid_bytes);
            file.set_len(ends[slot]).await.map_err(|e| MonError::state("truncate", path, e))?;
        }
        let Content { fsid, next_gid, map, older, options, .. } = content;
        state.older = older.into_iter().map(Rc::new).collect();
        let saved = Saved { fsid, next_gid, map, options };
        Ok((state, Some(saved)))
    }

    async fn write(&mut self, slot: usize, at: u64, bytes: Vec<u8>, sync: bool) -> Result<(), MonError> {
        let (path, file) = &self.files[slot];
        if self.failed {
            return Err(MonError::StateFailed { path: path.clone() });
        }
        let written = match file.write_at(vec![Bytes::from(bytes)], at, false).await {
            Ok(()) if sync => file.fdatasync().await,
            other => other,
        };
        if let Err(e) = written {
            self.failed = true;
            return Err(MonError::state("write", path, e));
        }
        Ok(())
    }

    /// Notes in the other file how much of the current one is durable.
    async fn mark(&mut self) -> Result<(), MonError> {
        let other = 1 - self.current;
        let durable = Durable { generation: self.generation, bytes: self.ends[self.current] };
        let mut bytes = Vec::new();
        Record::Mark.encode(durable, &mut bytes);
        self.write(other, self.ends[other], bytes, false).await
    }

    /// Starts a new current file that holds `saved` and the older maps; durable when this returns.
    pub(crate) async fn rewrite(&mut self, saved: &Saved) -> Result<(), MonError> {
        let slot = 1 - self.current;
        let generation = self.generation + 1;
        let mut bytes = Vec::new();
        let options = Some(&saved.options).filter(|options| !options.is_empty());
        let head = [Record::Header { fsid: saved.fsid }, Record::Gid { next: saved.next_gid }];
        let options = options.map(|options| Record::Options(options.clone()));
        let older = self.older.iter().map(|map| Record::Map(Vec::clone(map)));
        let maps = older.chain([Record::Map(saved.map.clone())]);
        for record in head.into_iter().chain(options).chain(maps) {
            record.encode(Durable { generation, bytes: 0 }, &mut bytes);
        }
        let len = bytes.len() as u64;
        let (path, file) = &self.files[slot];
        file.set_len(0).await.map_err(|e| MonError::state("truncate", path, e))?;
        self.write(slot, 0, bytes, true).await?;
        info!("{}: generation {generation}, {len} bytes", self.files[slot].0.display());
        (self.current, self.generation) = (slot, generation);
        (self.ends[slot], self.base_bytes) = (len, len);
        self.mark().await
    }

    /// Appends records; durable when this returns. `saved` is the state *after* them, for compaction.
    pub(crate) async fn append(&mut self, records: &[Record], saved: &Saved) -> Result<(), MonError> {
        let end = self.ends[self.current];
        if end > self.compact_bytes && end > 4 * self.base_bytes {
            return self.rewrite(saved).await;
        }
        let durable = Durable { generation: self.generation, bytes: end };
        let mut bytes = Vec::new();
        for record in records {
            record.encode(durable, &mut bytes);
        }
        let len = bytes.len() as u64;
        self.write(self.current, end, bytes, true).await?;
        self.ends[self.current] += len;
        self.mark().await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use carmine_reactor::sim::{Sim, Tape, Unflushed};
    use carmine_types::crc32c;

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
        Saved { fsid: Uuid([1; 16]), next_gid: gid, map: map.to_vec(), options: Vec::new() }
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
            let (slot, end) = (state.current, state.ends[state.current]);
            let durable = Durable { generation: state.generation, bytes: end };
            Record::Map(b"three".to_vec()).encode(durable, &mut torn);
            torn.truncate(torn.len() - 2);
            state.write(slot, end, torn, true).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(20, b"two")));
            state.append(&[Record::Map(b"four".to_vec())], &saved(20, b"four")).await.unwrap();
            // A rewrite that did not get to its end leaves the current file in force.
            let other = 1 - state.current;
            let mut bytes = Vec::new();
            let durable = Durable { generation: state.generation + 1, bytes: 0 };
            Record::Header { fsid: Uuid([1; 16]) }.encode(durable, &mut bytes);
            state.write(other, 0, bytes, true).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(saved(20, b"four")));
            state.rewrite(&saved(30, b"five")).await.unwrap();
            let with_options = Saved { options: b"options".to_vec(), ..saved(30, b"five") };
            state.append(&[Record::Options(b"options".to_vec())], &with_options).await.unwrap();
        });
        on(&sim, move |shard| async move {
            let with_options = Saved { options: b"options".to_vec(), ..saved(30, b"five") };
            let (mut state, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found.as_ref(), Some(&with_options));
            state.rewrite(&with_options).await.unwrap();
            let (_, found) = StateFile::open(&shard, dir).await.unwrap();
            assert_eq!(found, Some(with_options));
        });
    }

    const DIR: &str = "/mon";

    /// A life of a monitor's state, with the moments at which each state of it was acknowledged.
    fn life(sim: &Sim, tape: &Tape) -> Vec<(usize, Saved)> {
        let told = Rc::new(RefCell::new(Vec::new()));
        let (tape, log) = (tape.clone(), Rc::clone(&told));
        on(sim, move |shard| {
            let (tape, log) = (tape.clone(), Rc::clone(&log));
            async move {
                let tell = |saved: Saved| log.borrow_mut().push((tape.mark(), saved));
                let (mut state, found) = StateFile::open(&shard, Path::new(DIR)).await.unwrap();
                assert_eq!(found, None);
                state.rewrite(&saved(10, b"one")).await.unwrap();
                tell(saved(10, b"one"));
                for (gid, map) in
                    [(10, vec![2; 700]), (20, vec![2; 700]), (20, vec![3; 40]), (20, vec![4; 9000])]
                {
                    let after = saved(gid, &map);
                    let record = if gid == 20 && map.len() == 700 {
                        Record::Gid { next: gid }
                    } else {
                        Record::Map(map)
                    };
                    state.append(&[record], &after).await.unwrap();
                    tell(after);
                }
                for (gid, map) in [(30, vec![5; 2000]), (40, vec![6; 50])] {
                    state.rewrite(&saved(gid, &map)).await.unwrap();
                    tell(saved(gid, &map));
                    let map = vec![7; gid as usize];
                    state.append(&[Record::Map(map.clone())], &saved(gid, &map)).await.unwrap();
                    tell(saved(gid, &map));
                }
            }
        });
        told.take()
    }

    /// The state as it opens, or why it does not.
    fn opened(sim: &Sim) -> Result<Option<Saved>, String> {
        let found = Rc::new(RefCell::new(Ok(None)));
        let out = Rc::clone(&found);
        on(sim, move |shard| {
            let out = Rc::clone(&out);
            async move {
                let opened = StateFile::open(&shard, Path::new(DIR)).await;
                *out.borrow_mut() = opened.map(|(_, found)| found).map_err(|e| e.to_string());
            }
        });
        found.replace(Ok(None))
    }

    #[test]
    fn a_power_cut_leaves_what_was_acknowledged_or_the_change_under_way() {
        let sim = Sim::new(3);
        let tape = sim.record();
        let told = life(&sim, &tape);
        for at in 0..=tape.len() {
            let seen = told.iter().take_while(|(moment, _)| *moment < at).count();
            let random = |n: u64| Unflushed::Random(n << 32 | at as u64);
            for unflushed in [Unflushed::Lost, Unflushed::Kept, random(1), random(2), random(3), random(4)] {
                sim.restore(&tape, at, unflushed);
                let found = opened(&sim).unwrap_or_else(|e| panic!("cut at {at}, {unflushed:?}: {e}"));
                let acknowledged = seen.checked_sub(1).map(|n| &told[n].1);
                let under_way = told.get(seen).map(|(_, saved)| saved);
                let is_right =
                    found.as_ref() == acknowledged || (found.is_some() && found.as_ref() == under_way);
                assert!(is_right, "cut at {at}, {unflushed:?}: {found:?} after {seen} states");
            }
        }
    }

    #[test]
    fn a_flipped_bit_takes_no_acknowledged_state_back() {
        let sim = Sim::new(4);
        let tape = sim.record();
        let told = life(&sim, &tape);
        let mut refused = 0;
        for (moment, newest) in &told {
            for (slot, bit) in [(0, 0), (1, 5)] {
                let path = Path::new(DIR).join(format!("state.{slot}"));
                let restore = || sim.restore(&tape, moment + 1, Unflushed::Kept);
                restore();
                for off in (0..file_len(&sim, &path)).step_by(3) {
                    restore();
                    sim.disk("mon", &path).flip(off, bit);
                    match opened(&sim) {
                        Ok(found) => {
                            assert_eq!(found.as_ref(), Some(newest), "byte {off} of {}", path.display())
                        }
                        Err(text) => {
                            refused += 1;
                            assert!(text.contains("/mon/state."), "{text}");
                            let is_older = |found: &Saved| told.iter().any(|(_, saved)| saved == found);
                            match obey(&sim, &text) {
                                true => {
                                    assert!(opened(&sim).unwrap().as_ref().is_some_and(is_older), "{text}")
                                }
                                // Before the first compaction there is nothing older.
                                false => assert!(*moment <= told[4].0, "{text}"),
                            }
                        }
                    }
                }
            }
        }
        assert!(refused > 100, "only {refused} flips were refused");
    }

    #[test]
    fn a_lost_file_is_no_reason_to_begin_anew() {
        for lost in ["state.0", "state.1"] {
            let sim = Sim::new(5);
            let told = life(&sim, &sim.record());
            set_len(&sim, &format!("{DIR}/{lost}"), 0);
            match opened(&sim) {
                Ok(found) => assert_eq!(found.as_ref(), Some(&told.last().unwrap().1), "without {lost}"),
                Err(text) => assert!(text.contains(&format!("/mon/{lost}: the record at byte 0")), "{text}"),
            }
        }
    }

    #[test]
    fn a_file_of_the_first_version_is_refused() {
        let sim = Sim::new(6);
        on(&sim, |shard| async move {
            let options = FileOptions { write: true, create: true, ..FileOptions::default() };
            let file = shard.open(&Path::new(DIR).join("state.1"), options).await.unwrap();
            let mut bytes = Vec::new();
            let records: [(u8, &[&[u8]]); 4] = [
                (1, &[b"crmmon\x00\x01", &7_u64.to_le_bytes(), &[1; 16]]),
                (2, &[&10_u64.to_le_bytes()]),
                (3, &[b"one"]),
                (3, &[b"two"]),
            ];
            for (kind, payload) in records {
                let payload = payload.concat();
                let len = (payload.len() as u32).to_le_bytes();
                let crc = crc32c::raw(crc32c::raw(u32::MAX, &[&[kind], len.as_slice()].concat()), &payload);
                bytes.extend([len, crc.to_le_bytes(), [kind, 0, 0, 0]].concat());
                bytes.extend(payload);
            }
            file.write_at(vec![Bytes::from(bytes)], 0, true).await.unwrap();
        });
        let refused = opened(&sim).unwrap_err();
        assert!(refused.contains("state.1") && refused.contains("4bd758c"), "{refused}");
        // Beside a newer file it is what that one replaced.
        on(&sim, |shard| async move {
            let options = FileOptions { write: true, create: true, ..FileOptions::default() };
            let file = shard.open(&Path::new(DIR).join("state.0"), options).await.unwrap();
            let mut bytes = Vec::new();
            for record in [
                Record::Header { fsid: Uuid([1; 16]) },
                Record::Gid { next: 10 },
                Record::Map(b"three".to_vec()),
            ] {
                record.encode(Durable { generation: 8, bytes: 0 }, &mut bytes);
            }
            file.write_at(vec![Bytes::from(bytes)], 0, true).await.unwrap();
        });
        assert_eq!(opened(&sim), Ok(Some(saved(10, b"three"))));
    }

    /// Runs the commands that an error names; false if there are none.
    fn obey(sim: &Sim, text: &str) -> bool {
        let words: Vec<&str> = text.split([' ', ';']).collect();
        let commands = words.windows(4).filter(|words| words[..2] == ["truncate", "-s"]);
        commands.map(|words| set_len(sim, words[3], words[2].parse().unwrap())).count() == 2
    }

    fn set_len(sim: &Sim, path: &str, len: u64) {
        let path = PathBuf::from(path);
        on(sim, move |shard| {
            let path = path.clone();
            async move {
                let options = FileOptions { write: true, ..FileOptions::default() };
                shard.open(&path, options).await.unwrap().set_len(len).await.unwrap();
            }
        });
    }

    fn file_len(sim: &Sim, path: &Path) -> u64 {
        let len = Rc::new(RefCell::new(0));
        let (out, path) = (Rc::clone(&len), path.to_owned());
        on(sim, move |shard| {
            let (out, path) = (Rc::clone(&out), path.clone());
            async move {
                let options = FileOptions { read: true, ..FileOptions::default() };
                *out.borrow_mut() = shard.open(&path, options).await.unwrap().len().await.unwrap();
            }
        });
        len.take()
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
                let end = state.ends[state.current];
                assert!(end < COMPACT_BYTES + (2 << 20), "{end} bytes");
            }
            assert!(state.generation > 3);
        });
    }
}
