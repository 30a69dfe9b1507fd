//! Parses fio's job files: sections of `key=value` lines. Keys in a `[global]` section apply to all sections after it.

/// Other names of keys that fio takes, and the names under which a section has them.
const ALIASES: [(&str, &str); 5] = [
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("timeout", "runtime"),
    ("io_limit", "io_size"),
    ("wait_for_previous", "stonewall"),
];

/// One key of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: String,
    /// `None`: the key stands alone, which means 1.
    pub(super) value: Option<String>,
    /// The section that it was written in: `global` or the job's own.
    pub(super) section: String,
}

/// A job's section with all keys that hold for it, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) keys: Vec<Key>,
}

impl Section {
    /// The value of a key; `1` for a key that stands alone, `None` for one that is not there.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let key = self.keys.iter().find(|key| key.name == name)?;
        Some(key.value.as_deref().unwrap_or("1"))
    }

    /// True for a flag that is there and is not 0.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0")
    }

    /// A key that is written later holds.
    fn set(&mut self, key: Key) {
        self.keys.retain(|known| known.name != key.name);
        self.keys.push(key);
    }
}

/// The jobs of a file. `env` has the values of `${NAME}`.
///
/// # Errors
/// A line that cannot be understood, with its number.
pub(super) fn sections(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Section>, String> {
    let mut global = Section { name: "global".to_owned(), ..Section::default() };
    let mut jobs: Vec<Section> = Vec::new();
    let mut is_global = None;
    for (line, at) in text.lines().zip(1..) {
        let wrong = |why: &str| format!("line {at}, `{}`: {why}", line.trim());
        // fio takes both signs for the beginning of a comment, wherever they stand.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split(']').next().filter(|name| *name != rest && !name.is_empty());
            let name = name.ok_or_else(|| wrong("a section is [NAME]"))?;
            is_global = Some(name == "global");
            if name != "global" {
                jobs.push(Section { name: name.to_owned(), ..global.clone() });
            }
            continue;
        }
        if line.starts_with("include ") {
            return Err(wrong("write the lines of that file here instead"));
        }
        let section = match is_global {
            Some(true) => Some(&mut global),
            _ => jobs.last_mut(),
        };
        let section = section.ok_or_else(|| wrong("it stands before the first section"))?;
        let key = key(line, &section.name, env).map_err(|why| wrong(&why))?;
        section.set(key);
    }
    if jobs.is_empty() { Err("it has no job: a section that is not [global]".to_owned()) } else { Ok(jobs) }
}

fn key(line: &str, section: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Key, String> {
    let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value)));
    let name = name.trim();
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    let value = value.map(|value| expanded(value.trim(), env)).transpose()?;
    Ok(Key { name: name.to_owned(), value, section: section.to_owned() })
}

/// A value with `${NAME}` replaced.
fn expanded(value: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut parts = value.split("${");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').ok_or("${ without }")?;
        text += &env(name).ok_or_else(|| format!("the environment has no {name}"))?;
        text += rest;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Vec<Section>, String> {
        sections(text, &|name| (name == "SIZE").then(|| "64m".to_owned()))
    }

    #[test]
    fn globals_hold_for_what_follows() {
        let text = "; comment\n[global]\nblocksize=4k  # four\nsize=${SIZE}\n\n[a b]\nreadwrite = randread\n[global]\n\
                    iodepth=4\n[c]\nbs=8k\nwait_for_previous\n[a b]\n";
        let jobs = parse(text).unwrap();
        let of = |job: usize| ["bs", "size", "rw", "iodepth", "stonewall"].map(|key| jobs[job].get(key));
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a b", "c", "a b"]);
        assert_eq!(of(0), [Some("4k"), Some("64m"), Some("randread"), None, None]);
        assert_eq!(of(1), [Some("8k"), Some("64m"), None, Some("4"), Some("1")]);
        assert_eq!(of(2), [Some("4k"), Some("64m"), None, Some("4"), None]);
        assert_eq!(jobs[1].keys.iter().find(|key| key.name == "size").unwrap().section, "global");
        assert!(jobs[1].is_set("stonewall") && !jobs[0].is_set("stonewall"));
        assert!(!parse("[a]\nstonewall=0").unwrap()[0].is_set("stonewall"));
    }

    #[test]
    fn lines_that_are_not_understood_are_named() {
        for (text, part) in [
            ("", "no job"),
            ("[global]\nbs=4k", "no job"),
            ("bs=4k\n[a]", "line 1, `bs=4k`"),
            ("[a]\n[b", "line 2, `[b`"),
            ("[]", "[NAME]"),
            ("[a]\ninclude other.fio", "line 2"),
            ("[a]\nsize=${NONE}", "NONE"),
            ("[a]\nsize=${NONE", "without }"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([\\[\\]#;=${}a-z \n]{0,12}){0,6}") {
            let _ = parse(&text);
        }
    }
}
