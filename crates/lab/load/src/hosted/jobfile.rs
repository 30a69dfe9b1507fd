//! A job file of fio, which runs with this testbed's engine, pool and data put over it.

use super::ini::{Key, Section, sections};
use super::{ClusterAccess, Tool, fio};
use crate::spec::{LoadSpec, Rw, parse_bytes, parse_millis};

/// The file that fio is given, in its working folder.
pub const JOBS_FILE: &str = "jobs.fio";

/// Why keys have other values here, and the keys.
const OVERRIDDEN: [(&str, &str); 6] = [
    ("--client names the engine", "ioengine"),
    ("the testbed has the cluster", "clientname clustername conf pool touch_objects"),
    (
        "the jobs share one image or one set of objects",
        "rbdname filename filename_format directory opendir unique_filename nrfiles filesize",
    ),
    ("there is no page cache between fio and the OSDs", "direct buffered invalidate"),
    (
        "jobs are threads on the testbed's client CPUs, and their begin is watched",
        "thread cpus_allowed cpus_allowed_policy cpumask numa_cpu_nodes numa_mem_policy exec_prerun exec_postrun",
    ),
    (
        "the result needs reads and writes, with their rates and latencies",
        "write_iops_log unified_rw_reporting gtod_reduce disable_lat disable_clat clat_percentiles stats",
    ),
];

/// Why jobs cannot run here, and the keys that show it.
const REFUSED: [(&str, &str); 3] = [
    ("a trace names its own files", "read_iolog merge_blktrace_file"),
    ("fio runs as you do; leave it out", "uid gid cgroup cgroup_weight"),
    ("there are no profiles and no layouts here; leave it out", "profile create_only"),
];

/// Keys that name files for the user, which fio would leave in its own folder.
const FILES: [&str; 4] = ["write_bw_log", "write_lat_log", "write_hist_log", "write_iolog"];

/// A job file that can run.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// Its name and checksum, as results have it.
    id: String,
    /// The text as the user wrote it.
    pub text: String,
    sections: Vec<Section>,
    /// What is overridden, for people: `[SECTION] KEY=VALUE: why`.
    pub notes: Vec<String>,
    /// The one window of all jobs, where they have the same: `ramp_time` and `runtime`, milliseconds.
    window_ms: Option<(u64, u64)>,
}

