//! Comparisons: the arms of one run, or runs with each other. What is compared, and how it is judged, is that of
//! `carmine compare`; here it becomes charts and sentences, with Holm's correction over the whole report.

mod chart;
mod duel;
mod sentence;

pub(crate) use chart::charts;
pub(crate) use duel::{Compared, compared};
pub(crate) use sentence::{findings, remarks};
