//! Whom a ledger elsewhere is believed to be: the certificates it is checked against.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file with certificates, or with a secret, that are read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Settings that check the server's certificate and its name, against a file of roots or those of the system.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = match ca_file {
        Some(path) => roots_of_file(path)?,
        None => roots_of_system()?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, String> {
    let place = path.display();
    let pem = read_small(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| format!("{place}: {error}"))?;
        roots.add(certificate).map_err(|error| format!("{place}: {error}"))?;
    }
    if roots.is_empty() { Err(format!("{place}: no certificate in it")) } else { Ok(roots) }
}

fn roots_of_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A machine's list has odd ones now and then; a single good root is enough to begin with.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        Err("this machine has no root certificates; name a file of them".to_owned())
    } else {
        Ok(roots)
    }
}

/// The bytes of a file that somebody wrote by hand.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes)
    };
    read().map_err(|error| format!("{}: {error}", path.display()))
}
