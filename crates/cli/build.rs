//! Notes for `carmine version --verbose` what only the build knows.

use std::process::Command;

fn main() {
    let env = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".into());
    let rustc = Command::new(env("RUSTC")).arg("--version").output();
    let rustc = rustc.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    println!("cargo::rustc-env=CARMINE_RUSTC={}", rustc.unwrap_or_else(|_| "unknown".into()));
    for name in ["PROFILE", "OPT_LEVEL", "TARGET", "DEBUG"] {
        println!("cargo::rustc-env=CARMINE_{name}={}", env(name));
    }
    // Set by cargo as flags separated by 0x1f.
    let flags = env("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    println!("cargo::rustc-env=CARMINE_RUSTFLAGS={flags}");
    println!("cargo::rerun-if-changed=build.rs");
}
