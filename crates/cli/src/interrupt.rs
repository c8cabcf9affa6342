//! Signals: the first stops the run gracefully, the second terminates it immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether a signal requested the program to stop, and which.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    /// Set by the first signal.
    pub(crate) flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub(crate) fn catch() -> Self {
        let this = Self {
            flag: Arc::default(),
            signal: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the first signal sets the flag, which arms the shutdown for the
            // second. Registering fails only for signals that cannot be caught.
            let _ =
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&this.flag));
            let _ = flag::register(signal, Arc::clone(&this.flag));
            let _ = flag::register_usize(signal, Arc::clone(&this.signal), signal as usize);
        }
        this
    }

    /// The exit code, if there was a signal: 130 for SIGINT, 143 for SIGTERM.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Relaxed);
        self.flag
            .load(Ordering::Relaxed)
            .then(|| u8::try_from(128 + signal).unwrap_or(130))
    }
}
