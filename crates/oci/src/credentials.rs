//! Credentials that the user has given to Docker or Podman.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fmt, fs, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// How long a credential helper may take. Some ask their user.
const HELPER_TIME: Duration = Duration::from_secs(60);

/// The name of Docker Hub in Docker's files.
const DOCKER_HUB: &str = "index.docker.io";

/// Who asks a registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A token that is exchanged for others (Docker's *identity token*).
    Identity(String),
}

/// What Docker and Podman know of registries. The default is nothing: every registry is asked anonymously.
#[derive(Clone, Default)]
pub struct Credentials {
    files: Vec<AuthFile>,
}

/// The format that Docker and Podman share (containers-auth.json(5)).
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuthFile {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// Secrets are not for logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {} files", self.files.len())
    }
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}\n  fix: correct it, or set REGISTRY_AUTH_FILE to another", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// An entry is not in the expected encoding.
    #[error(
        "the entry of {registry} is not valid\n  fix: log in again with `docker login {registry}`"
    )]
    Entry {
        /// The registry.
        registry: String,
    },
    /// A credential helper is missing or fails.
    #[error(
        "the credential helper docker-credential-{helper} failed: {reason}\n  \
         fix: install it, or remove it from Docker's config.json"
    )]
    Helper {
        /// The helper's name without its prefix.
        helper: String,
        /// What it said.
        reason: String,
    },
}

impl Credentials {
    /// Reads the files of Podman and Docker: `REGISTRY_AUTH_FILE` alone if it is set, or else
    /// `$XDG_RUNTIME_DIR/containers/auth.json` (without that variable, Podman's `/run/containers/UID/auth.json`),
    /// `$XDG_CONFIG_HOME/containers/auth.json` and `$DOCKER_CONFIG/config.json`, with their defaults in the home directory.
    /// Files that do not exist are skipped.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn load() -> Result<Self, CredentialsError> {
        let user = rustix::process::getuid().as_raw();
        let mut files = usual_files(user, &|name| env::var_os(name));
        files.retain(|path| !is_closed(path));
        Self::from_files(&files)
    }

    /// Reads these files; what the first says of a registry counts.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn from_files(paths: &[PathBuf]) -> Result<Self, CredentialsError> {
        let mut files = Vec::new();
        for path in paths {
            files.extend(read(path).map_err(|source| CredentialsError::File {
                path: path.clone(),
                source,
            })?);
        }
        Ok(Self { files })
    }

    /// The login for a repository, if there is one.
    pub(crate) fn find(
        &self,
        registry: &str,
        repository: &str,
    ) -> Result<Option<Login>, CredentialsError> {
        for file in &self.files {
            if let Some(login) = file.find(registry, repository)? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }
}

/// The files of Podman and Docker in an environment of a user.
fn usual_files(user: u32, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let directory = |name| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(only) = directory("REGISTRY_AUTH_FILE") {
        return vec![only];
    }
    let home = |rest: &str| Some(directory("HOME")?.join(rest));
    let podman = "containers/auth.json";
    // Root, cron and CI jobs have no such directory (containers/image, `pkg/docker/config/config.go`).
    let runtime = directory("XDG_RUNTIME_DIR").map_or_else(
        || Path::new(PODMAN_RUNTIME).join(format!("{user}/auth.json")),
        |path| path.join(podman),
    );
    let files = [
        Some(runtime),
        directory("XDG_CONFIG_HOME")
            .or_else(|| home(".config"))
            .map(|path| path.join(podman)),
        directory("DOCKER_CONFIG")
            .or_else(|| home(".docker"))
            .map(|path| path.join("config.json")),
    ];
    files.into_iter().flatten().collect()
}

/// Where Podman keeps the logins of users without a runtime directory.
const PODMAN_RUNTIME: &str = "/run/containers";

/// Whether the user may not even look there: Podman as root may close its directory to others, who have no logins in it.
fn is_closed(path: &Path) -> bool {
    let denied = |e: io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    path.starts_with(PODMAN_RUNTIME) && fs::metadata(path).is_err_and(denied)
}

/// `None`: there is no such file.
fn read(path: &Path) -> io::Result<Option<AuthFile>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

impl AuthFile {
    fn find(&self, registry: &str, repository: &str) -> Result<Option<Login>, CredentialsError> {
        let mut helpers = self.cred_helpers.iter();
        if let Some((key, helper)) = helpers.find(|(key, _)| normal(key) == normal(registry)) {
            return ask(helper, key);
        }
        if let Some(auth) = self.entry(registry, repository) {
            let invalid = || CredentialsError::Entry {
                registry: registry.to_owned(),
            };
            // With a credential store, the entries of its registries are empty.
            if let Some(login) = auth.login().ok_or_else(invalid)? {
                return Ok(Some(login));
            }
        }
        match &self.creds_store {
            Some(helper) if !helper.is_empty() => ask(helper, &server_name(registry)),
            _ => Ok(None),
        }
    }

