//! The results of a variant.

use meshtax_model::analysis::{Analysis, VariantAnalysis};
use meshtax_model::experiment::VariantId;

/// The results of a variant, if it was measured.
pub(super) fn measured<'a>(analysis: &'a Analysis, id: &VariantId) -> Option<&'a VariantAnalysis> {
    let mut all = analysis.variants.iter();
    all.find(|found| found.variant == *id && found.excluded.is_none())
}
