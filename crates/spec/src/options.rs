//! Options of a variant: what its proxies do or hold in addition to its policy level.

use meshtax_model::experiment::{ExtraEndpoints, OptionKind, Options};

use crate::grammar::{ValueError, count, one_of, percentage, rate_per_s, within};
use crate::yaml::{Fields, Node, Problem, Value, keyword, scalar};

/// More endpoints than any cluster that this tool can represent.
const MAX_ENDPOINTS: u32 = 100_000;
/// The default number of endpoints per service.
pub const PER_SERVICE: u32 = 10;

const EXTRA_ENDPOINTS_EXAMPLE: &str =
    "`extra-endpoints: {endpoints: 1000, per-service: 10, changes: 5/s}`";

/// The keys of a variant that are options.
pub(crate) const KEYS: [OptionKind; 4] = [
    OptionKind::ExtraEndpoints,
    OptionKind::AccessLog,
    OptionKind::Tracing,
    OptionKind::AllStats,
];

pub(crate) const SWITCH: [(&str, bool); 2] = [("true", true), ("false", false)];

/// The options of a variant whose data plane has those of `able`.
pub(crate) fn read(
    variant: &Fields<'_>,
    data_plane: &str,
    able: &[OptionKind],
) -> Result<Options, Problem> {
    let mut options = Options::default();
    for kind in KEYS {
        let Some(node) = variant.get(kind.key()) else {
            continue;
        };
        allowed(node, kind, data_plane, able)?;
        match kind {
            OptionKind::ExtraEndpoints | OptionKind::Changes => {
                options.extra_endpoints = Some(extra_endpoints(node, data_plane, able)?);
            }
            OptionKind::AccessLog => {
                options.access_log = keyword(node, kind.key(), &SWITCH)?;
            }
            OptionKind::Tracing => {
                options.tracing = Some(scalar(node, kind.key(), traced_share)?);
            }
            OptionKind::AllStats => options.all_stats = keyword(node, kind.key(), &SWITCH)?,
        }
    }
    Ok(options)
}

fn allowed(
    node: &Node,
    kind: OptionKind,
    data_plane: &str,
    able: &[OptionKind],
) -> Result<(), Problem> {
    if able.contains(&kind) {
        return Ok(());
    }
    let problem = format!(
        "the data plane `{data_plane}` does not support `{}` yet",
        kind.key()
    );
    let fix = match able {
        [] => {
            "remove it; `meshtax dataplanes show NAME` prints what a data plane supports".to_owned()
        }
        able => format!(
            "remove it; supported: {}",
            one_of(able.iter().map(|k| k.key()))
        ),
    };
    Err(Problem::new(node.at, problem, fix))
}

/// A number of endpoints, or a mapping with more detail.
fn extra_endpoints(
    node: &Node,
    data_plane: &str,
    able: &[OptionKind],
) -> Result<ExtraEndpoints, Problem> {
    if let Value::Scalar(_) = &node.value {
        return Ok(ExtraEndpoints {
            endpoints: scalar(node, OptionKind::ExtraEndpoints.key(), endpoints)?,
            per_service: PER_SERVICE,
            changes_per_s: None,
        });
    }
    let changes = OptionKind::Changes;
    let keys = ["endpoints", "per-service", changes.key()];
    let fields = Fields::of(node, "`extra-endpoints`", &keys, EXTRA_ENDPOINTS_EXAMPLE)?;
    if let Some(node) = fields.get(changes.key()) {
        allowed(node, changes, data_plane, able)?;
    }
    Ok(ExtraEndpoints {
        endpoints: scalar(
            fields.need("endpoints", EXTRA_ENDPOINTS_EXAMPLE)?,
            "endpoints",
            endpoints,
        )?,
        per_service: fields.or("per-service", PER_SERVICE, per_service)?,
        changes_per_s: fields.optional(changes.key(), changes_per_s)?,
    })
}

fn endpoints(text: &str) -> Result<u32, ValueError> {
    count(text, "a number of endpoints", 1, MAX_ENDPOINTS)
}

/// Endpoints of one service: 1 to 1000.
///
/// # Errors
/// If it is not a whole number, or out of range.
pub fn per_service(text: &str) -> Result<u32, ValueError> {
    count(text, "a number of endpoints", 1, 1000)
}

/// The rate of endpoint churn: 1 to 1000 per second. At higher rates one change would not be applied before the next.
///
/// # Errors
/// If it is not a rate, or out of range.
pub fn changes_per_s(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "1 to 1000 changes per second, as in 5/s";
    within(text, rate_per_s(text)?, (1.0, 1000.0), RANGE)
}

/// With a smaller share, the probe would wait too long for a span.
fn traced_share(text: &str) -> Result<f64, ValueError> {
    let share = percentage(text)?;
    within(text, share, (0.001, 1.0), "0.1% to 100%, as in 10%")
}

/// The suffix of a variant's generated id: `+endpoints-1000`, `+access-log`.
pub(crate) fn in_an_id(options: &Options) -> String {
    let named = |kind: OptionKind| match (kind, options.extra_endpoints) {
        (OptionKind::ExtraEndpoints, Some(extra)) => format!("+endpoints-{}", extra.endpoints),
        (OptionKind::Changes, Some(extra)) => {
            format!("+changes-{}", extra.changes_per_s.unwrap_or_default())
        }
        (kind, _) => format!("+{}", kind.key()),
    };
    options.kinds().map(named).collect()
}
