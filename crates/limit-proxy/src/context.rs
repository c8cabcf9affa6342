//! What all connections share: the configuration and the TLS settings.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

use meshtax_dataplane::{LimitProxyConfig, LimitSide, LimitTls};
use meshtax_tls::spiffe::{Expect, client_config, server_config};
use meshtax_tls::{Credentials, TlsError};
use rustls::{ClientConfig, ServerConfig};

use crate::error::ProxyError;

/// What all connections share.
pub(crate) struct Context {
    pub(crate) config: LimitProxyConfig,
    pub(crate) tls: Tls,
}

pub(crate) enum Tls {
    Off,
    Client {
        usual: Arc<ClientConfig>,
        /// The servers at these addresses have other identities.
        by_address: HashMap<Ipv4Addr, Arc<ClientConfig>>,
    },
    Server {
        config: Arc<ServerConfig>,
        peer_prefix: String,
    },
}

impl Context {
    pub(crate) fn new(config: &LimitProxyConfig) -> Result<Self, ProxyError> {
        let tls = match &config.tls {
            None => Tls::Off,
            Some(files) => Tls::new(config.side, files)?,
        };
        Ok(Self {
            config: config.clone(),
            tls,
        })
    }
}

impl Tls {
    fn new(side: LimitSide, files: &LimitTls) -> Result<Self, ProxyError> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|source| ProxyError::Unreadable {
                path: path.into(),
                source,
            })
        };
        let credentials = Credentials {
            chain_pem: read(&files.chain)?,
            key_pem: read(&files.key)?,
            root_pem: read(&files.root)?,
        };
        Ok(match side {
            LimitSide::Client => {
                let config = |peer: &String| {
                    let expect = Expect::Exactly(peer.clone());
                    let mut config = client_config(&credentials, expect, &[], false)?;
                    config.enable_secret_extraction = true;
                    Ok::<_, TlsError>(Arc::new(config))
                };
                let others = files.peers.iter();
                Self::Client {
                    usual: config(&files.peer)?,
                    by_address: others
                        .map(|(address, peer)| Ok((*address, config(peer)?)))
                        .collect::<Result<_, TlsError>>()?,
                }
            }
            LimitSide::Server => {
                let mut config = server_config(&credentials)?;
                config.enable_secret_extraction = true;
                Self::Server {
                    config: Arc::new(config),
                    peer_prefix: files.peer.clone(),
                }
            }
        })
    }
}
