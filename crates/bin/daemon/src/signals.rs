//! SIGINT, SIGTERM and (the terminal went away) SIGHUP.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

/// A flag that Ctrl-C, SIGTERM or SIGHUP sets. A second signal ends the process at once: then daemons may be left over.
///
/// # Errors
/// The kernel refuses the handlers.
pub fn cancel_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot catch signals")?;
    }
    Ok(flag)
}

/// A flag that each SIGUSR1 sets: its reader takes it back.
///
/// # Errors
/// The signal can't be caught.
pub fn usr1_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&flag)).context("cannot catch SIGUSR1")?;
    Ok(flag)
}

/// A write behind the limit of a file's size is an error for its writer from now on, and does not end the process.
///
/// # Errors
/// The signal can't be caught.
pub fn survive_file_limit() -> anyhow::Result<()> {
    let nobody_looks = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, nobody_looks).context("cannot catch SIGXFSZ")?;
    Ok(())
}

/// Calls `stop` at the first SIGINT or SIGTERM; a second one ends the process at once.
///
/// # Errors
/// The kernel refuses the handlers, or a thread for them.
pub fn on_stop(stop: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut stop = Some(stop);
            for signal in signals.forever() {
                match stop.take() {
                    Some(stop) => {
                        tracing::info!("signal {signal}: stopping");
                        stop();
                    }
                    None => std::process::exit(1),
                }
            }
        })
        .context("cannot start the signal thread")?;
    Ok(())
}
