//! Reports: an archived run becomes one self-contained page, and the same tables as text.
//!
//! `data` reads archives and puts repeats together; `figures` and `compare` decide which charts the data allow and make
//! them as plain data (`chart`); `report` puts all in the order of reading as parts and blocks; `page` and `markdown` show
//! these. `words` explains verdicts, marks and terms.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reports are made outside the reactors: they read and write files"
)]

mod chart;
mod compare;
mod conditions;
mod data;
mod figures;
mod flames;
mod lists;
mod markdown;
mod page;
mod report;
mod table;
mod units;
mod words;
mod write;

pub use write::{ReportError, Written, write_report};
