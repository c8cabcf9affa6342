//! What the proxies of a variant do or hold besides what its level promises.

use meshtax_model::experiment::{Knows, OptionKind, Options};

use crate::error::{Problem, one_of};
use crate::fields::{Fields, scalar, word};
use crate::tree::{Node, Value};
use crate::value::{self, ValueError};

/// A cluster of more has other problems than this tool can show.
const MOST_ENDPOINTS: u32 = 100_000;
/// Endpoints of a service, where nothing else is said.
pub const PER_SERVICE: u32 = 10;

const KNOWS_EXAMPLE: &str = "`knows: {endpoints: 1000, per-service: 10, changes: 5/s}`";

/// The keys of a variant that are options.
pub(crate) const KEYS: [OptionKind; 3] = [
    OptionKind::Knows,
    OptionKind::AccessLog,
    OptionKind::Tracing,
];

/// Of a variant whose data plane has these.
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
            OptionKind::Knows | OptionKind::Changes => {
                options.knows = Some(knows(node, data_plane, able)?);
            }
            OptionKind::AccessLog => {
                options.access_log = word(node, kind.key(), &[("true", true), ("false", false)])?;
            }
            OptionKind::Tracing => {
                options.tracing = Some(scalar(node, kind.key(), traced_share)?);
            }
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
        "`{}` does not go with the data plane `{data_plane}` here",
        kind.key()
    );
    let fix = match able {
        [] => "remove it; `meshtax dataplanes show NAME` says what a data plane has".to_owned(),
        able => format!("remove it; it has {}", one_of(able.iter().map(|k| k.key()))),
    };
    Err(Problem::new(node.at, problem, fix))
}

/// A number of endpoints, or all that can be said of them.
fn knows(node: &Node, data_plane: &str, able: &[OptionKind]) -> Result<Knows, Problem> {
    if let Value::Scalar(_) = &node.value {
        return Ok(Knows {
            endpoints: scalar(node, OptionKind::Knows.key(), endpoints)?,
            per_service: PER_SERVICE,
            changes_per_s: None,
        });
    }
    let changes = OptionKind::Changes;
    let keys = ["endpoints", "per-service", changes.key()];
    let fields = Fields::of(node, "`knows`", &keys, KNOWS_EXAMPLE)?;
    if let Some(node) = fields.get(changes.key()) {
        allowed(node, changes, data_plane, able)?;
    }
    Ok(Knows {
        endpoints: scalar(
            fields.need("endpoints", KNOWS_EXAMPLE)?,
            "endpoints",
            endpoints,
        )?,
        per_service: fields.or("per-service", PER_SERVICE, per_service)?,
        changes_per_s: fields.or(changes.key(), None, |t| changes_per_s(t).map(Some))?,
    })
}

fn endpoints(text: &str) -> Result<u32, ValueError> {
    value::count(text, "a number of endpoints", 1, MOST_ENDPOINTS)
}

/// Endpoints of one service: 1 to 1000.
///
/// # Errors
/// If it is not a whole number, or out of range.
pub fn per_service(text: &str) -> Result<u32, ValueError> {
    value::count(text, "a number of endpoints", 1, 1000)
}

/// With more, one change would not be held before the next comes.
fn changes_per_s(text: &str) -> Result<f64, ValueError> {
    const MOST: f64 = 1000.0;
    let rate = value::rate_per_s(text)?;
    value::within(
        text,
        rate,
        (1.0, MOST),
        "1 to 1000 changes a second, as in 5/s",
    )
}

/// Of less, the probe would wait too long for a span.
fn traced_share(text: &str) -> Result<f64, ValueError> {
    let share = value::percentage(text)?;
    value::within(text, share, (0.001, 1.0), "0.1% to 100%, as in 10%")
}

/// Behind a variant's generated name: `+knows-1000`, `+access-log`.
pub(crate) fn in_an_id(options: &Options) -> String {
    let named = |kind: OptionKind| match (kind, options.knows) {
        (OptionKind::Knows, Some(knows)) => format!("+knows-{}", knows.endpoints),
        (OptionKind::Changes, Some(knows)) => {
            format!("+changes-{}", knows.changes_per_s.unwrap_or_default())
        }
        (kind, _) => format!("+{}", kind.key()),
    };
    options.kinds().map(named).collect()
}
