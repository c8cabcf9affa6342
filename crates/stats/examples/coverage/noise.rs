//! Random numbers with a fixed seed.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// Numbers of the distributions that a made-up machine is made from.
pub(crate) struct Noise(Pcg64Mcg);

impl Noise {
    pub(crate) fn new(seed: u128) -> Self {
        Self(Pcg64Mcg::new(seed))
    }

    /// Of one experiment of many: neighbours have nothing in common.
    pub(crate) fn of_experiment(setting: u64, index: u32) -> Self {
        let seed = (u128::from(setting) << 64) | u128::from(index);
        let mut noise = Self(Pcg64Mcg::new(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
        ));
        // The first numbers of near seeds are near.
        for _ in 0..8 {
            noise.uniform();
        }
        noise
    }

    /// Even in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Even between two values.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// In one round of ten, five times the noise.
    pub(crate) fn contaminated(&mut self) -> f64 {
        let scale = if self.uniform() < 0.1 { 5.0 } else { 1.0 };
        scale * self.normal()
    }

    /// Below `end`.
    pub(crate) fn index(&mut self, end: usize) -> usize {
        ((self.uniform() * end as f64) as usize).min(end.saturating_sub(1))
    }

    /// Every order is as likely.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
