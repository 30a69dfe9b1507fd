//! Clock rate, temperatures and power, where the machine shows them; most virtual machines do not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::proc::text;

/// The counter of energy among the sensors, of which only the growth means something.
pub(super) const JOULES: &str = "joules";
/// The clock rate of the OSDs' CPUs.
const MHZ: &str = "mhz";
/// Drivers of processors' temperatures.
const PROCESSORS: [&str; 4] = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];

/// Files whose numbers make one value: its name, the unit of the numbers, and how the value is made from them.
type Sensor = (String, Vec<PathBuf>, f64, fn(&[f64]) -> f64);

/// This machine's sensors; found once.
#[derive(Debug)]
pub(super) struct Hardware {
    sensors: Vec<Sensor>,
    cpuinfo: PathBuf,
    cpus: Vec<usize>,
}

fn entries(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

impl Hardware {
    /// `cpus`: those of the OSDs, whose clock rate matters.
    pub(super) fn find(proc: &Path, sys: &Path, cpus: &[usize]) -> Hardware {
        let class = |name: &str, is: fn(&str) -> bool, file: &str| -> Vec<PathBuf> {
            let folders = entries(sys.join("class").join(name)).into_iter();
            folders.filter(|dir| is(text(&dir.join("name")).trim())).map(|dir| dir.join(file)).collect()
        };
        let clock = |cpu: &usize| sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"));
        let temperatures = class("hwmon", |name| PROCESSORS.contains(&name), "temp1_input");
        let energy = class("powercap", |name| name.starts_with("package"), "energy_uj");
        let mut sensors: Vec<Sensor> = vec![
            (MHZ.to_owned(), cpus.iter().map(clock).collect(), 1e3, mean),
            ("temperature_c".to_owned(), temperatures, 1e3, largest),
            (JOULES.to_owned(), energy, 1e6, |joules| joules.iter().sum()),
        ];
        for folder in entries(sys.join("class/nvme")) {
            // hwmonN of the controller: the composite temperature of its SMART log.
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let below = entries(folder.clone()).into_iter().chain(entries(folder.join("hwmon")));
            let input = below.map(|path| path.join("temp1_input")).find(|path| path.exists());
            sensors.push((format!("nvme_{name}_temperature_c"), input.into_iter().collect(), 1e3, largest));
        }
        Hardware { sensors, cpuinfo: proc.join("cpuinfo"), cpus: cpus.to_vec() }
    }

    /// The sensors' values now: `mhz` (mean of the OSDs' CPUs), `temperature_c` (hottest processor), `nvme_NAME_temperature_c`,
    /// and [`JOULES`] of all packages since some moment. Sensors that cannot be read are left out.
    pub(super) fn read(&self) -> BTreeMap<String, f64> {
        let number = |path: &PathBuf| text(path).trim().parse::<f64>().ok();
        let value = |(name, files, unit, of): &Sensor| {
            let numbers: Vec<f64> = files.iter().filter_map(number).map(|n| n / unit).collect();
            (!numbers.is_empty()).then(|| (name.clone(), of(&numbers)))
        };
        let mut values: BTreeMap<String, f64> = self.sensors.iter().filter_map(value).collect();
        let told: Vec<f64> = if values.contains_key(MHZ) { Vec::new() } else { self.cpuinfo_mhz() };
        if !told.is_empty() {
            values.insert(MHZ.to_owned(), mean(&told));
        }
        values
    }

    /// Clock rates where the machine has no files of them.
    fn cpuinfo_mhz(&self) -> Vec<f64> {
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
