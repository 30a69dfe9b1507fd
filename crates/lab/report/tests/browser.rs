//! The page in a real browser: skipped, with the reason, where Debian's `chromium` is not installed.
#![allow(clippy::disallowed_methods, reason = "tests run programs and read files")]

mod archive;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use archive::Study;
use carmine_report::write_report;
use carmine_tests::{installed, run, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// A browser on a busy machine of two cores.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs on the page after its own script, and leaves what it found where the test reads it.
const PROBE: &str = r##"<script>
addEventListener("load", () => {
  const root = document.documentElement;
  const plots = [...document.querySelectorAll("figure.chart")].map((figure) => {
    const box = figure.querySelector("svg.plot").getBoundingClientRect();
    const text = figure.querySelector("svg text").getBoundingClientRect();
    return { id: figure.id, width: box.width, height: box.height, text: text.height };
  });
  const colours = () => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector(".plot text")).fill];
  const found = { width: innerWidth, over: root.scrollWidth - innerWidth, colours: colours(), plots };
  const head = [...document.querySelectorAll("#points th")].find((th) => th.textContent === "IOPS");
  const iops = () => [...document.querySelectorAll("#points tbody tr")].map((row) => row.cells[head.cellIndex].dataset.v).filter((v) => v !== undefined).map(Number);
  head.querySelector("button").click();
  found.rising = iops();
  head.querySelector("button").click();
  found.falling = iops();
  const plot = document.querySelector("svg.plot[tabindex]");
  const key = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const told = () => document.activeElement.getAttribute("aria-label");
  const tip = () => getComputedStyle(document.activeElement.querySelector(".tip")).visibility;
  const first = plot.querySelector(".hit");
  found.hidden = getComputedStyle(first.querySelector(".tip")).visibility;
  key("ArrowRight");
  found.walked = [told(), tip()];
  key("ArrowLeft");
  found.walked.push(told());
  const hits = [...plot.querySelectorAll(".hit")].map((hit) => hit.getAttribute("aria-label"));
  found.ends = [hits[0], hits[hits.length - 1]];
  const toggle = document.getElementById("theme");
  toggle.click();
  found.toggled = colours();
  toggle.click();
  root.dataset.probe = JSON.stringify(found);
  parent.postMessage(root.dataset.probe, "*");
});
</script>"##;

/// A page that shows another at the width of a phone: a window itself is never that narrow.
const PHONE: &str = r#"<!doctype html><title>phone</title><body style="margin:0">
<script>addEventListener("message", (event) => { document.documentElement.dataset.probe = event.data; })</script>
<iframe src="probe.html" style="border:0;width:390px;height:2400px"></iframe>"#;

/// Looks at the page from outside, where no script of its own may run.
const OUTSIDE: &str = r##"<script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  const shown = (element) => element !== null && element.getBoundingClientRect().height > 0;
  const plots = [...page.querySelectorAll("figure.chart")].map((figure) => {
    const box = figure.querySelector("svg.plot").getBoundingClientRect();
    const text = figure.querySelector("svg text").getBoundingClientRect();
    return { id: figure.id, width: box.width, height: box.height, text: text.height };
  });
  const details = page.querySelector("figure.chart details");
  details.open = true;
  document.documentElement.dataset.probe = JSON.stringify({
    plots,
    over: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    headline: shown(page.querySelector(".headline li")),
    rows: page.querySelectorAll("#points tbody tr").length,
    table: shown(details.querySelector("td")),
    button: shown(page.getElementById("theme")),
    sorters: page.querySelectorAll("th button").length,
  });
});
</script>"##;

/// A profile of its own each time: the page remembers the choice of the theme.
fn chromium(dir: &Path, options: &[&str], page: &str) -> (String, String) {
    let profile = tempfile::tempdir_in(dir).expect("a folder");
    let (profile, url) = (
        format!("--user-data-dir={}", profile.path().display()),
        format!("file://{}", dir.join(page).display()),
    );
    let mut all =
        vec!["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"];
    all.extend(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", &profile]);
    all.extend(options);
    all.push(&url);
    let output = run(Path::new("chromium"), &all, LIMIT);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (succeed(output, "chromium"), said)
}

/// The findings of the probe; the page must have no complaint on the console.
fn probe(dir: &Path, options: &[&str], page: &str) -> Value {
    let options: Vec<&str> = options.iter().copied().chain(["--dump-dom"]).collect();
    let (dom, said) = chromium(dir, &options, page);
    let complaints: Vec<&str> = said.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "the console says {complaints:?}");
    probed(&dom)
}

