//! `meshtax image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use meshtax_oci::Reference;

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) action: ImageAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageAction {
    /// Write the image to an archive for `docker load`, `podman load` or `ctr images import`
    Build(BuildArgs),
    /// Store the image in a registry, and print its digest
    Push(PushArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Archive to write
    #[arg(long, value_name = "TAR")]
    pub(crate) out: PathBuf,
    /// Name of the image in the archive [default: meshtax:VERSION]
    #[arg(long, value_name = "REF")]
    pub(crate) name: Option<Reference>,
    #[command(flatten)]
    pub(crate) content: ContentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Where to store the image: REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REF")]
    pub(crate) reference: Reference,
    #[command(flatten)]
    pub(crate) content: ContentArgs,
}

/// What is in the image.
#[derive(Debug, Args)]
pub(crate) struct ContentArgs {
    /// meshtax binary to pack into the image, e.g. a statically linked one, or one for another architecture [default: this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