impl JobFile {
    /// Reads the text of a job file. `env` has the values of `${NAME}`; `only` names the one section that is to run.
    ///
    /// # Errors
    /// A line that is not understood, or a job that cannot run here: section, key and value.
    pub fn parse(
        name: &str,
        text: &str,
        only: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<JobFile, String> {
        let mut sections = sections(text, env)?;
        if let Some(only) = only {
            let names: Vec<String> = sections.iter().map(|section| section.name.clone()).collect();
            sections.retain(|section| section.name == only);
            if sections.is_empty() {
                return Err(format!("--section {only}: it has no such section; it has {}", names.join(", ")));
            }
        }
        sections.iter().try_for_each(check)?;
        let mut notes = Vec::new();
        for section in &mut sections {
            override_keys(section, &mut notes);
        }
        let only = only.map(|only| format!(" [{only}]")).unwrap_or_default();
        let id = format!("{name}{only} {:08x}", carmine_types::crc32c::raw(0, text.as_bytes()));
        let window_ms = window_ms(&sections)?;
        Ok(JobFile { id, text: text.to_owned(), sections, notes, window_ms })
    }

    /// All jobs run side by side for the same time, which is the window. Otherwise the window is all of fio's run.
    pub fn is_timed(&self) -> bool {
        self.window_ms.is_some()
    }

    /// Groups of jobs that run one after the other.
    pub fn groups(&self) -> usize {
        1 + self.sections.iter().skip(1).filter(|section| section.is_set("stonewall")).count()
    }

    /// The load as results and verdicts see it: the depth of the group that has the most in flight, the directions of all jobs, and the
    /// bytes that the largest job covers, or `spec`'s where no job says.
    ///
    /// # Errors
    /// A number or a size that is none, or one that `tool` cannot have: section, key and value.
    pub fn load(&self, tool: Tool, spec: &LoadSpec) -> Result<LoadSpec, String> {
        let mut groups: Vec<(u32, u64)> = Vec::new();
        let (mut size_bytes, mut says_size) = (0, true);
        let mut rates = Some(0.0);
        for section in &self.sections {
            if groups.is_empty() || section.is_set("stonewall") {
                groups.push((0, 0));
            }
            let (jobs, depth) = (count(section, "numjobs")?, u64::from(count(section, "iodepth")?));
            if let Some((all, depths)) = groups.last_mut() {
                (*all, *depths) = (all.saturating_add(jobs), depths.saturating_add(depth * u64::from(jobs)));
            }
            match span_bytes(section, tool)? {
                Some(bytes) => size_bytes = size_bytes.max(bytes),
                None => says_size = false,
            }
            rates = rates.zip(rate_iops(section)).map(|(all, rate)| all + rate * f64::from(jobs));
        }
        let (numjobs, depth) = groups.iter().copied().max_by_key(|(_, depth)| *depth).unwrap_or((1, 1));
        let size_bytes = if says_size { size_bytes } else { size_bytes.max(spec.size_bytes) };
        let (ramp_ms, runtime_ms) = self.window_ms.unwrap_or((self.ramp_ms()?, spec.runtime_ms));
        Ok(LoadSpec {
            rw: self.rw(),
            iodepth: u32::try_from(depth.div_ceil(u64::from(numjobs))).unwrap_or(u32::MAX),
            numjobs,
            size_bytes: size_bytes.next_multiple_of(spec.object_size_bytes.max(1)),
            rate_iops: rates.filter(|rate| *rate > 0.0 && self.groups() == 1),
            ramp_ms,
            runtime_ms,
            jobfile: Some(self.id.clone()),
            ..spec.clone()
        })
    }

    /// The longest `ramp_time` of the jobs that begin at once.
    fn ramp_ms(&self) -> Result<u64, String> {
        let first = self
            .sections
            .iter()
            .zip(0..)
            .take_while(|(section, at)| *at == 0 || !section.is_set("stonewall"));
        let ramps: Vec<u64> =
            first.map(|(section, _)| millis(section, "ramp_time")).collect::<Result<_, _>>()?;
        Ok(ramps.into_iter().max().unwrap_or(0))
    }

    /// The directions of all jobs together.
    fn rw(&self) -> Rw {
        let kind = |section: &Section| kind_of(section).unwrap_or("read").to_owned();
        let kinds: Vec<String> = self.sections.iter().map(kind).collect();
        let all_end = |end: &str| kinds.iter().all(|kind| kind.ends_with(end));
        match kinds[0].parse() {
            Ok(rw) if kinds.iter().all(|kind| *kind == kinds[0]) => rw,
            _ if all_end("read") => Rw::RandRead,
            _ if all_end("write") => Rw::RandWrite,
            _ => Rw::RandRw,
        }
    }

    /// Remarks for the result.
    pub fn marks(&self) -> Vec<String> {
        let groups = self.groups();
        let after = (groups > 1).then(|| {
            format!("{groups} groups of jobs ran one after the other: figures are of all of them; --section measures one")
        });
        let ramp = |section: &Section| section.get("ramp_time").map(str::to_owned);
        let first = self.sections.first().and_then(ramp);
        let differ =
            self.sections.iter().any(|section| ramp(section) != first) || groups > 1 && first.is_some();
        let ramps = differ.then(|| {
            "NOISY: not all jobs begin with the same ramp_time: the OSDs' CPU time has operations of ramps that fio does not count"
                .to_owned()
        });
        after.into_iter().chain(ramps).collect()
    }

    /// Milliseconds between two lines of fio's log of rates, where one log has the rates of the window.
    pub fn rates_ms(&self) -> Option<u64> {
        let interval_ms = |section: &Section| match section.get("log_avg_msec") {
            None => Some(fio::RATES_MS),
            Some(text) => text.parse().ok(),
        };
        let first = self.sections.first().and_then(interval_ms).filter(|ms| *ms >= 100 && self.is_timed())?;
        self.sections.iter().all(|section| interval_ms(section) == Some(first)).then_some(first)
    }

    /// The file for fio. `folder` is where the user's own logs go, whose names may be relative.
    pub fn given(&self, tool: Tool, spec: &LoadSpec, place: &ClusterAccess, folder: &str) -> String {
        let mut text = String::new();
        for section in &self.sections {
            let bytes = match (tool, span_bytes(section, tool)) {
                (Tool::FioRados, Ok(Some(bytes))) => bytes.next_multiple_of(spec.object_size_bytes.max(1)),
                _ => spec.size_bytes,
            };
            let engine = fio::engine(tool, &LoadSpec { size_bytes: bytes, ..spec.clone() }, place, 0);
            text += &format!("[{}]\n{engine}\n", section.name);
            let ours = [("ramp_time", self.is_timed()), ("size", tool == Tool::FioRados)];
            for Key { name, value, .. } in &section.keys {
                let is_file = FILES.contains(&name.as_str());
                text += &match value {
                    _ if ours.contains(&(name.as_str(), true)) => continue,
                    Some(file) if is_file && !file.starts_with('/') => format!("{name}={folder}/{file}\n"),
                    None if is_file => format!("{name}={folder}/{}\n", section.name),
                    Some(value) => format!("{name}={value}\n"),
                    None => format!("{name}\n"),
                };
            }
            text += &self.ours(section, tool, spec, bytes);
        }
        text
    }

    /// The lines of a section that are not the user's, but for those of its engine.
    fn ours(&self, section: &Section, tool: Tool, spec: &LoadSpec, bytes: u64) -> String {
        let (lacks, is_rados) = (|key: &str| section.get(key).is_none(), tool == Tool::FioRados);
        let is_random = kind_of(section).is_some_and(|kind| kind.starts_with("rand"));
        let lines = [
            (true, format!("invalidate=0\nthread\nexec_prerun=touch {}", fio::BEGIN_FILE)),
            (true, format!("write_iops_log={}", fio::JOB)),
            (self.is_timed() && spec.ramp_ms > 0, format!("ramp_time={}ms", spec.ramp_ms)),
            (lacks("size") || is_rados, format!("size={bytes}")),
            (lacks("log_avg_msec"), format!("log_avg_msec={}", fio::RATES_MS)),
            (is_rados && lacks("file_service_type"), fio::service_order(is_random)),
        ];
        lines.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, line)| line + "\n").collect()
    }
}

