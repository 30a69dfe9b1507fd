//! Logs of the daemons: plain lines on standard error, which the testbed puts into a file.

use tracing_subscriber::EnvFilter;

/// Starts logging. `CARMINE_LOG` sets the level (`debug`, `carmine_mon=debug`, …); information is the default.
pub fn start() {
    let filter = EnvFilter::try_from_env("CARMINE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr);
    let _ = subscriber.try_init();
    // A panic ends the process; its place goes to the same log.
    std::panic::set_hook(Box::new(|info| tracing::error!("panic: {info}")));
}
