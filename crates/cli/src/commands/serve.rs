//! `meshtax serve`.

use meshtax_app::AppConfig;

use crate::args::ServeArgs;
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::interrupt::Interrupt;
use crate::terminal::say;

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let response_bytes =
        u32::try_from(args.body).map_err(|_| Failure::new(USAGE, "--body: at most 4 GiB"))?;
    let config = AppConfig {
        response_bytes,
        delay_ns: args.delay,
        threads: args.threads,
        ..AppConfig::new(args.listen)
    };
    let ready = |address| say(&format!("serving on http://{address}/ (Ctrl-C ends it)"));
    meshtax_app::serve(&config, ready, &interrupt.flag).map_err(|e| Failure::new(MISSING, e))?;
    Ok(interrupt.exit_code().unwrap_or(SUCCESS))
}