fn wrong(section: &Section, name: &str, why: &str) -> String {
    let key = section.keys.iter().find(|key| key.name == name);
    let origin = key.map_or(&section.name, |key| &key.section);
    format!("[{origin}] {name}={}: {why}", section.get(name).unwrap_or_default())
}

/// Refuses what cannot run here.
fn check(section: &Section) -> Result<(), String> {
    for (why, keys) in REFUSED {
        if let Some(name) = keys.split(' ').find(|name| section.get(name).is_some()) {
            return Err(wrong(section, name, why));
        }
    }
    match kind_of(section) {
        Some("read" | "write" | "randread" | "randwrite" | "rw" | "readwrite" | "randrw") | None => Ok(()),
        Some(_) => Err(wrong(
            section,
            "rw",
            "only reads and writes are measured; take read, write, rw, or rand of these",
        )),
    }
}

/// A job's `rw` without the number after the colon (`randread` of `rw=randread:8`).
fn kind_of(section: &Section) -> Option<&str> {
    section.get("rw")?.split(':').next()
}

/// Takes the overridden keys out of a section and notes each once. A `filesize` stays as `size` if that is not given.
fn override_keys(section: &mut Section, notes: &mut Vec<String>) {
    let filesize = section.keys.iter().find(|key| key.name == "filesize").cloned();
    for (why, names) in OVERRIDDEN {
        let is_named = |key: &Key| names.split(' ').any(|name| name == key.name);
        for key in section.keys.iter().filter(|key| is_named(key)) {
            let value = key.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
            let note = format!("[{}] {}{value}: {why}", key.section, key.name);
            // The jobs are threads anyway.
            if key.name != "thread" && !notes.contains(&note) {
                notes.push(note);
            }
        }
        section.keys.retain(|key| !is_named(key));
    }
    if let Some(size) = filesize.filter(|_| section.get("size").is_none()) {
        section.keys.push(Key { name: "size".to_owned(), ..size });
    }
}

