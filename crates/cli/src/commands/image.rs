//! `meshtax image`.

use std::path::Path;

use meshtax_oci::{
    BuildError, BuiltImage, Credentials, ImageBuilder, Linkage, Proxies, PushError, PushOptions,
    Reference, Retries, push as push_image,
};
use serde_json::{Value, json};

use crate::args::{BuildArgs, ImageAction, ImageArgs, PushArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::progress::Progress;
use crate::terminal;

/// The program that runs, whatever its file is called now.
const OWN_PROGRAM: &str = "/proc/self/exe";

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn image(args: &ImageArgs) -> Outcome {
    match &args.action {
        ImageAction::Build(args) => build(args),
        ImageAction::Push(args) => push(args),
    }
}

fn build(args: &BuildArgs) -> Outcome {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name()?,
    };
    let image = built(args.content.program.as_deref())?;
    image.save(&name, &args.out).map_err(not_built)?;
    let archive = args.out.display();
    if args.content.json {
        let own = json!({"archive": args.out, "name": name.to_string()});
        print_json(&image, own);
    } else {
        terminal::print(&format!(
            "archive   {archive}\nname      {name}\n{}",
            described(&image)
        ));
        terminal::say(&format!(
            "next: `docker load -i {archive}`, `podman load -i {archive}` or `ctr -n k8s.io images import {archive}`;\n      \
             or store it in a registry: `meshtax image push REGISTRY/REPOSITORY:TAG`"
        ));
    }
    Ok(SUCCESS)
}

fn push(args: &PushArgs) -> Outcome {
    let image = built(args.content.program.as_deref())?;
    let credentials = Credentials::load().map_err(|e| Failure::new(MISSING, e))?;
    let options = PushOptions {
        credentials,
        proxies: Proxies::from_environment(),
        // Only on loopback.
        plain_http: true,
        retries: Retries::default(),
    };
    let progress = Progress::new();
    let step = format!("pushing {}", args.reference);
    let pushed = push_image(&image, &args.reference, &options, &mut |at| {
        progress.transfer(at.done_bytes, at.total_bytes, &step);
    });
    progress.clear();
    let pushed = pushed.map_err(not_pushed)?;
    if args.content.json {
        let own = json!({
            "reference": pushed.reference.to_string(), "uploaded_bytes": pushed.uploaded_bytes,
        });
        print_json(&image, own);
    } else {
        let reference = &pushed.reference;
        terminal::print(&format!("reference {reference}\n{}", described(&image)));
        terminal::say(&format!(
            "next: name it by its digest: `--image {reference}`"
        ));
    }
    Ok(SUCCESS)
}

fn default_name() -> Result<Reference, Failure> {
    let name = format!("meshtax:{VERSION}").parse();
    name.map_err(|e| Failure::new(USAGE, e))
}

/// The image of this program, or of another build of it.
fn built(program: Option<&Path>) -> Result<BuiltImage, Failure> {
    let program = program.unwrap_or(Path::new(OWN_PROGRAM));
    let builder = ImageBuilder::new(program)
        .with_label("org.opencontainers.image.title", "meshtax")
        .with_label("org.opencontainers.image.version", VERSION)
        .with_label("org.opencontainers.image.licenses", "Apache-2.0");
    builder.build().map_err(not_built)
}

fn not_built(error: BuildError) -> Failure {
    let code = match error {
        BuildError::NameWithDigest { .. } => USAGE,
        _ => MISSING,
    };
    Failure::new(code, error)
}

fn not_pushed(error: PushError) -> Failure {
    let code = match error {
        PushError::OtherDigest { .. } => USAGE,
        _ => MISSING,
    };
    Failure::new(code, error)
}

fn described(image: &BuiltImage) -> String {
    let megabytes = image.size_bytes() as f64 / 1e6;
    let linkage = match &image.linkage {
        Linkage::Static => "statically linked".to_owned(),
        Linkage::Dynamic { loader, libraries } => format!(
            "dynamically linked, with its loader {} and {libraries} libraries",
            loader.display()
        ),
    };
    format!(
        "digest    {}\nplatform  {}\nsize      {megabytes:.1} MB compressed\nprogram   {linkage}\n",
        image.digest, image.platform
    )
}

/// Prints what build and push have in common, and what is `own` to one of them.
fn print_json(image: &BuiltImage, own: Value) {
    let mut document = json!({
        "format_version": meshtax_model::FORMAT_VERSION,
        "digest": image.digest.to_string(),
        "platform": image.platform.to_string(),
        "size_bytes": image.size_bytes(),
        "static": image.linkage == Linkage::Static,
    });
    if let (Value::Object(document), Value::Object(own)) = (&mut document, own) {
        document.extend(own);
    }
    terminal::print(&format!("{document:#}\n"));
}
