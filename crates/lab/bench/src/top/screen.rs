//! The terminal: taken over, and given back whatever happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::model::View;
use super::source::Source;

/// Time between two pictures.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// How often signals are looked for while nothing is typed.
const POLL: Duration = Duration::from_millis(100);

/// Why the screen ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The user, or a signal.
    Asked,
    /// The testbed's processes are gone.
    TestbedGone,
}

/// Gives the terminal back when it goes, on errors too; a panic does it by ratatui's hook.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the testbed until the user quits or it is gone.
pub(super) fn run(source: &Source, title: &str, cancel: &AtomicBool) -> anyhow::Result<End> {
    let mut before = source.sample();
    let restore = Restore;
    let mut terminal = ratatui::try_init().context("cannot use this terminal; take --once or --json")?;
    terminal.draw(|frame| draw(frame, title, &View::default())).context("cannot draw")?;
    let end = loop {
        let next = Instant::now() + PERIOD;
        if wait(next, cancel)? {
            break End::Asked;
        }
        if !source.is_alive() {
            break End::TestbedGone;
        }
        let now = source.sample();
        let view = View::between(&source.plan().grid, &before, &now);
        terminal.draw(|frame| draw(frame, title, &view)).context("cannot draw")?;
        before = now;
    };
    drop(restore);
    Ok(end)
}

/// Waits until `until`; true if the user wants to quit.
fn wait(until: Instant, cancel: &AtomicBool) -> anyhow::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if cancel.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
        if event::poll(left.min(POLL)).context("cannot read the terminal")? && quits(&event::read()?) {
            return Ok(true);
        }
    }
}

/// `q`, Escape or Ctrl-C, which a raw terminal does not turn into a signal.
fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || ctrl_c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn keys_that_quit() {
        let key = |code, modifiers| quits(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !quits(&Event::Resize(80, 24)));
    }
}
