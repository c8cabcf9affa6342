//! Standard output and standard error, and how wide they are.
#![expect(
    clippy::print_stderr,
    reason = "the one place that writes to standard error"
)]

use std::io::{self, IsTerminal as _, Write as _};

/// Columns where the width cannot be known.
const DEFAULT_WIDTH: usize = 100;

/// Writes a result. A reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Says something that is not a result.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
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

/// Clears a terminal, for what is shown again and again; elsewhere an empty line stands between.
pub(crate) fn begin_again() {
    print(if io::stdout().is_terminal() {
        "\u{1b}[2J\u{1b}[H"
    } else {
        "\n"
    });
}

/// Whether standard output may have colors: a terminal, and nobody said no (no-color.org).
fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// How a report is laid out for whoever reads standard output.
pub(crate) fn options() -> meshtax_report::TerminalOptions {
    meshtax_report::TerminalOptions {
        width: width(),
        color: color(),
    }
}
