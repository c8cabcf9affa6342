//! Distributions of service times: `exp:2ms`, `uniform:1ms-5ms`, `lognormal:2ms,0.5`.

use meshtax_model::topology::ServiceTime;

use super::duration::pause_ns;
use super::error::{ValueError, quoted};
use super::number::within;

const FORMS: &str = "write it as exp:2ms, uniform:1ms-5ms or lognormal:2ms,0.5";

/// The service time of a service beyond its CPU time: `exp:2ms`, `uniform:1ms-5ms` or `lognormal:2ms,0.5` (the
/// median and the standard deviation of the natural logarithm).
///
/// # Errors
/// If it is none of these, or longer than ten minutes.
pub fn service_time(text: &str) -> Result<ServiceTime, ValueError> {
    let invalid = || ValueError::not(text, "a distribution of durations", FORMS);
    let ns = |text: &str| {
        pause_ns(text).map_err(|e| ValueError::new(e.problem, format!("{}; {FORMS}", e.fix)))
    };
    let (name, parameters) = text.split_once(':').ok_or_else(invalid)?;
    match name.trim() {
        "exp" => Ok(ServiceTime::Exponential {
            mean_ns: ns(parameters)?,
        }),
        "uniform" => {
            let (from, to) = parameters.split_once('-').ok_or_else(invalid)?;
            let (from_ns, to_ns) = (ns(from)?, ns(to)?);
            if from_ns > to_ns {
                let problem = format!("`{}` ends before it begins", quoted(text));
                let fix = format!("put the shorter duration first: uniform:{to}-{from}");
                return Err(ValueError::new(problem, fix));
            }
            Ok(ServiceTime::Uniform { from_ns, to_ns })
        }
        "lognormal" => {
            let (median, sigma) = parameters.split_once(',').ok_or_else(invalid)?;
            let sigma: f64 = sigma.trim().parse().map_err(|_| invalid())?;
            Ok(ServiceTime::LogNormal {
                median_ns: ns(median)?,
                sigma: within(text, sigma, (0.0, 5.0), "a sigma of 0 to 5")?,
            })
        }
        _ => Err(invalid()),
    }
}
