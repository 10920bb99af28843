//! The report as a page, and its first chart as a picture.
//!
//! # Theory of operation
//!
//! [`html`] makes one self-contained file without any script: a summary, and a section for each
//! mechanism with what it does, its figures and the packets of a request and its answer. The charts
//! are text and boxes where that is enough, so that they fit any width, and SVG elsewhere. All take
//! their colours from the variables of the page, which are others on a dark one; that is why they
//! are made here and not by a library for plots, whose pictures have fixed colours and sizes.
//!
//! The pictures of packets are drawn from the captures of the runs. A capture that cannot be used
//! leaves a sentence in the place of its picture.
//!
//! [`svg`] is the chart of all gains as a file of its own, with its own background.

mod about;
mod chart;
mod page;
mod section;
mod sequence;
mod style;
mod summary;
mod values;

use crate::experiment::Report;

/// The page.
pub fn html(reports: &[Report]) -> String {
    page::page(reports)
}

/// How many times better every mechanism makes things, published and measured: an SVG file.
pub fn svg(reports: &[Report]) -> String {
    chart::standalone(&crate::document(reports))
}

#[cfg(test)]
mod tests;
