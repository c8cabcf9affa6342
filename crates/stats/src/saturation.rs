//! Whether a system is saturated, from closed loops with several numbers of connections. One of
//! them alone cannot say: its latency is connections / throughput by identity.

/// Throughput that differs by no more is the same.
const SAME: f64 = 1.05;

/// So many times the connections must have been tried before they are known not to help.
const FURTHER: f64 = 1.5;

/// Levels from which a course can be told.
const MIN_LEVELS: usize = 3;

/// A closed loop that was offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Connections.
    pub connections: u32,
    /// Answers per second.
    pub per_s: f64,
    /// The generator was the limit, not the system.
    pub generator_bound: bool,
}

/// What the levels say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// Fewer than three levels say nothing.
    TooFew,
    /// Throughput rises up to the last level.
    Rising,
    /// From so many connections on, more of them bring no more.
    Saturated {
        /// The first level that is as good as any.
        connections: u32,
        /// Its answers per second.
        per_s: f64,
    },
    /// From so many connections on, the generator was the limit.
    GeneratorBound {
        /// The first level of which that holds.
        connections: u32,
    },
}

/// What levels, in any order, say of saturation; and the best of them.
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
        // Where the generator gives out nothing can be said of the system.
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
    fn saturation_takes_levels_beyond_it() {
        let rising = [(1, 1000.0, false), (2, 2000.0, false), (4, 4000.0, false)];
        assert_eq!(of(&rising), Course::Rising);
        assert_eq!(of(&rising[..2]), Course::TooFew);
        assert_eq!(of(&[]), Course::TooFew);
        // Better by a little, with no more connections to speak of, is no saturation yet.
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
    fn the_generators_limit_is_not_the_systems() {
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
