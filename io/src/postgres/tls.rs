//! How a server's certificate is judged.

use crate::postgres::address::AddressError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What of a certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// What makes encrypted connections.
pub fn connector(check: Check, roots: Option<&Path>) -> Result<MakeRustlsConnect, AddressError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions of TLS that rustls does");
    let config = match check {
        Check::Nothing => {
            let any = Arc::new(Anyone { provider });
            builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()
        }
        Check::Authority | Check::AuthorityAndName => {
            let known = Arc::new(authorities(roots)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(known, provider)
                .build()
                .map_err(|error| failed(roots, error))?;
            let verifier: Arc<dyn ServerCertVerifier> = match check {
                Check::AuthorityAndName => verifier,
                _ => Arc::new(AnyName { verifier }),
            };
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn failed(roots: Option<&Path>, error: impl std::fmt::Display) -> AddressError {
    let path = roots.map_or_else(|| "the system's store".into(), |path| path.display().to_string());
    AddressError::Certificates { path, reason: error.to_string() }
}

/// The authorities in a file, or those that the system knows.
fn authorities(roots: Option<&Path>) -> Result<RootCertStore, AddressError> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(roots, error))? {
                let certificate = certificate.map_err(|error| failed(roots, error))?;
                store.add(certificate).map_err(|error| failed(roots, error))?;
            }
        }
        // What cannot be read of the system's store is left out, as other programs do.
        None => drop(store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if store.is_empty() { Err(failed(roots, "there is no certificate of an authority in it")) } else { Ok(store) }
}

/// Takes every certificate: encrypted, and who is at the other end is not known.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes certificates of known authorities, whatever name they are for.
#[derive(Debug)]
struct AnyName {
    verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last, once the chain has been found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
