//! Switches of tests: [fail points](fail_points) and [planted bugs](planted). Without the features `failpoints` and `planted`, as in every
//! program that serves anybody, nothing of either is left.
//!
//! Every crate of the server may use this one. It knows none of them.

#![cfg_attr(not(any(test, feature = "failpoints")), no_std)]

pub mod fail_points;
pub mod planted;
