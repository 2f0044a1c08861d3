//! Counters, histograms, and the text format in which Prometheus reads them.
//!
//! [`counters`] are counted where something happens, and cost no lock. [`sheet`] writes them when a scraper asks: each part of the server
//! implements [`Instruments`](sheet::Instruments).
//!
//! This crate must not know what it counts: it depends on no other crate of the product.

pub mod counters;
pub mod sheet;
