//! The binary: parse, run one command, exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    provisor::commands::main(provisor::args::Args::parse())
}
