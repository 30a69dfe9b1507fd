//! Writes the seeds of every fuzz target as files: `fuzz_seeds DIR` makes DIR/TARGET/0, DIR/TARGET/1, …
#![allow(clippy::disallowed_methods)] // writes files

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: fuzz_seeds DIR");
        std::process::exit(2);
    };
    for target in carmine_tests::fuzz::TARGETS {
        let folder = dir.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
