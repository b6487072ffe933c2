//! The program `sitebeat`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sitebeat::app::main()
}
