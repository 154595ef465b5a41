//! How long a call still has.