    /// The entry of the repository, or the nearest one above it: Podman has entries for parts of a registry.
    fn entry(&self, registry: &str, repository: &str) -> Option<&Auth> {
        let whole = format!("{}/{repository}", normal(registry));
        let is_above = |key: &str| {
            let rest = whole.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let keys = self.auths.iter().map(|(key, auth)| (normal(key), auth));
        let above = keys.filter(|(key, _)| is_above(key));
        above.max_by_key(|(key, _)| key.len()).map(|(_, auth)| auth)
    }
}

/// A registry's key without scheme and version, which old entries have, and with one name for Docker Hub.
fn normal(key: &str) -> String {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let key = key.trim_end_matches('/');
    let key = ["/v1", "/v2"]
        .iter()
        .find_map(|version| key.strip_suffix(version))
        .unwrap_or(key);
    let (host, rest) = key.split_at(key.find('/').unwrap_or(key.len()));
    match host {
        "docker.io" | "registry-1.docker.io" => format!("{DOCKER_HUB}{rest}"),
        _ => key.to_owned(),
    }
}

/// The name under which Docker stores a registry's credentials.
fn server_name(registry: &str) -> String {
    match normal(registry).as_str() {
        DOCKER_HUB => format!("https://{DOCKER_HUB}/v1/"),
        other => other.to_owned(),
    }
}

impl Auth {
    /// `None`: it is not valid. `Some(None)`: it is empty.
    fn login(&self) -> Option<Option<Login>> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.identitytoken) {
            return Some(Some(Login::Identity(token)));
        }
        if let Some(auth) = given(&self.auth) {
            let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
            let (user, password) = text.split_once(':')?;
            return Some(Some(Login::Password {
                user: user.to_owned(),
                password: password.trim_end_matches('\0').to_owned(),
            }));
        }
        let login = |user, password| Login::Password { user, password };
        Some(
            given(&self.username)
                .zip(given(&self.password))
                .map(|(u, p)| login(u, p)),
        )
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Asks a credential helper.
fn ask(helper: &str, server: &str) -> Result<Option<Login>, CredentialsError> {
    // The name becomes part of a program's name, and must not lead elsewhere.
    if helper.is_empty() || helper.contains('/') {
        return Err(CredentialsError::Helper {
            helper: helper.to_owned(),
            reason: "its name is not valid".to_owned(),
        });
    }
    ask_program(
        format!("docker-credential-{helper}").as_ref(),
        helper,
        server,
    )
}

/// Speaks Docker's *credential helper protocol*: the server's name on standard input, the answer on standard output.
fn ask_program(
    program: &OsStr,
    helper: &str,
    server: &str,
) -> Result<Option<Login>, CredentialsError> {
    let failed = |reason: String| CredentialsError::Helper {
        helper: helper.to_owned(),
        reason,
    };
    let child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|e| failed(e.to_string()))?;
    let (is_success, output) = converse(&mut child, server).map_err(|e| failed(e.to_string()))?;
    if !is_success {
        // By the protocol this is a message on standard output, and no error.
        return if output.contains("credentials not found") {
            Ok(None)
        } else {
            Err(failed(output.trim().to_owned()))
        };
    }
    let answer: HelperAnswer = serde_json::from_str(&output).map_err(|e| failed(e.to_string()))?;
    Ok(Some(match answer.username.as_str() {
        "<token>" => Login::Identity(answer.secret),
        _ => Login::Password {
            user: answer.username,
            password: answer.secret,
        },
    }))
}

