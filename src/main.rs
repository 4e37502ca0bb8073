//! The binary: parse, run one command, exit code.

use std::process::ExitCode;

use provisor::args::Args;

fn main() -> ExitCode {
    match Args::read(std::env::args_os()) {
        Ok(args) => provisor::commands::main(args),
        Err(error) => error.exit(),
    }
}
