//! `carmine top`: the work of a running testbed, second by second.

mod draw;
mod model;
mod source;
#[cfg(test)]
mod testing;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use carmine_testbed::{DirArgs, Layout, note, print, refuse, require_plan};
use carmine_types::counted;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use model::View;
use source::Source;

/// Time between two pictures.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two checks for signals in between.
const POLL: Duration = Duration::from_millis(100);

/// Options of `top`.
#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Print one second's figures as text, and end
    #[arg(long)]
    once: bool,
    /// Print a line of JSON each second (with --once: one)
    #[arg(long)]
    json: bool,
}

/// Shows a running testbed until the user quits (exit code 0) or the testbed goes away (1).
///
/// # Errors
/// There is no running testbed, or no terminal.
pub fn run(args: &TopArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let dir = layout.dir().display().to_string();
    let (osds, reactors) = (counted(plan.osds() as usize, "OSD"), counted(plan.cpu.reactors, "reactor"));
    let title = format!("{dir}: {osds} x {reactors}, {}", plan.store);
    let source = Source { layout, plan };
    ensure!(source.is_alive(), "the testbed in {dir} is not running; start it with `carmine up --dir {dir}`");
    let is_plain = args.json || args.once;
    let can_draw = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    refuse!(!is_plain && !can_draw, "top needs a terminal: take --once or --json");
    let terminal = (!is_plain).then(ratatui::try_init).transpose();
    let mut terminal = terminal.context("cannot use this terminal; take --once or --json")?;
    let has_quit = watch(&source, &title, args, cancel, terminal.as_mut());
    if terminal.is_some() {
        // This also happens on errors; after a panic ratatui's hook does it.
        ratatui::restore();
    }
    if has_quit? {
        return Ok(ExitCode::SUCCESS);
    }
    note(&format!("the testbed in {dir} has stopped"));
    Ok(ExitCode::FAILURE)
}

/// Shows the figures of each second, on the terminal if there is one; true if the user has quit, false if the testbed is gone.
fn watch(
    source: &Source,
    title: &str,
    args: &TopArgs,
    cancel: &AtomicBool,
    mut terminal: Option<&mut DefaultTerminal>,
) -> Result<bool> {
    let is_plain = terminal.is_none();
    let mut show = |view: &View| -> Result<()> {
        match &mut terminal {
            Some(terminal) => terminal.draw(|frame| draw::draw(frame, title, view)).map(drop)?,
            None if args.json => print(&format!("{}\n", serde_json::to_string(view)?))?,
            None => print(&draw::plain(title, view))?,
        }
        Ok(())
    };
    if !is_plain {
        show(&View::default())?;
    }
    let mut before = source.sample();
    loop {
        let next = Instant::now() + PERIOD;
        while Instant::now() < next {
            let left = POLL.min(next.saturating_duration_since(Instant::now()));
            if is_plain {
                std::thread::sleep(left);
            } else if event::poll(left)? && quits(&event::read()?) {
                return Ok(true);
            }
            if cancel.load(Ordering::Relaxed) {
                return Ok(true);
            }
        }
        if !source.is_alive() {
            return Ok(false);
        }
        let now = source.sample();
        show(&View::between(&source.plan.grid, &before, &now))?;
        if args.once {
            return Ok(true);
        }
        before = now;
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
