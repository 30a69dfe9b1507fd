//! Disks in memory: sparse files keyed by (node name, path). They outlive the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use carmine_types::crc32c;

use super::Tried;
use crate::buf::{ALIGN, Buf, Bytes};
use crate::file::FileOptions;

const PAGE: usize = 4096;

/// The node that has the file, and its path there.
pub(crate) type FileName = (String, PathBuf);

#[derive(Clone, Default)]
pub(crate) struct Content {
    pages: BTreeMap<u64, Box<[u8]>>,
    len: u64,
}

struct Open {
    file: FileName,
    direct: bool,
    writable: bool,
    readable: bool,
}

/// All files of the world.
#[derive(Default)]
pub(crate) struct Disks {
    files: BTreeMap<FileName, Content>,
    open: BTreeMap<u64, Open>,
    next: u64,
    pub(crate) faults: Faults,
}

impl Disks {
    pub(crate) fn open(&mut self, node: &str, path: &Path, opts: FileOptions) -> io::Result<u64> {
        if !opts.read && !opts.write {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither read nor write was asked for"));
        }
        let key = (node.to_owned(), path.to_owned());
        if !self.files.contains_key(&key) {
            if !opts.create {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            self.files.insert(key.clone(), Content::default());
        }
        if opts.truncate
            && let Some(c) = self.files.get_mut(&key)
        {
            *c = Content::default();
        }
        let open = Open { file: key, direct: opts.direct, writable: opts.write, readable: opts.read };
        Ok(self.opened(open))
    }

    /// A handle that flushes the names of the files in a folder. Folders are there without being made.
    pub(super) fn open_folder(&mut self, node: &str, path: &Path) -> u64 {
        let file = (node.to_owned(), path.to_owned());
        self.opened(Open { file, direct: false, writable: false, readable: false })
    }

    fn opened(&mut self, open: Open) -> u64 {
        // Even numbers are sockets, odd ones files.
        self.next += 2;
        let id = self.next | 1;
        self.open.insert(id, open);
        id
    }

    pub(super) fn close(&mut self, id: u64) {
        self.open.remove(&id);
    }

    pub(crate) fn len(&self, id: u64) -> u64 {
        self.open.get(&id).and_then(|o| self.files.get(&o.file)).map_or(0, |c| c.len)
    }

    pub(super) fn set_len(&mut self, id: u64, len: u64) {
        if let Some(c) = self.open.get(&id).and_then(|o| self.files.get_mut(&o.file)) {
            c.set_len(len);
        }
    }

    /// Zeros for what a drive may do with discarded bytes: whoever still needs them finds out.
    pub(super) fn discard(&mut self, id: u64, off: u64, len: u64) -> Tried {
        let Some(o) = self.open.get(&id) else { return Tried::Done(-libc::EBADF, 0) };
        let fault = self.faults.get(&o.file);
        if fault.is_some_and(|fault| fault.discards_fail) {
            return Tried::Done(-libc::EOPNOTSUPP, 0);
        }
        let Some(c) = self.files.get_mut(&o.file) else { return Tried::Done(-libc::EIO, 0) };
        c.discard(off, len);
        Tried::Done(0, 0)
    }

    pub(super) fn flush(&self, id: u64) -> Tried {
        let fault = self.open.get(&id).and_then(|o| self.faults.get(&o.file));
        Tried::Done(if fault.is_some_and(|fault| fault.flushes_fail) { -libc::EIO } else { 0 }, 0)
    }

    /// Virtual time that an operation takes longer than it should.
    pub(super) fn slower_ns(&self, id: u64) -> u64 {
        self.open.get(&id).and_then(|o| self.faults.get(&o.file)).map_or(0, |fault| fault.slower_ns)
    }

    /// Flips a bit of the byte at `off`; false if nothing was ever written there.
    pub(crate) fn flip(&mut self, file: &FileName, off: u64, bit: u8) -> bool {
        let page = self.files.get_mut(file).and_then(|c| c.pages.get_mut(&(off / PAGE as u64)));
        let byte = page.and_then(|page| page.get_mut((off % PAGE as u64) as usize));
        byte.map(|byte| *byte ^= 1 << (bit % 8)).is_some()
    }

    /// Offsets of the pages that begin with these bytes.
    pub(crate) fn find(&self, file: &FileName, bytes: &[u8]) -> Vec<u64> {
        let pages = self.files.get(file).into_iter().flat_map(|c| &c.pages);
        pages.filter(|(_, page)| page.starts_with(bytes)).map(|(number, _)| number * PAGE as u64).collect()
    }

    /// The file behind an open handle.
    pub(super) fn name(&self, id: u64) -> Option<FileName> {
        self.open.get(&id).map(|o| o.file.clone())
    }

    pub(super) fn files(&self) -> &BTreeMap<FileName, Content> {
        &self.files
    }

    /// Sets the content of a file, or removes it.
    pub(super) fn put_file(&mut self, file: FileName, content: Option<Content>) {
        match content {
            Some(content) => _ = self.files.insert(file, content),
            None => _ = self.files.remove(&file),
        }
    }

    /// Replaces all files.
    pub(crate) fn replace(&mut self, files: BTreeMap<FileName, Content>) {
        self.files = files;
    }

    pub(super) fn read(&mut self, id: u64, buf: &mut Buf, len: usize, off: u64) -> Tried {
        let Some(o) = self.open.get(&id) else { return Tried::Done(-libc::EBADF, 0) };
        if !o.readable {
            return Tried::Done(-libc::EBADF, 0);
        }
        if o.direct && !(len.is_multiple_of(ALIGN) && off.is_multiple_of(ALIGN as u64)) {
            return Tried::Done(-libc::EINVAL, 0);
        }
        if self.faults.read_fails(&o.file, off, len as u64) {
            return Tried::Done(-libc::EIO, 0);
        }
        let Some(c) = self.files.get(&o.file) else { return Tried::Done(-libc::EIO, 0) };
        let n = usize::try_from(c.len.saturating_sub(off)).unwrap_or(usize::MAX).min(len);
        let out = &mut buf.full_mut()[..n];
        let mut at = 0;
        while at < n {
            let pos = off + at as u64;
            let in_page = (pos % PAGE as u64) as usize;
            let take = (PAGE - in_page).min(n - at);
            match c.pages.get(&(pos / PAGE as u64)) {
                Some(p) => out[at..at + take].copy_from_slice(&p[in_page..in_page + take]),
                None => out[at..at + take].fill(0),
            }
            at += take;
        }
        Tried::Done(n as i32, crc32c::raw(0, out))
    }

    pub(super) fn write(&mut self, id: u64, data: &[Bytes], skip: usize, off: u64, dsync: bool) -> Tried {
        let Some(o) = self.open.get(&id) else { return Tried::Done(-libc::EBADF, 0) };
        if !o.writable {
            return Tried::Done(-libc::EBADF, 0);
        }
        let aligned = off.is_multiple_of(ALIGN as u64) && data.iter().all(|b| b.is_aligned(ALIGN));
        if o.direct && !aligned {
            return Tried::Done(-libc::EINVAL, 0);
        }
        let len = data.iter().map(Bytes::len).sum::<usize>().saturating_sub(skip);
        if self.faults.write_fails(&o.file, off, len as u64, dsync) {
            return Tried::Done(-libc::EIO, 0);
        }
        let Some(c) = self.files.get_mut(&o.file) else { return Tried::Done(-libc::EIO, 0) };
        let (mut pos, mut skip, mut crc, mut n) = (off, skip, 0, 0);
        for b in data {
            let from = skip.min(b.len());
            skip -= from;
            let part = &b[from..];
            crc = crc32c::raw(crc, part);
            n += part.len();
            c.put(pos, part);
            pos += part.len() as u64;
        }
        Tried::Done(n as i32, crc)
    }
}

impl Content {
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.retain(|p, _| p * (PAGE as u64) < len);
            let tail = (len % PAGE as u64) as usize;
            if let Some(p) = self.pages.get_mut(&(len / PAGE as u64)) {
                p[tail..].fill(0);
            }
        }
        self.len = len;
    }

    /// Zeros within the file.
    fn discard(&mut self, off: u64, len: u64) {
        let end = off.saturating_add(len).min(self.len);
        let mut pos = off;
        while pos < end {
            let in_page = (pos % PAGE as u64) as usize;
            let take = (PAGE - in_page).min((end - pos) as usize);
            if take == PAGE {
                self.pages.remove(&(pos / PAGE as u64));
            } else if let Some(page) = self.pages.get_mut(&(pos / PAGE as u64)) {
                page[in_page..in_page + take].fill(0);
            }
            pos += take as u64;
        }
    }

    /// Writes bytes; a longer file is the result if they end behind its end.
    pub(super) fn put(&mut self, off: u64, mut data: &[u8]) {
        let mut pos = off;
        self.len = self.len.max(off + data.len() as u64);
        while !data.is_empty() {
            let in_page = (pos % PAGE as u64) as usize;
            let take = (PAGE - in_page).min(data.len());
            let page =
                self.pages.entry(pos / PAGE as u64).or_insert_with(|| vec![0; PAGE].into_boxed_slice());
            page[in_page..in_page + take].copy_from_slice(&data[..take]);
            data = &data[take..];
            pos += take as u64;
        }
    }

    /// One byte; 0 where nothing was written.
    #[cfg(test)]
    pub(super) fn byte(&self, off: u64) -> u8 {
        let page = self.pages.get(&(off / PAGE as u64));
        page.and_then(|page| page.get((off % PAGE as u64) as usize)).copied().unwrap_or(0)
    }
}

