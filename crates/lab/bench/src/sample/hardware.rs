//! Clock rate, temperatures and power, where the machine tells them; virtual machines mostly do not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::proc::text;

/// The counter of energy among the sensors, of which only the growth means something.
pub(super) const JOULES: &str = "joules";

/// The files of this machine's sensors; found once.
#[derive(Debug, Default)]
pub(super) struct Hardware {
    /// Files of kHz, one for each CPU of the OSDs.
    clocks: Vec<PathBuf>,
    /// Files of millidegrees of processors.
    temperatures: Vec<PathBuf>,
    /// The same of NVMe drives, by controller.
    nvme: Vec<(String, PathBuf)>,
    /// Files of microjoules, one for each processor package.
    energy: Vec<PathBuf>,
    cpuinfo: PathBuf,
    cpus: Vec<usize>,
}

fn entries(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The numbers in these files, in units of `unit`; those that cannot be read are left out.
fn numbers(paths: &[PathBuf], unit: f64) -> impl Iterator<Item = f64> {
    paths.iter().filter_map(move |path| Some(text(path).trim().parse::<f64>().ok()? / unit))
}

impl Hardware {
    /// `cpus`: those of the OSDs, whose clock rate matters.
    pub(super) fn find(proc: &Path, sys: &Path, cpus: &[usize]) -> Hardware {
        let clock = |cpu: &usize| sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"));
        let name = |folder: &Path| text(&folder.join("name")).trim().to_owned();
        let mut found = Hardware {
            clocks: cpus.iter().map(clock).filter(|path| path.exists()).collect(),
            cpuinfo: proc.join("cpuinfo"),
            cpus: cpus.to_vec(),
            ..Hardware::default()
        };
        let processors = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];
        let sensors = entries(sys.join("class/hwmon")).into_iter();
        let sensors = sensors.filter(|folder| processors.contains(&name(folder).as_str()));
        found.temperatures =
            sensors.map(|folder| folder.join("temp1_input")).filter(|path| path.exists()).collect();
        for folder in entries(sys.join("class/nvme")) {
            // hwmonN of the controller: the composite temperature of its SMART log.
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let below = entries(folder.clone()).into_iter().chain(entries(folder.join("hwmon")));
            let input = below.map(|path| path.join("temp1_input")).find(|path| path.exists());
            found.nvme.extend(input.map(|path| (name, path)));
        }
        let packages = entries(sys.join("class/powercap")).into_iter();
        found.energy = packages
            .filter(|folder| name(folder).starts_with("package"))
            .map(|folder| folder.join("energy_uj"))
            .collect();
        found
    }

    /// The sensors' values now: `mhz` (mean of the OSDs' CPUs), `temperature_c` (hottest processor), `nvme_NAME_temperature_c`,
    /// and [`JOULES`] of all packages since some moment.
    pub(super) fn read(&self) -> BTreeMap<String, f64> {
        let (mhz, energy) = (self.mhz(), numbers(&self.energy, 1e6).reduce(|sum, joules| sum + joules));
        let mean = (!mhz.is_empty()).then(|| mhz.iter().sum::<f64>() / mhz.len() as f64);
        let hottest = numbers(&self.temperatures, 1e3).reduce(f64::max);
        let fixed = [("mhz", mean), ("temperature_c", hottest), (JOULES, energy)];
        let fixed = fixed.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let drives = self.nvme.iter().filter_map(|(name, path)| {
            let celsius = numbers(std::slice::from_ref(path), 1e3).next()?;
            Some((format!("nvme_{name}_temperature_c"), celsius))
        });
        fixed.chain(drives).collect()
    }

    fn mhz(&self) -> Vec<f64> {
        if !self.clocks.is_empty() {
            return numbers(&self.clocks, 1e3).collect();
        }
        let text = text(&self.cpuinfo);
        let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
        let all: Vec<f64> = lines.filter_map(|line| line.rsplit(':').next()?.trim().parse().ok()).collect();
        self.cpus.iter().filter_map(|cpu| all.get(*cpu).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_leaves_out_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        assert!(Hardware::find(&proc, &sys, &[0, 1]).read().is_empty());
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/cpuinfo", "cpu MHz\t\t: 2000.5\nflags : x\ncpu MHz\t\t: 3000.5\n");
        put("sys/class/hwmon/hwmon0/name", "coretemp\n");
        put("sys/class/hwmon/hwmon0/temp1_input", "51000\n");
        put("sys/class/nvme/nvme0/hwmon1/temp1_input", "38850\n");
        put("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        put("sys/class/powercap/intel-rapl:0/energy_uj", "2500000\n");
        let found = Hardware::find(&proc, &sys, &[1]);
        let values = found.read();
        assert_eq!(values["mhz"], 3000.5);
        assert_eq!((values["temperature_c"], values["nvme_nvme0_temperature_c"]), (51.0, 38.85));
        assert_eq!(values[JOULES], 2.5);
        put("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000\n");
        assert_eq!(Hardware::find(&proc, &sys, &[1]).read()["mhz"], 3600.0);
    }
}
