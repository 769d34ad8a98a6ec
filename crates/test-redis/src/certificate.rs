//! A certificate for a server on this machine, and the authority that vouches for it.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Whom the certificate is for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Writes `ca.pem`, `server.pem` and `server.key` into `directory`.
pub(crate) fn write(directory: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate().expect("a key");
    let authority_certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new(NAMES.map(str::to_owned)).expect("these names are valid");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = KeyPair::generate().expect("a key");
    let server_certificate = server.signed_by(&server_key, &issuer).expect("a certificate");

    for (path, pem) in [
        (authority_path(directory), authority_certificate.pem()),
        (directory.join("server.pem"), server_certificate.pem()),
        (directory.join("server.key"), server_key.serialize_pem()),
    ] {
        fs::write(path, pem).expect("a file in a temporary directory");
    }
}

/// The authority's certificate among what [`write()`] wrote.
pub(crate) fn authority_path(directory: &Path) -> PathBuf {
    directory.join("ca.pem")
}