// Faults of a simulated disk.

/// The faults of one file.
#[derive(Default)]
pub(crate) struct Fault {
    /// Pages that cannot be read, until something is written there.
    pub(crate) unreadable: BTreeSet<u64>,
    pub(crate) writes_fail: bool,
    pub(crate) flushes_fail: bool,
    /// It takes no discards.
    pub(crate) discards_fail: bool,
    /// Virtual time that every operation takes longer.
    pub(crate) slower_ns: u64,
}

/// Faults by file.
#[derive(Default)]
pub(crate) struct Faults(BTreeMap<FileName, Fault>);

fn pages(off: u64, len: u64) -> RangeInclusive<u64> {
    off / PAGE as u64..=(off + len.max(1) - 1) / PAGE as u64
}

impl Faults {
    pub(crate) fn fault_mut(&mut self, file: &FileName) -> &mut Fault {
        self.0.entry(file.clone()).or_default()
    }

    pub(super) fn get(&self, file: &FileName) -> Option<&Fault> {
        self.0.get(file)
    }

    pub(super) fn read_fails(&self, file: &FileName, off: u64, len: u64) -> bool {
        self.get(file).is_some_and(|fault| fault.unreadable.range(pages(off, len)).next().is_some())
    }

    /// A write fails, or the drive puts another place where it could not read.
    pub(super) fn write_fails(&mut self, file: &FileName, off: u64, len: u64, dsync: bool) -> bool {
        let Some(fault) = self.0.get_mut(file) else { return false };
        let fails = fault.writes_fail || dsync && fault.flushes_fail;
        if !fails {
            fault.unreadable.retain(|page| !pages(off, len).contains(page));
        }
        fails
    }
}
