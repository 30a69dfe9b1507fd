//! `--zip`: the archive as one file to hand on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Folders and files that are of this machine only.
const LOCAL: [&str; 3] = ["layouts", "sweep.lock", "running.json"];

/// Packs a run's folder into `FOLDER.zip` beside it, whole or not at all.
pub(crate) fn pack(dir: &Path) -> anyhow::Result<PathBuf> {
    let name = dir.file_name().context("the run's folder has no name")?;
    let target = dir.with_file_name(format!("{}.zip", name.display()));
    let part = dir.with_file_name(format!(".{}.zip.part", name.display()));
    let file = File::create(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let mut zip = ZipWriter::new(file);
    add(&mut zip, dir, &name.display().to_string())?;
    let file = zip.finish().context("cannot finish the zip file")?;
    file.sync_all()?;
    std::fs::rename(&part, &target).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

fn add(zip: &mut ZipWriter<File>, folder: &Path, prefix: &str) -> anyhow::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().display().to_string();
        if LOCAL.contains(&name.as_str()) {
            continue;
        }
        let inside = format!("{prefix}/{name}");
        if entry.file_type()?.is_dir() {
            add(zip, &entry.path(), &inside)?;
        } else {
            zip.start_file(inside, SimpleFileOptions::default()).context("cannot add a file")?;
            zip.write_all(&std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
