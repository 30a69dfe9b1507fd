//! `carmine top`: the work of a running testbed, second by second.

mod draw;
mod model;
mod source;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use carmine_testbed::{Layout, require_plan};
use carmine_types::counted;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;
use model::View;
use source::Source;

/// Time between two pictures.
const PERIOD: Duration = Duration::from_secs(1);
/// How often signals are looked for meanwhile.
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
pub fn run(args: &TopArgs, cancel: &AtomicBool) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let dir = layout.dir().display().to_string();
    let title = format!(
        "{dir}: {} x {}, {}",
        counted(plan.osds() as usize, "OSD"),
        counted(plan.cpu.reactors, "reactor"),
        plan.store
    );
    let source = Source { layout, plan };
    if !source.is_alive() {
        bail!("the testbed in {dir} does not run; start it with `carmine up --dir {dir}`");
    }
    let has_quit = if args.json || args.once {
        let mut show = |view: &View| -> anyhow::Result<()> {
            let line = if args.json { json_line(view)? } else { draw::plain(&title, view) };
            Ok(print(&line)?)
        };
        let mut wait = |left| -> anyhow::Result<bool> {
            std::thread::sleep(left);
            Ok(false)
        };
        watch(&source, cancel, args.once, &mut wait, &mut show)?
    } else if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        screen(&source, &title, cancel)?
    } else {
        bail!(Usage("top needs a terminal: take --once or --json".into()));
    };
    if has_quit {
        return Ok(ExitCode::SUCCESS);
    }
    note(&format!("the testbed in {dir} has stopped"));
    Ok(ExitCode::FAILURE)
}

fn json_line(view: &View) -> anyhow::Result<String> {
    Ok(serde_json::to_string(view).context("cannot print the figures")? + "\n")
}

/// Shows the figures of each second; true if the user has quit (`wait` tells), false if the testbed is gone.
fn watch(
    source: &Source,
    cancel: &AtomicBool,
    once: bool,
    wait: &mut dyn FnMut(Duration) -> anyhow::Result<bool>,
    show: &mut dyn FnMut(&View) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut before = source.sample();
    loop {
        let next = Instant::now() + PERIOD;
        while Instant::now() < next {
            if cancel.load(Ordering::Relaxed) || wait(POLL.min(next - Instant::now()))? {
                return Ok(true);
            }
        }
        if !source.is_alive() {
            return Ok(false);
        }
        let now = source.sample();
        show(&View::between(&source.plan.grid, &before, &now))?;
        if once {
            return Ok(true);
        }
        before = now;
    }
}

/// Gives the terminal back when it goes, on errors too; a panic does it by ratatui's hook.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the testbed on the terminal, which is given back whatever happens.
fn screen(source: &Source, title: &str, cancel: &AtomicBool) -> anyhow::Result<bool> {
    let _restore = Restore;
    let mut terminal = ratatui::try_init().context("cannot use this terminal; take --once or --json")?;
    let mut show = |view: &View| -> anyhow::Result<()> {
        terminal.draw(|frame| draw::draw(frame, title, view)).map(drop).context("cannot draw")
    };
    show(&View::default())?;
    let mut wait = |left| -> anyhow::Result<bool> {
        Ok(event::poll(left).context("cannot read the terminal")? && quits(&event::read()?))
    };
    watch(source, cancel, false, &mut wait, &mut show)
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