/// Sends a line to the helper and waits for its end, for a limited time. Returns whether it succeeded, and its output.
fn converse(child: &mut Child, line: &str) -> io::Result<(bool, String)> {
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that ends without reading says why on its output.
        let _ = writeln!(stdin, "{line}");
    }
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > HELPER_TIME {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(10));
    };
    let mut output = String::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(1 << 16).read_to_string(&mut output)?;
    }
    Ok((status.success(), output))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(text: &str) -> Credentials {
        let files = vec![serde_json::from_str(text).unwrap()];
        Credentials { files }
    }

    fn user(credentials: &Credentials, registry: &str, repository: &str) -> Option<String> {
        match credentials.find(registry, repository).unwrap()? {
            Login::Password { user, .. } => Some(user),
            Login::Identity(token) => Some(format!("token {token}")),
        }
    }

    #[test]
    fn entries_of_docker_and_podman_are_found() {
        let auth = |text: &str| STANDARD.encode(text);
        let found = credentials(&format!(
            r#"{{"auths": {{
                "https://index.docker.io/v1/": {{"auth": "{}"}},
                "ghcr.io": {{"auth": "{}"}},
                "ghcr.io/linkerd": {{"auth": "{}"}},
                "quay.io": {{"identitytoken": "t"}},
                "gcr.io": {{"username": "u", "password": "p"}},
                "empty.example": {{}}
            }}}}"#,
            auth("hub:a:b"),
            auth("github:x"),
            auth("linkerd:x"),
        ));
        let user = |registry, repository| user(&found, registry, repository);
        assert_eq!(user("docker.io", "istio/ztunnel").as_deref(), Some("hub"));
        assert_eq!(user("ghcr.io", "linkerdx/y").as_deref(), Some("github"));
        assert_eq!(user("ghcr.io", "linkerd/proxy").as_deref(), Some("linkerd"));
        assert_eq!(user("quay.io", "a").as_deref(), Some("token t"));
        assert_eq!(user("gcr.io", "a").as_deref(), Some("u"));
        assert_eq!(user("empty.example", "a"), None);
        assert_eq!(user("other.example", "a"), None);
        assert!(!format!("{found:?}").contains("hub"));
    }

    #[test]
    fn files_are_those_of_podman_and_docker() {
        let files = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let files = usual_files(1000, &variable).into_iter();
            files
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        let home = ("HOME", "/h");
        assert_eq!(
            files(&[home]),
            [
                "/run/containers/1000/auth.json",
                "/h/.config/containers/auth.json",
                "/h/.docker/config.json"
            ]
        );
        let all = [
            home,
            ("XDG_RUNTIME_DIR", "/r"),
            ("XDG_CONFIG_HOME", "/c"),
            ("DOCKER_CONFIG", "/d"),
            ("REGISTRY_AUTH_FILE", ""),
        ];
        let expected = [
            "/r/containers/auth.json",
            "/c/containers/auth.json",
            "/d/config.json",
        ];
        assert_eq!(files(&all), expected);
        assert_eq!(files(&[home, ("REGISTRY_AUTH_FILE", "/x")]), ["/x"]);
        assert_eq!(files(&[]), ["/run/containers/1000/auth.json"]);
    }

    #[test]
    fn credential_helper_is_asked_for_the_server() {
        let directory = tempfile::TempDir::new().unwrap();
        let answer = |script: &str| {
            let source = directory.path().join("source");
            let path = directory.path().join(script.len().to_string());
            fs::write(&source, format!("#!/bin/sh\nread server\n{script}\n")).unwrap();
            // A program that this process has written is busy while another test's child has its descriptor.
            let mut install = Command::new("install");
            install.args(["-m", "755"]).args([&source, &path]);
            assert!(install.status().unwrap().success());
            ask_program(path.as_os_str(), "test", "a.b")
        };
        let found = answer(r#"echo "{\"Username\": \"$1\", \"Secret\": \"$server\"}""#).unwrap();
        let expected = Login::Password {
            user: "get".to_owned(),
            password: "a.b".to_owned(),
        };
        assert!(found == Some(expected));
        let found = answer(r#"echo '{"Username": "<token>", "Secret": "t"}'"#).unwrap();
        assert!(found == Some(Login::Identity("t".to_owned())));
        let missing = "echo 'credentials not found in native keychain'; exit 1";
        assert!(answer(missing).unwrap().is_none());
        let error = answer("echo 'locked'; exit 1").err().unwrap().to_string();
        assert!(
            error.contains("locked") && error.contains("fix:"),
            "{error}"
        );
        assert!(answer("echo nonsense").is_err());
    }

    #[test]
    fn invalid_entry_and_missing_helper_are_errors_with_a_fix() {
        for text in [
            r#"{"auths": {"a.b": {"auth": "!"}}}"#,
            r#"{"credHelpers": {"a.b": "no-such-helper"}}"#,
            r#"{"credHelpers": {"a.b": "../../bin/sh"}}"#,
            r#"{"credsStore": "no-such-helper"}"#,
        ] {
            let error = credentials(text).find("a.b", "c").err().unwrap();
            assert!(error.to_string().contains("fix:"), "{error}");
        }
    }

    #[test]
    fn missing_file_is_skipped_and_a_damaged_one_is_not() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("config.json");
        assert!(
            Credentials::from_files(std::slice::from_ref(&path))
                .unwrap()
                .files
                .is_empty()
        );
        fs::write(&path, "{").unwrap();
        let error = Credentials::from_files(&[path]).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains("fix:"),
            "{error}"
        );
    }
}
