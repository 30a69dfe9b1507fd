//! The view on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::model::{CpuView, FIGURES, OsdView, View};

/// Characters of a CPU's bar.
const BAR: usize = 20;
/// Characters of a CPU's cell, with the space after it.
const CELL: u16 = 64;
/// Lines of the head, and of a table's frame with its header.
const HEAD: u16 = 1;
const FRAME: u16 = 3;

/// Names of the numbers of a CPU.
const NUMBERS: [&str; 4] = ["busy", "spin", "wait", "other"];

/// The keys, shown after the title on a terminal.
const KEYS: &str = "   q quits";

/// Draws everything for a terminal; what does not fit is cut off at the bottom.
pub(super) fn draw(frame: &mut Frame<'_>, title: &str, view: &View) {
    draw_under(frame, Line::from(vec![title.bold(), KEYS.dim()]), view);
}

fn draw_under(frame: &mut Frame<'_>, title: Line<'_>, view: &View) {
    let osds = view.osds.len() as u16 + FRAME;
    let [head, table, grid] =
        Layout::vertical([Constraint::Length(HEAD), Constraint::Length(osds), Constraint::Min(FRAME)])
            .areas(frame.area());
    frame.render_widget(title, head);
    frame.render_widget(osd_table(view), table);
    draw_grid(frame, grid, &view.cpus);
}

fn osd_table(view: &View) -> Table<'_> {
    let titles = std::iter::once("OSD").chain(FIGURES.iter().map(|(_, title, ..)| *title));
    let widths = std::iter::once(6).chain(FIGURES.iter().map(|(_, _, width, ..)| *width));
    Table::new(view.osds.iter().map(osd_row), widths.map(Constraint::Length))
        .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(
            "OSDs: operations, latency, queues (I/Os, txns, writes, waiting), hops, cores that aliens use",
        ))
}

fn osd_row(osd: &OsdView) -> Row<'static> {
    let name = format!("osd.{}", osd.osd);
    if let Some(problem) = &osd.problem {
        return Row::new([name, problem.clone()]).style(Style::new().fg(Color::Red));
    }
    let cells = FIGURES.iter().map(|(key, _, _, digits, unit, _)| match osd.figures.get(key) {
        Some(Some(value)) => format!("{:.digits$}", value / unit),
        _ => "-".to_owned(),
    });
    Row::new(std::iter::once(name).chain(cells))
}

/// CPUs in as many columns as fit.
fn draw_grid(frame: &mut Frame<'_>, area: Rect, cpus: &[CpuView]) {
    let block = Block::bordered()
        .title("CPUs, percent: # busy  ~ spinning  ! waiting for the CPU  + other (kernel's account)");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let columns = usize::from((inner.width / CELL).max(1));
    let per_column = cpus.len().div_ceil(columns).max(1);
    for (column, part) in cpus.chunks(per_column).enumerate() {
        let x = column as u16 * CELL;
        let place = Rect { x: inner.x + x, width: inner.width.saturating_sub(x).min(CELL), ..inner };
        let titles =
            format!(" CPU {:<13}{:BAR$}{}", "reactor", "", NUMBERS.map(|n| format!("{n:>6}")).concat());
        let lines = std::iter::once(Line::from(titles.bold())).chain(part.iter().map(cpu_line));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), place);
    }
}

fn cpu_line(cpu: &CpuView) -> Line<'static> {
    let owner = match cpu.reactors.as_slice() {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    };
    let share = cpu.reactor.unwrap_or_default();
    // Time that the kernel counts beyond the reactors: generators, aliens, interrupts.
    let others = (cpu.kernel_busy_percent - share.busy_percent - share.spin_percent).max(0.0);
    let mut spans = vec![Span::raw(format!("{:>4} {owner:<13}", cpu.cpu))];
    let mut free = BAR;
    for (sign, percent, color) in [
        ('#', share.busy_percent, Color::Green),
        ('~', share.spin_percent, Color::Blue),
        ('!', share.wait_percent, Color::Red),
        ('+', others, Color::DarkGray),
    ] {
        let cells = ((percent / 100.0 * BAR as f64).round() as usize).min(free);
        free -= cells;
        spans.push(Span::styled(sign.to_string().repeat(cells), Style::new().fg(color)));
    }
    spans.push(Span::raw(" ".repeat(free)));
    let numbers = [share.busy_percent, share.spin_percent, share.wait_percent, others];
    spans.push(Span::raw(numbers.map(|n| format!("{n:>6.0}")).concat()));
    Line::from(spans)
}

/// The same as plain text, for `--once`.
pub(super) fn plain(title: &str, view: &View) -> String {
    let width = 132;
    let columns = usize::from((width - 2) / CELL);
    let height = HEAD + 2 * FRAME + (view.osds.len() + view.cpus.len().div_ceil(columns)) as u16;
    let backend = ratatui::backend::TestBackend::new(width, height);
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| draw_under(frame, Line::from(title), view));
    let lines = terminal.backend().buffer().content.chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn rendered(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, "bed", &example())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn shows_osds_and_cpus() {
        let screen = rendered(140, 20);
        let line = |part: &str| {
            screen
                .lines()
                .find(|l| l.contains(part))
                .unwrap_or_else(|| panic!("no {part} in\n{screen}"))
                .to_owned()
        };
        assert!(line("bed").contains("q quits"), "{screen}");
        assert!(line("osd.0 ").contains("3000"), "{screen}");
        assert!(line("osd.1 ").contains("gone"), "{screen}");
        // 80 % of 20 cells, then 15 %.
        assert!(line("osd.0/0").contains(&format!("{}~~~", "#".repeat(16))), "{screen}");
        assert!(line("osd.1/1").contains("+++++"), "others have 25 %: {screen}");
    }

    #[test]
    fn small_terminals_are_no_panic() {
        for (width, height) in [(1, 1), (20, 3), (57, 8), (300, 100)] {
            rendered(width, height);
        }
    }

    #[test]
    fn text_has_every_cpu() {
        let text = plain("bed", &example());
        assert!(text.starts_with("bed\n"), "nobody can press a key: {text}");
        assert_eq!(text.matches("osd.0/").count() + text.matches("osd.1/").count(), 4);
        assert!(text.contains("busy  spin  wait other"), "numbers have names: {text}");
    }
}
