//! Integration tests.

mod node;
mod standin;
mod support;
