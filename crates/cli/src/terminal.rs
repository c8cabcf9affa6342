//! Standard output and standard error, and their widths.
//!
//! Nothing else writes to them. A reader that has gone away (`| head`) is not an error: `println!` and
//! `eprintln!` would panic.

use std::io::{self, IsTerminal as _, Write as _};

/// Columns where the width cannot be known.
const DEFAULT_WIDTH: usize = 100;

/// Writes a result to standard output.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Writes a line that is not a result to standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns of standard output.
fn width() -> usize {
    terminal_size::terminal_size_of(io::stdout())
        .map_or(DEFAULT_WIDTH, |(w, _)| usize::from(w.0).min(140))
}

/// Columns of standard error.
pub(crate) fn width_of_messages() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(DEFAULT_WIDTH, |(w, _)| usize::from(w.0))
}

/// Clears a terminal before output that is repeated; elsewhere writes an empty line.
pub(crate) fn begin_again() {
    print(if io::stdout().is_terminal() {
        "\u{1b}[2J\u{1b}[H"
    } else {
        "\n"
    });
}

/// Whether standard output may have colors: it is a terminal, and `NO_COLOR` is unset (no-color.org).
fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// The layout of reports on standard output.
pub(crate) fn options() -> meshtax_report::TerminalOptions {
    meshtax_report::TerminalOptions {
        width: width(),
        color: color(),
    }
}
