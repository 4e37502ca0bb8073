//! Integration tests.

mod standin;
mod support;
