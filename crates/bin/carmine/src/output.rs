//! Text for people. Writing to a closed pipe (`carmine plan | head`) is no error and no panic.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use carmine_testbed::TestbedError;

/// Prints to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// An error with its causes on one line. A cause whose text its effect already has is left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints an error.
pub(crate) fn error(error: &anyhow::Error) {
    note(&format!("error: {}", chain(error)));
}

/// Logs how a daemon ended; its exit code.
pub(crate) fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(e) => {
            tracing::error!("{}", chain(&e));
            ExitCode::FAILURE
        }
    }
}

/// A wish that cannot be met as it was put.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// 2 for wrong wishes, 1 for everything else.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let usage = error
        .chain()
        .any(|e| e.is::<Usage>() || e.downcast_ref::<TestbedError>().is_some_and(TestbedError::is_usage));
    if usage { 2 } else { 1 }
}

/// True if the reader of our output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|e| e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}
