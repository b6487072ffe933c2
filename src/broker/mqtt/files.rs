//! The files that TLS needs: the authority to be trusted, our certificate, its key.
//!
//! Floor 2. Called by `connecting` at each connection, so that renewed files count.
//!
//! A file that cannot be used does not end what works: the last good content of the
//! same file stands in for it, and a trouble is told. Certificate and key count
//! together, so a renewal of which only one is written yet changes nothing.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use x509_cert::der::Decode as _;

use super::{Known, Trouble, Validity};
use crate::config::settings::Uplink;
use crate::domain::instant::Wall;

/// The longest file that is read; the list of all public authorities is 200 KiB.
const FILE_BYTES_MAX: u64 = 2 << 20;

const CA: &str = "uplink.ca_file";
const CERTIFICATE: &str = "uplink.client_cert_file";

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct Files {
    roots: Option<(PathBuf, Arc<RootCertStore>)>,
    identity: Option<Identity>,
    troubles: Vec<Trouble>,
}

/// Our certificate and its key.
#[derive(Debug)]
struct Identity {
    certificate_file: PathBuf,
    key_file: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    validity: Validity,
}

impl Files {
    /// Reads them; an error says what cannot be used, nor ever could.
    pub(super) fn read(&mut self, uplink: &Uplink) -> Result<Arc<ClientConfig>, String> {
        self.troubles.clear();
        let provider = Arc::new(ring::default_provider());
        let roots = self.read_roots(uplink)?;
        self.read_identity(uplink, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(|error| error.to_string())?,
        };
        Ok(Arc::new(config))
    }

    /// What is to be told of what was read.
    pub(super) fn known(&self) -> Known {
        Known {
            validity: self.identity.as_ref().map(|identity| identity.validity),
            troubles: self.troubles.clone(),
        }
    }

    fn read_roots(&mut self, uplink: &Uplink) -> Result<Arc<RootCertStore>, String> {
        let Some(path) = &uplink.ca_file else {
            self.roots = None;
            return system_roots().map(Arc::new);
        };
        match roots_of(path) {
            Ok(roots) => {
                let roots = Arc::new(roots);
                self.roots = Some((path.clone(), Arc::clone(&roots)));
                Ok(roots)
            }
            Err(reason) => {
                let reason = format!("{CA} = {}: {reason}", path.display());
                let last = self.roots.as_ref().filter(|(of, _)| of == path);
                let (_, roots) = last.ok_or_else(|| reason.clone())?;
                self.troubles.push(Trouble { key: CA, reason });
                Ok(Arc::clone(roots))
            }
        }
    }

    fn read_identity(&mut self, uplink: &Uplink, provider: &CryptoProvider) -> Result<(), String> {
        let (certificate_file, key_file) = match (&uplink.client_cert_file, &uplink.client_key_file)
        {
            (None, None) => {
                self.identity = None;
                return Ok(());
            }
            (Some(certificate), Some(key)) => (certificate, key),
            _ => {
                return Err(format!(
                    "{CERTIFICATE} and uplink.client_key_file: set both or neither"
                ));
            }
        };
        match Identity::read(certificate_file, key_file, provider) {
            Ok(identity) => self.identity = Some(identity),
            Err(reason) => {
                let is_other = |last: &Identity| {
                    &last.certificate_file != certificate_file || &last.key_file != key_file
                };
                if self.identity.as_ref().is_none_or(is_other) {
                    return Err(reason);
                }
                let key = CERTIFICATE;
                self.troubles.push(Trouble { key, reason });
            }
        }
        Ok(())
    }
}

impl Identity {
    fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Self, String> {
        let of_certificate =
            |reason: String| format!("{CERTIFICATE} = {}: {reason}", certificate.display());
        let of_key =
            |reason: String| format!("uplink.client_key_file = {}: {reason}", key.display());
        let chain = certificates_of(certificate).map_err(of_certificate)?;
        let validity = chain
            .first()
            .and_then(|first| validity_of(first))
            .ok_or_else(|| of_certificate("its first certificate cannot be read".into()))?;
        let key_pem = content_of(key).map_err(of_key)?;
        let private = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|_| of_key("holds no private key as PEM without a password".into()))?;
        CertifiedKey::from_der(chain.clone(), private.clone_key(), provider).map_err(|error| {
            of_certificate(format!(
                "does not go with the key in {}: {error}",
                key.display()
            ))
        })?;
        Ok(Self {
            certificate_file: certificate.to_owned(),
            key_file: key.to_owned(),
            chain,
            key: private,
            validity,
        })
    }
}

fn content_of(path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // One byte more than allowed tells that there is more.
    let mut some = file.take(FILE_BYTES_MAX + 1);
    some.read_to_end(&mut content)
        .map_err(|error| error.to_string())?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(content)
}

fn certificates_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let content = content_of(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err("holds no certificate as PEM".into()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("is no good PEM ({error})")),
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("holds a certificate that cannot be read ({error})"))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(format!(
            "this system knows no authorities for certificates: set {CA}, or install \
             ca-certificates"
        ));
    }
    Ok(roots)
}

fn validity_of(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let validity = certificate.tbs_certificate.validity;
    let wall = |time: x509_cert::time::Time| {
        let millis = time.to_unix_duration().as_millis();
        Wall::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    };
    Some(Validity {
        not_before: wall(validity.not_before),
        not_after: wall(validity.not_after),
    })
}
