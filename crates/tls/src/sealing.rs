//! `SealingKey`: authenticated encryption and digests with a secret of the application, by a provider's cryptography.
//!
//! HKDF (RFC 5869) derives a key of its own from the secret for each salt, so no nonce repeats; the AEAD is that of a TLS
//! 1.3 cipher suite.

use std::fmt;

use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, OutboundChunks, OutboundPlainMessage};
use rustls::{ContentType, ProtocolVersion, Tls13CipherSuite};

use crate::provider::{AEAD_KEY_BYTES, Provider};

/// A secret that encrypts and authenticates bytes that a peer keeps, such as the token of a QUIC Retry. Servers with the same secret
/// and the same cryptography have the same key.
///
/// ```
/// use tidegate_tls::{Provider, SealingKey};
///
/// let key = SealingKey::new(&Provider::aws_lc_rs(), &[7; 32]).expect("a cipher suite");
/// let sealed = key.seal(b"a salt that is used once", b"ebb").expect("it is short");
/// assert_eq!(key.open(b"a salt that is used once", &sealed).as_deref(), Some(&b"ebb"[..]));
/// assert_eq!(key.open(b"another salt", &sealed), None);
/// assert_ne!(key.digest(b"ebb"), key.digest(b"flow"));
/// ```
#[derive(Clone)]
pub struct SealingKey {
    suite: &'static Tls13CipherSuite,
    secret: [u8; 32],
}

impl SealingKey {
    /// A key with 32 secret random bytes; `None` if the provider has no cipher suite with keys of 256 bits.
    #[must_use]
    pub fn new(provider: &Provider, secret: &[u8; 32]) -> Option<Self> {
        provider.sealing().map(|suite| Self { suite, secret: *secret })
    }

    /// A digest that cannot be computed without the secret.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        let mut digest = [0; 32];
        let expander = self.suite.hkdf_provider.extract_from_secret(None, &self.secret);
        // The length of the output is permitted by any hash.
        let _ = expander.expand_slice(&[DIGEST_LABEL, bytes], &mut digest);
        digest
    }

    /// Encrypts bytes, with a salt that is used once. `None` beyond 16,384 bytes, the plaintext of a TLS record.
    #[must_use]
    pub fn seal(&self, salt: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        seal(self.suite, self.derive(salt)?, plain)
    }

    /// Decrypts bytes of [`seal`](Self::seal) with the same salt; `None` if they are not authentic.
    #[must_use]
    pub fn open(&self, salt: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        open(self.suite, self.derive(salt)?, sealed)
    }

    fn derive(&self, salt: &[u8]) -> Option<(AeadKey, Iv)> {
        derive(self.suite, (salt, &self.secret), [&[KEY_LABEL], &[NONCE_LABEL]])
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

/// The key and the nonce of one salt, each with its label.
pub(crate) fn derive(
    suite: &Tls13CipherSuite,
    (salt, secret): (&[u8], &[u8]),
    [key_label, nonce_label]: [&[&[u8]]; 2],
) -> Option<(AeadKey, Iv)> {
    let expander = suite.hkdf_provider.extract_from_secret(Some(salt), secret);
    let (mut key, mut nonce) = ([0; AEAD_KEY_BYTES], [0; 12]);
    expander.expand_slice(key_label, &mut key).ok()?;
    expander.expand_slice(nonce_label, &mut nonce).ok()?;
    Some((key.into(), nonce.into()))
}

pub(crate) fn seal(suite: &Tls13CipherSuite, (key, nonce): (AeadKey, Iv), plain: &[u8]) -> Option<Vec<u8>> {
    // A longer record cannot be decrypted.
    if plain.len() > RECORD_BYTES_MAX {
        return None;
    }
    let payload = OutboundChunks::Single(plain);
    let (typ, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
    let message = OutboundPlainMessage { typ, version, payload };
    let sealed = suite.aead_alg.encrypter(key, nonce).encrypt(message, 0).ok()?;
    Some(sealed.payload.as_ref().to_vec())
}

pub(crate) fn open(suite: &Tls13CipherSuite, (key, nonce): (AeadKey, Iv), sealed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = sealed.to_vec();
    let message = InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, &mut bytes);
    let plain = suite.aead_alg.decrypter(key, nonce).decrypt(message, 0).ok()?;
    Some(plain.payload.to_vec())
}

/// The plain bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16_384;

const KEY_LABEL: &[u8] = b"tidegate sealing key";
const NONCE_LABEL: &[u8] = b"tidegate sealing nonce";
const DIGEST_LABEL: &[u8] = b"tidegate sealing digest ";
