//! Names and labels of what a run creates.

use meshtax_model::experiment::VariantId;

/// The field manager of everything that is applied.
pub(crate) const MANAGER: &str = "meshtax";

/// The label by which everything of meshtax is found.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "meshtax");
/// The label with the run.
pub(crate) const RUN: &str = "meshtax.io/run";
/// The label with a pod's name in its variant.
pub(crate) const POD: &str = "meshtax.io/pod";

/// The longest name of a namespace (RFC 1123).
const LONGEST: usize = 63;

/// The names of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunNames {
    prefix: String,
    /// Tells runs apart on one cluster.
    pub(crate) run: String,
}

impl RunNames {
    pub(crate) fn new(prefix: &str, run: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            run: run.to_owned(),
        }
    }

    /// The namespace of the agents and of the client outside the mesh.
    pub(crate) fn agents(&self) -> String {
        label(&format!("{}-{}-agents", self.prefix, self.run))
    }

    /// The namespace of a variant.
    pub(crate) fn variant(&self, variant: &VariantId) -> String {
        label(&format!("{}-{}-{variant}", self.prefix, self.run))
    }
}

/// A DNS label: a name that does not fit is truncated, and a hash keeps it unique.
fn label(text: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let mut name: String = text.chars().map(allowed).collect();
    if name.len() > LONGEST || name != text {
        name.truncate(LONGEST - 9);
        name = format!("{}-{:08x}", name.trim_end_matches('-'), fnv1a(text));
    }
    name
}

/// FNV-1a, 32 bits: the names must be the same in every build.
fn fnv1a(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_and_differ() {
        let names = RunNames::new("meshtax", "1a2b");
        assert_eq!(
            names.variant(&VariantId("limit-mtls".into())),
            "meshtax-1a2b-limit-mtls"
        );
        let odd = names.variant(&VariantId("Delay_300us".into()));
        assert!(odd.starts_with("meshtax-1a2b-delay-300us-"), "{odd}");
        let long = |end: &str| names.variant(&VariantId(format!("{}{end}", "a".repeat(80))));
        assert!(long("x").len() <= LONGEST);
        assert_ne!(long("x"), long("y"));
    }
}
