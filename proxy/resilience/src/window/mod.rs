//! Counts over the last calls, or over the last seconds.
