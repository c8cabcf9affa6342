//! Whether a system is saturated, from closed loops with several numbers of connections. A single
//! one does not show it: its latency is connections / throughput by identity.

/// Throughputs that differ by no more count as equal.
const SAME: f64 = 1.05;

/// The factor by which the number of connections must have grown before saturation is declared.
const FURTHER: f64 = 1.5;

/// The minimum number of levels for a verdict.
const MIN_LEVELS: usize = 3;

/// The result of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Connections.
    pub connections: u32,
    /// Responses per second.
    pub per_s: f64,
    /// The generator was the limit, not the system.
    pub generator_bound: bool,
}

/// The combined verdict of the levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// Fewer than three levels.
    TooFew,
    /// Throughput rises up to the last level.
    Rising,
    /// From this number of connections on, more of them do not increase throughput.
    Saturated {
        /// The first level that reaches the highest throughput.
        connections: u32,
        /// Its responses per second.
        per_s: f64,
    },
    /// From this number of connections on, the generator was the limit.
    GeneratorBound {
        /// The first such level.
        connections: u32,
    },
}

/// The verdict on levels, in any order; and the best of them.
#[must_use]
pub fn course(levels: &[Level]) -> (Course, Option<Level>) {
    let mut levels = levels.to_vec();
    levels.sort_by_key(|level| level.connections);
    let best = levels.iter().copied().reduce(|best, level| {
        if level.per_s > best.per_s {
            level
        } else {
            best
        }
    });
    let Some((best, last)) = best.zip(levels.last()) else {
        return (Course::TooFew, None);
    };
    if levels.len() < MIN_LEVELS {
        return (Course::TooFew, Some(best));
    }
    let as_good = levels.iter().find(|l| l.per_s * SAME >= best.per_s);
    let first = as_good.copied().unwrap_or(best);
    let bound = levels.iter().find(|l| l.generator_bound);
    let course = match bound {
        // Where the generator is the limit, the levels show nothing about the system.
        Some(bound) if bound.connections <= first.connections || first.generator_bound => {
            Course::GeneratorBound {
                connections: bound.connections,
            }
        }
        _ if f64::from(last.connections) < FURTHER * f64::from(first.connections) => Course::Rising,
        _ => Course::Saturated {
            connections: first.connections,
            per_s: first.per_s,
        },
    };
    (course, Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(levels: &[(u32, f64, bool)]) -> Course {
        let levels: Vec<_> = levels
            .iter()
            .map(|&(connections, per_s, generator_bound)| Level {
                connections,
                per_s,
                generator_bound,
            })
            .collect();
        course(&levels).0
    }

    #[test]
    fn saturation_requires_levels_beyond_it() {
        let rising = [(1, 1000.0, false), (2, 2000.0, false), (4, 4000.0, false)];
        assert_eq!(of(&rising), Course::Rising);
        assert_eq!(of(&rising[..2]), Course::TooFew);
        assert_eq!(of(&[]), Course::TooFew);
        // A small gain with few more connections is not saturation yet.
        let mut levels = rising.to_vec();
        levels.push((5, 4100.0, false));
        assert_eq!(of(&levels), Course::Rising);
        levels.push((8, 4150.0, false));
        let saturated = Course::Saturated {
            connections: 4,
            per_s: 4000.0,
        };
        assert_eq!(of(&levels), saturated);
        // Worse beyond the peak, and in any order.
        levels.push((16, 3000.0, false));
        levels.reverse();
        assert_eq!(of(&levels), saturated);
    }

    #[test]
    fn generator_bound_levels_are_not_reported_as_saturation() {
        let levels = [
            (1, 1000.0, false),
            (2, 2000.0, true),
            (4, 2000.0, true),
            (8, 2000.0, true),
        ];
        let bound = Course::GeneratorBound { connections: 2 };
        assert_eq!(of(&levels), bound);
        // Beyond saturation it does not matter.
        let levels = [
            (1, 1000.0, false),
            (2, 2000.0, false),
            (4, 2010.0, false),
            (8, 2000.0, true),
        ];
        assert!(matches!(
            of(&levels),
            Course::Saturated { connections: 2, .. }
        ));
    }
}
