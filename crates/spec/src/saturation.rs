//! `saturates-at`: the rate at which the application is to saturate without a mesh.

use meshtax_model::experiment::{Experiment, Regime};
use meshtax_model::saturation::Saturation;

use crate::grammar::{ValueError, rate_per_s};

/// The key for the rate.
pub(crate) const KEY: &str = "saturates-at";

pub(crate) fn rate(text: &str) -> Result<Saturation, ValueError> {
    rate_per_s(text).map(Saturation::at)
}

/// Rejects a rate where nothing saturates, or where the work is not meshtax's to scale.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), ValueError> {
    if experiment.saturation.is_none() {
        return Ok(());
    }
    if experiment.topology.program().is_some() {
        return Err(ValueError::new(
            "`saturates-at` scales the work of meshtax's application, and a service runs a program of its own",
            "omit `saturates-at`, or the program",
        ));
    }
    let mut points = experiment.load_points.iter();
    match points.any(|point| point.load == Regime::Saturated) {
        true => Ok(()),
        false => Err(ValueError::new(
            "an application saturates in a closed loop, and the experiment has none",
            "add a load point `saturated: {}`, or omit `saturates-at`",
        )),
    }
}

/// How long a connection of the largest closed loop waits for a response once the application is saturated, in
/// nanoseconds; 0: it is as fast as it can.
pub(crate) fn longest_wait_ns(experiment: &Experiment) -> u64 {
    let Some(saturation) = &experiment.saturation else {
        return 0;
    };
    let points = experiment.load_points.iter();
    let closed = points.filter(|point| point.load == Regime::Saturated);
    let most = closed.map(|point| experiment.connections(point)).max();
    // The cast saturates.
    (f64::from(most.unwrap_or(0)) / saturation.rate_per_s * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_a_closed_loop_and_an_application_that_can_be_scaled() {
        let parse = |text: &str| crate::parse("spec", text);
        let asked = parse("saturates-at: 157.4456\n").unwrap();
        assert_eq!(asked.saturation, Some(Saturation::at(157.4456)));
        for (text, line, expected) in [
            ("saturates-at: 0\n", 1, "out of range"),
            (
                "saturates-at: 150/s\nload: [{steady: {rate: 100}}]\n",
                1,
                "saturates in a closed loop",
            ),
            (
                "service: {server: {command: [/bin/true], port: 80}}\nsaturates-at: 150/s\n",
                2,
                "a program of its own",
            ),
        ] {
            let rejected = parse(text).unwrap_err();
            assert!(rejected.message.contains(expected), "{text}: {rejected}");
            assert_eq!(rejected.line, Some(line), "{text}: {rejected}");
        }
    }

    #[test]
    fn shortened_trials_still_last_two_turns_of_the_largest_closed_loop() {
        let text = "saturates-at: 100/s\nload: [{saturated: {connections: 50}}, {saturated: {connections: 10}}]\n\
                    design: {trial: 5s, warmup: 3s, time: 10s}\n";
        let mut experiment = crate::parse("spec", text).unwrap();
        assert_eq!(longest_wait_ns(&experiment), 500_000_000);
        crate::fit_trials_to_time(&mut experiment);
        let design = &experiment.design;
        assert_eq!(
            (design.trial_ns, design.warmup_ns),
            (1_000_000_000, 500_000_000)
        );
    }
}
