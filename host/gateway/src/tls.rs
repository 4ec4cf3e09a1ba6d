//! TLS: the gateway's certificate, and the certificates it trusts.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::error::GatewayError;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The acceptor for client connections.
pub(super) fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, GatewayError> {
    let bad = |path: &Path, problem: String, expected| GatewayError::Tls {
        path: path.to_owned(),
        problem,
        expected,
    };
    const CHAIN: &str = "the certificate chain";
    const KEY: &str = "the private key";
    let read = |path, expected| {
        let bytes = ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES);
        bytes.map_err(|error| bad(path, error.to_string(), expected))
    };
    let chain = CertificateDer::pem_slice_iter(&read(certificates, CHAIN)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(certificates, error.to_string(), CHAIN))?;
    if chain.is_empty() {
        return Err(bad(certificates, "the file contains no certificate".into(), CHAIN));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key, KEY)?)
        .map_err(|error| bad(key, error.to_string(), KEY))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| bad(key, error.to_string(), KEY))?;
    // HTTP/2 first: one connection carries all requests of an agent.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The client config for upstreams, with the platform's certificate authorities. Without any, no upstream is
/// trusted, and plain HTTP still works.
pub(super) fn trusted() -> Result<ClientConfig, GatewayError> {
    let versions =
        || ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let unusable = |error: rustls::Error| GatewayError::Upstream {
        upstream: "https".into(),
        problem: error.to_string(),
    };
    let verifying = versions().and_then(|builder| builder.try_with_platform_verifier());
    match verifying {
        Ok(builder) => Ok(builder.with_no_client_auth()),
        Err(error) => {
            tracing::error!(%error, "cannot verify upstream certificates: no certificate authorities; install ca-certificates");
            let builder = versions().map_err(unusable)?;
            let without_roots = builder.with_root_certificates(RootCertStore::empty());
            Ok(without_roots.with_no_client_auth())
        }
    }
}
