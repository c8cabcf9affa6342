//! Properties of the data planes for advice, from the catalogue.

use meshtax_model::advice::{ProxyPlace, Standing};
use meshtax_model::catalogue::{self, DataPlaneKind, ProxyPlacement};
use meshtax_model::experiment::{Role, Variant};

pub(super) fn standing(variant: &Variant) -> Standing {
    let plane = catalogue::find(&variant.data_plane);
    match plane.map(|plane| plane.kind) {
        _ if variant.role != Role::Candidate => Standing::Baseline,
        Some(DataPlaneKind::Floor) => Standing::Floor,
        Some(DataPlaneKind::Emulation) => Standing::Emulation,
        Some(DataPlaneKind::Baseline | DataPlaneKind::Mesh) | None => Standing::Choice,
    }
}

/// The mesh that a data plane represents, by its id in published facts. These do not apply to an emulation.
pub(super) fn mesh(data_plane: &str) -> Option<&'static str> {
    let plane = catalogue::find(data_plane)?;
    let mesh = plane.family.mesh();
    mesh.filter(|_| plane.kind == DataPlaneKind::Mesh)
}

/// Whether a data plane's proxies multiply with pods or with nodes.
pub(super) fn place(data_plane: &str) -> ProxyPlace {
    match catalogue::find(data_plane).and_then(|plane| plane.placement) {
        Some(ProxyPlacement::Node | ProxyPlacement::Waypoint) => ProxyPlace::Node,
        Some(ProxyPlacement::Sidecar) | None => ProxyPlace::Pod,
    }
}
