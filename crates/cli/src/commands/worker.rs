//! `meshtax worker`: a load generator that is used from another machine.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use meshtax_load::worker_main;
use meshtax_tls::{secret_tls, server_config, split};
use rustls::{ServerConfig, ServerConnection};

use crate::args::WorkerArgs;
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, UNEXPECTED};
use crate::interrupt::Interrupt;
use crate::terminal::{print, say};

/// Timeout of the TLS handshake with the shared secret.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The polling interval for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);

/// Bytes of a generated secret.
const SECRET_BYTES: usize = 16;

pub(crate) fn worker(args: &WorkerArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let (secret, is_generated) = match args.secret.read()? {
        Some(secret) => (secret, false),
        None => (generate_secret()?, true),
    };
    let (_, tls) = secret_tls(&secret).map_err(|e| Failure::new(UNEXPECTED, e))?;
    let config = Arc::new(server_config(&tls).map_err(|e| Failure::new(UNEXPECTED, e))?);
    let listener = TcpListener::bind(args.listen).map_err(|e| {
        Failure::with_fix(
            MISSING,
            format!("cannot listen on {}: {e}", args.listen),
            "use another address or port with --listen",
        )
    })?;
    let address = listener
        .local_addr()
        .map_err(|e| Failure::new(UNEXPECTED, e))?;
    say(&format!("worker on {address} (Ctrl-C stops it)"));
    if is_generated {
        say("use it with `meshtax load URL --workers HOST:PORT` and this MESHTAX_WORKER_SECRET:");
        print(&format!("{secret}\n"));
    }
    // Polled, since a signal does not wake `accept`.
    listener
        .set_nonblocking(true)
        .map_err(|e| Failure::new(UNEXPECTED, e))?;
    let busy = Arc::new(AtomicBool::new(false));
    while !interrupt.flag.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((socket, peer)) => {
                let (config, busy) = (Arc::clone(&config), Arc::clone(&busy));
                std::thread::spawn(move || serve(socket, peer, config, &busy));
            }
            Err(_) => std::thread::sleep(TICK),
        }
    }
    Ok(interrupt.exit_code().unwrap_or(SUCCESS))
}

fn generate_secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|e| Failure::new(MISSING, format!("cannot read /dev/urandom: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn serve(socket: TcpStream, peer: SocketAddr, config: Arc<ServerConfig>, busy: &AtomicBool) {
    match admit(socket, config) {
        Err(error) => say(&format!(
            "{peer} rejected: it has a different secret, or is not meshtax ({error})"
        )),
        Ok((reader, writer)) => {
            if busy.swap(true, Ordering::Relaxed) {
                let _ = refuse(
                    writer,
                    "busy with another load: wait, or use another worker",
                );
                return;
            }
            say(&format!("{peer}: a load"));
            match worker_main(reader, writer) {
                Ok(()) => say(&format!("{peer}: done")),
                Err(error) => say(&format!("{peer}: {error}")),
            }
            busy.store(false, Ordering::Relaxed);
        }
    }
}

type Ends = (meshtax_tls::DuplexReader, meshtax_tls::DuplexWriter);

fn admit(socket: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<Ends> {
    let tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    split(tls, socket, HANDSHAKE_TIMEOUT)
}

fn refuse(mut writer: meshtax_tls::DuplexWriter, why: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let message = meshtax_load::WorkerMessage::Error(why.to_owned());
    writeln!(writer, "{}", serde_json::to_string(&message)?)
}
