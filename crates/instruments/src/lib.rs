//! Counters, histograms, and the text format in which Prometheus reads them.
//!
//! [`counters`] are counted where something happens, and cost no lock. [`text_format`] writes them when a scraper asks: each part of the server
//! implements [`Instruments`](text_format::Instruments).
//!
//! This crate must not know what it counts: it depends on no other crate of the product.

pub mod counters;
pub mod text_format;
