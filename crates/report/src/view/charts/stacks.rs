//! Where CPU and memory go, by component.

use meshtax_model::analysis::{CpuAccount, NodeMemory, VariantAnalysis};
use meshtax_model::environment::NodeRole;
use meshtax_model::trial::ComponentRole;

use crate::format::{CPU_MS_PER_1K, MIB, Unit};
use crate::view::chart::{Chapter, Chart, Choice, Figure, Segment, Sheet, Stack, Stacks};
use crate::view::charts::words::{figure_text, in_words, name, raw};
use crate::view::labels::role_name;
use crate::view::source::{Source, load_in_words, point_of};

const PATH: [ComponentRole; 5] = [
    ComponentRole::App,
    ComponentRole::ClientProxy,
    ComponentRole::ServerProxy,
    ComponentRole::Waypoint,
    ComponentRole::Gateway,
];

/// The legend of [`PATH`] and of what belongs to no component.
fn kinds() -> Vec<&'static str> {
    let mut kinds: Vec<&'static str> = PATH.into_iter().map(role_name).collect();
    kinds.push("unattributed");
    kinds
}

pub(super) fn cpu(source: Source<'_>) -> Option<Figure> {
    let mut data = Sheet::new(&["load_point", "variant", "component", "cpu_ns_per_request"]);
    let mut choices = Vec::new();
    for point in source.points() {
        let stacks: Vec<Stack> = source
            .measured()
            .filter_map(|(asked, found)| {
                let account = point_of(found, &point.id)?.cpu.as_ref()?;
                let segments = cpu_segments(account);
                for segment in &segments {
                    data.row([
                        point.id.0.clone(),
                        asked.id.0.clone(),
                        kinds()[segment.kind].to_owned(),
                        raw(Some(segment.value / CPU_MS_PER_1K.factor)),
                    ]);
                }
                Some(stack(source.place(&asked.id), name(asked), segments, "ms"))
            })
            .collect();
        if stacks.is_empty() {
            continue;
        }
        let chart = Chart::Stacks(Stacks {
            axis: "CPU, ms per 1,000 requests".to_owned(),
            kinds: kinds(),
            stacks,
        });
        choices.push(Choice {
            label: load_in_words(point),
            alt: format!("CPU by component. {}", in_words(&chart)),
            chart,
        });
    }
    (!choices.is_empty()).then(|| Figure {
        id: "cpu-by-component",
        chapter: Chapter::Cpu,
        title: "CPU per 1,000 requests, by component".to_owned(),
        caption: "Excludes the load generator. Unattributed: busy time of the machine that no component accounts for \
         (interrupts, kernel threads, other programs)."
            .to_owned(),
        choices,
        data,
    })
}

fn cpu_segments(account: &CpuAccount) -> Vec<Segment> {
    let unit = CPU_MS_PER_1K;
    let of_role = |role: ComponentRole| {
        let mut here = account
            .components
            .iter()
            .filter(|c| c.role == role)
            .peekable();
        here.peek()?;
        Some(here.map(|c| c.cpu_per_request_ns).sum::<f64>())
    };
    let rest = account
        .unattributed_ns
        .filter(|_| account.requests > 0)
        .map(|ns| ns as f64 / account.requests as f64);
    let values = PATH.into_iter().map(of_role).chain([rest]);
    segments(
        values
            .enumerate()
            .filter_map(|(kind, value)| Some((kind, value?))),
        unit,
        &kinds(),
    )
}

fn segments(
    values: impl Iterator<Item = (usize, f64)>,
    unit: Unit,
    kinds: &[&'static str],
) -> Vec<Segment> {
    values
        .filter(|(_, value)| value.is_finite() && *value >= 0.0)
        .map(|(kind, value)| Segment {
            kind,
            value: value * unit.factor,
            tip: format!(
                "{} {}",
                kinds.get(kind).copied().unwrap_or_default(),
                figure_text(value, unit)
            ),
        })
        .collect()
}

fn stack(variant: usize, label: String, segments: Vec<Segment>, unit: &'static str) -> Stack {
    let sum: f64 = segments.iter().map(|segment| segment.value).sum();
    let plain = Unit {
        factor: 1.0,
        name: unit,
    };
    Stack {
        variant,
        label,
        figure: figure_text(sum, plain),
        segments,
    }
}

pub(super) fn memory(source: Source<'_>) -> Option<Figure> {
    let mut data = Sheet::new(&["by", "variant", "part", "bytes"]);
    let by_component = memory_choice(source, "by component", &mut data, kinds(), component_values);
    let by_node = memory_choice(
        source,
        "by node",
        &mut data,
        NODE_KINDS.to_vec(),
        node_values,
    );
    let choices: Vec<Choice> = [by_component, by_node].into_iter().flatten().collect();
    (!choices.is_empty()).then(|| Figure {
        id: "memory",
        chapter: Chapter::Memory,
        title: "Memory".to_owned(),
        caption: "By component: anonymous pages, medians over the trials. By node: anonymous pages of all processes on \
         it, and one copy of each program."
            .to_owned(),
        choices,
        data,
    })
}

fn memory_choice(
    source: Source<'_>,
    label: &str,
    data: &mut Sheet,
    kinds: Vec<&'static str>,
    values: fn(&VariantAnalysis) -> Vec<(usize, f64)>,
) -> Option<Choice> {
    let mut stacks = Vec::new();
    for (asked, found) in source.measured() {
        let values = values(found);
        if values.is_empty() {
            continue;
        }
        for (kind, bytes) in &values {
            data.row([
                label.to_owned(),
                asked.id.0.clone(),
                kinds[*kind].to_owned(),
                raw(Some(*bytes)),
            ]);
        }
        let segments = segments(values.into_iter(), MIB, &kinds);
        stacks.push(stack(
            source.place(&asked.id),
            name(asked),
            segments,
            MIB.name,
        ));
    }
    if stacks.is_empty() {
        return None;
    }
    let chart = Chart::Stacks(Stacks {
        axis: "MiB".to_owned(),
        kinds,
        stacks,
    });
    Some(Choice {
        label: label.to_owned(),
        alt: format!("Memory {label}. {}", in_words(&chart)),
        chart,
    })
}

fn component_values(found: &VariantAnalysis) -> Vec<(usize, f64)> {
    let of_role = |(kind, role): (usize, ComponentRole)| {
        let held = found.memory.iter().find(|memory| memory.role == role)?;
        Some((kind, held.anonymous_bytes as f64))
    };
    PATH.into_iter().enumerate().filter_map(of_role).collect()
}

const NODE_KINDS: [&str; 4] = [
    "client's node, anonymous",
    "client's node, programs",
    "server's node, anonymous",
    "server's node, programs",
];

/// The servers' nodes together, where there are several: each has its own copy of the programs.
fn node_values(found: &VariantAnalysis) -> Vec<(usize, f64)> {
    let of_kind = |(first, kind): (usize, NodeRole)| {
        let here = || found.nodes.iter().filter(|held| held.role == kind);
        here().next()?;
        let sum = |of: fn(&NodeMemory) -> u64| here().map(|held| of(held) as f64).sum::<f64>();
        Some([
            (first, sum(|held| held.anonymous_bytes)),
            (first + 1, sum(|held| held.file_bytes)),
        ])
    };
    let kinds = [(0, NodeRole::Client), (2, NodeRole::Server)].into_iter();
    kinds.filter_map(of_kind).flatten().collect()
}