/// A number from 1 on; 1 if it is not given.
fn count(section: &Section, name: &str) -> Result<u32, String> {
    let Some(text) = section.get(name) else { return Ok(1) };
    let number = text.parse().ok().filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| wrong(section, name, "take a whole number from 1 to 65536"))
}

fn millis(section: &Section, name: &str) -> Result<u64, String> {
    let read = |text: &str| parse_millis(text).map_err(|why| wrong(section, name, &why));
    section.get(name).map_or(Ok(0), read)
}

/// The end of the range that a job may touch, in bytes from the beginning of the data. `None` if the job gives no size, or a percentage.
fn span_bytes(section: &Section, tool: Tool) -> Result<Option<u64>, String> {
    let bytes = |name: &str| {
        let given = section.get(name).filter(|text| !text.ends_with('%'));
        given.map(|text| parse_bytes(text).map_err(|why| wrong(section, name, &why))).transpose()
    };
    let is_moved = ["offset", "offset_increment"].into_iter().find(|name| section.get(name).is_some());
    if let Some(name) = is_moved.filter(|_| tool == Tool::FioRados) {
        return Err(wrong(section, name, "it would move each object; take --client fio-rbd"));
    }
    if let Some(text) = section.get("size").filter(|text| tool == Tool::FioRados && text.ends_with('%')) {
        return Err(wrong(
            section,
            "size",
            &format!("{text} of each object; take bytes, or --client fio-rbd"),
        ));
    }
    let moved =
        bytes("offset_increment")?.unwrap_or(0).saturating_mul(u64::from(count(section, "numjobs")?) - 1);
    let offset = bytes("offset")?.unwrap_or(0).saturating_add(moved);
    // A typing error must not overflow later sums.
    let fits = |size: &u64| size.saturating_add(offset) < 1 << 60;
    match bytes("size")? {
        Some(size) if !fits(&size) => Err(wrong(section, "size", "is too large")),
        size => Ok(size.map(|size| size + offset)),
    }
}

/// Operations per second of one job of a section, both directions together; `None` if it has no rate, or one that fio counts in
/// its shortest length.
fn rate_iops(section: &Section) -> Option<f64> {
    if section.get("bssplit").or(section.get("bsrange")).is_some() {
        return None;
    }
    let rates: Vec<f64> = section.get("rate_iops")?.split(',').filter_map(|rate| rate.parse().ok()).collect();
    let is_mixed = kind_of(section).is_some_and(|kind| kind.ends_with("rw") || kind == "readwrite");
    match (rates.as_slice(), is_mixed, kind_of(section)?.ends_with("read")) {
        ([both], true, _) => Some(both * 2.0),
        ([one], false, _) | ([one, _], false, true) | ([_, one], false, false) => Some(*one),
        ([read, write], true, _) => Some(read + write),
        _ => None,
    }
}

/// Ramp and length of the window, if all jobs run side by side for the same time.
fn window_ms(sections: &[Section]) -> Result<Option<(u64, u64)>, String> {
    let mut all = Vec::new();
    for (section, at) in sections.iter().zip(0..) {
        let is_later = at > 0 && section.is_set("stonewall");
        let is_bounded =
            ["startdelay", "wait_for", "number_ios", "io_size"].iter().any(|key| section.get(key).is_some());
        let times = (millis(section, "ramp_time")?, millis(section, "runtime")?);
        if is_later || is_bounded || !section.is_set("time_based") || times.1 == 0 {
            return Ok(None);
        }
        all.push(times);
    }
    Ok(all.first().copied().filter(|first| all.iter().all(|times| times == first)))
}

#[cfg(test)]
mod tests;
