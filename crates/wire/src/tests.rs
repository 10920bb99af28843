//! Properties that hold for all formats, and a second opinion from another implementation.

mod etherparse;
mod round_trip;
mod tables;