fn probed(dom: &str) -> Value {
    let from = dom.find("data-probe=\"").expect("the probe ran") + "data-probe=\"".len();
    let text = dom[from..].split('"').next().unwrap_or_default().replace("&quot;", "\"");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Where screenshots are kept for people to look at: never in the repository.
fn screenshots() -> PathBuf {
    let cache = std::env::var_os("CARMINE_CACHE").map(PathBuf::from);
    let home =
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache/carmine");
    cache.unwrap_or_else(home).join("screenshots")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// A report with a chart of every kind.
struct Page {
    dir: TempDir,
    html: String,
    charts: usize,
}

impl Page {
    /// `None` where there is no browser to look at it.
    fn new() -> Option<Page> {
        if !installed("chromium", "chromium") {
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let run_dir = dir.path().join("run");
        Study { repeats: 5, arms: &["osd", "socket"], ..Study::SCALING }.write(&run_dir);
        let written = write_report(&[run_dir], None, &mut |_, _| ()).expect("a report");
        let html = fs::read_to_string(&written.html).expect("the page");
        Some(Page { dir, html, charts: written.charts })
    }

    /// Writes a file beside the report, for the browser to open.
    fn put(&self, name: &str, content: &str) {
        fs::write(self.dir.path().join(name), content).expect("a file");
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(page) = Page::new() else { return };
    let dir = page.dir.path();
    page.put("probe.html", &format!("{}{PROBE}", page.html));
    page.put("phone.html", PHONE);
    let light = probe(dir, &["--window-size=1400,1000"], "probe.html");
    check_charts(&light, page.charts, 400.0, 9.0);
    check_controls(&light);
    let dark =
        probe(dir, &["--window-size=1400,1000", "--blink-settings=preferredColorScheme=0"], "probe.html");
    assert_ne!(light["colours"], dark["colours"], "the preference for dark changes page and charts");
    assert_eq!(light["toggled"], dark["colours"], "the button gives the theme that the preference gives");
    assert_eq!(dark["toggled"], light["colours"]);
    let phone = probe(dir, &["--window-size=800,1000"], "phone.html");
    assert_eq!(phone["width"], 390);
    check_charts(&phone, page.charts, 300.0, 9.0);
    shoot(dir);
}

/// The page is whole without its script: charts, tables that unfold, no button that would do nothing.
#[test]
fn the_page_is_readable_without_scripts() {
    let Some(page) = Page::new() else { return };
    // May be looked at from outside, and may run nothing.
    let frame = format!(
        "<!doctype html><body style=\"margin:0\"><iframe sandbox=\"allow-same-origin\" style=\"border:0;width:1200px;\
         height:900px\" srcdoc=\"{}\"></iframe>{OUTSIDE}",
        page.html.replace('&', "&amp;").replace('"', "&quot;")
    );
    page.put("outside.html", &frame);
    let options = ["--window-size=1400,1000", "--dump-dom"];
    let (dom, _) = chromium(page.dir.path(), &options, "outside.html");
    let found = probed(&dom);
    check_charts(&found, page.charts, 400.0, 9.0);
    for (what, want) in [("headline", true), ("table", true), ("button", false)] {
        assert_eq!(found[what], want, "{what}: {found}");
    }
    assert_eq!(found["sorters"], 0, "a script ran: {found}");
    assert!(found["rows"].as_u64().is_some_and(|n| n > 40), "{found}");
}

/// Every chart is there, as wide as its place allows, with text of a legible height, and the page does not scroll sideways.
fn check_charts(found: &Value, charts: usize, width: f64, text: f64) {
    let plots = found["plots"].as_array().expect("a list");
    assert_eq!(plots.len(), charts);
    for plot in plots {
        let number = |name: &str| plot[name].as_f64().expect("a number");
        assert!(number("width") >= width && number("height") >= 60.0 && number("text") >= text, "{plot}");
    }
    for id in [
        "scaling-randread4k",
        "curve-randread4k",
        "cpu-randread4k",
        "stages-randread4k",
        "compare-iops-randread4k",
    ] {
        assert!(plots.iter().any(|p| p["id"] == id), "no chart {id}");
    }
    assert!(
        found["over"].as_f64().expect("a number") <= 0.0,
        "the page scrolls sideways by {}",
        found["over"]
    );
}

fn check_controls(found: &Value) {
    let (rising, falling) = (numbers(&found["rising"]), numbers(&found["falling"]));
    assert!(rising.len() > 40 && rising.is_sorted(), "{rising:?}");
    assert_eq!(
        (&found["hidden"], &found["walked"][1]),
        (&"hidden".into(), &"visible".into()),
        "figures of a mark"
    );
    let walked = [&found["walked"][0], &found["walked"][2]];
    assert_eq!(
        walked,
        [&found["ends"][0], &found["ends"][1]],
        "arrow keys walk to the first, and round to the last"
    );
    assert!(falling.iter().rev().is_sorted() && falling.len() == rising.len(), "{falling:?}");
}

fn shoot(dir: &Path) {
    let folder = screenshots();
    if let Err(error) = fs::create_dir_all(&folder) {
        eprintln!("no screenshots: {}: {error}", folder.display());
        return;
    }
    let shots: [(&str, &[&str], &str); 3] = [
        ("report-light.png", &["--window-size=1400,3000"], "probe.html"),
        (
            "report-dark.png",
            &["--window-size=1400,3000", "--blink-settings=preferredColorScheme=0"],
            "probe.html",
        ),
        ("report-phone.png", &["--window-size=500,2400"], "phone.html"),
    ];
    for (name, options, page) in shots {
        let path = folder.join(name);
        let _ = fs::remove_file(&path);
        let shot = format!("--screenshot={}", path.display());
        let options: Vec<&str> = options.iter().copied().chain([shot.as_str()]).collect();
        chromium(dir, &options, page);
        let bytes = fs::metadata(&path).map(|m| m.len()).unwrap_or(0);
        assert!(bytes > 20_000, "{} has {bytes} bytes", path.display());
    }
    eprintln!("screenshots of the report: {}", folder.display());
}
