//! `Credentials`: how a client authenticates itself.

use std::fmt;

use crate::info::ConnectInfo;

#[cfg(feature = "nkeys")]
pub use self::nkeys::NkeyError;

/// How a client authenticates itself.
///
/// Keys and credentials files (`nkey`, `from_file`, `from_text`) need TLS cryptography: the features `tls`,
/// `tls-ring` or `tls-aws-lc-rs` of the facade.
#[derive(Clone)]
pub struct Credentials(pub(super) CredentialKind);

#[derive(Clone)]
pub(super) enum CredentialKind {
    Password {
        user: String,
        password: String,
    },
    Token(String),
    #[cfg(feature = "nkeys")]
    Nkey(nkeys::Nkey),
}

impl Credentials {
    /// A user and a password.
    #[must_use]
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(CredentialKind::Password { user: user.into(), password: password.into() })
    }

    /// A token.
    #[must_use]
    pub fn token(token: impl Into<String>) -> Self {
        Self(CredentialKind::Token(token.into()))
    }

    /// Adds the members of CONNECT that authenticate the client. A key signs the nonce of the server.
    pub(crate) fn add_to(&self, connect: &mut ConnectInfo, nonce: &str) {
        match &self.0 {
            CredentialKind::Password { user, password } => {
                (connect.user, connect.pass) = (Some(user.clone()), Some(password.clone()));
            }
            CredentialKind::Token(token) => connect.auth_token = Some(token.clone()),
            #[cfg(feature = "nkeys")]
            CredentialKind::Nkey(nkey) => nkey.add_to(connect, nonce),
        }
        #[cfg(not(feature = "nkeys"))]
        let _ = nonce;
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            CredentialKind::Password { .. } => "Credentials::password(..)",
            CredentialKind::Token(_) => "Credentials::token(..)",
            #[cfg(feature = "nkeys")]
            CredentialKind::Nkey(_) => "Credentials::nkey(..)",
        })
    }
}

/// Ed25519 keys (ADR-14): a seed is Base32 of a prefix of two bytes, 32 bytes, and a CRC-16.
#[cfg(feature = "nkeys")]
mod nkeys {
    use std::fmt;
    use std::path::Path;
    use std::sync::Arc;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use tidegate_tls::Provider;
    use tidegate_tls::rustls::SignatureScheme;
    use tidegate_tls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tidegate_tls::rustls::sign::SigningKey;

    use super::{CredentialKind, Credentials};
    use crate::info::ConnectInfo;

    #[derive(Clone)]
    pub(in super::super) struct Nkey {
        key: Arc<dyn SigningKey>,
        public: String,
        jwt: Option<String>,
    }

    /// Why there are no credentials.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum NkeyError {
        /// The seed is no Base32, or has another length or checksum.
        Seed,
        /// The key is not that of a user.
        NotUser,
        /// The text has no JSON web token, or no seed, between its marks.
        Marks,
        /// The file cannot be read.
        File(std::io::Error),
        /// The cryptography does not take the key.
        Cryptography,
    }

    impl fmt::Display for NkeyError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Seed => f.write_str("the seed is damaged: it has 58 characters and begins with SU"),
                Self::NotUser => f.write_str("the seed is not that of a user: it must begin with SU"),
                Self::Marks => {
                    f.write_str("the credentials have no USER JWT, or no USER NKEY SEED, between their marks")
                }
                Self::File(error) => write!(f, "the credentials cannot be read: {error}"),
                Self::Cryptography => f.write_str("the cryptography of the provider has no Ed25519"),
            }
        }
    }

    impl std::error::Error for NkeyError {}

    impl Credentials {
        /// A key, by its seed (`SU...`).
        ///
        /// # Errors
        /// [`NkeyError`] if it is no seed of a user.
        pub fn nkey(provider: &Provider, seed: &str) -> Result<Self, NkeyError> {
            Ok(Self(CredentialKind::Nkey(Nkey::new(provider, seed, None)?)))
        }

        /// The JSON web token and the key of a credentials file (`.creds`).
        ///
        /// # Errors
        /// [`NkeyError`] if the file cannot be read, or lacks one of them.
        pub fn from_file(provider: &Provider, path: impl AsRef<Path>) -> Result<Self, NkeyError> {
            let text = std::fs::read_to_string(path).map_err(NkeyError::File)?;
            Self::from_text(provider, &text)
        }

        /// As [`from_file`](Self::from_file), from the text of such a file.
        ///
        /// # Errors
        /// [`NkeyError`] if the text lacks one of them.
        pub fn from_text(provider: &Provider, text: &str) -> Result<Self, NkeyError> {
            let jwt = between(text, "USER JWT").ok_or(NkeyError::Marks)?;
            let seed = between(text, "USER NKEY SEED").ok_or(NkeyError::Marks)?;
            Ok(Self(CredentialKind::Nkey(Nkey::new(provider, seed, Some(jwt.to_owned()))?)))
        }
    }

    impl Nkey {
        fn new(provider: &Provider, seed: &str, jwt: Option<String>) -> Result<Self, NkeyError> {
            let seed = seed_of(seed)?;
            let pkcs8 = PrivatePkcs8KeyDer::from([PKCS8, &seed].concat());
            let key = provider.crypto().key_provider.load_private_key(PrivateKeyDer::from(pkcs8));
            let key = key.map_err(|_| NkeyError::Cryptography)?;
            let spki = key.public_key().ok_or(NkeyError::Cryptography)?;
            let public = spki.last_chunk::<32>().ok_or(NkeyError::Cryptography)?;
            let mut bytes = vec![USER];
            bytes.extend_from_slice(public);
            bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
            Ok(Self { public: encode_base32(&bytes), key, jwt })
        }

        pub(super) fn add_to(&self, connect: &mut ConnectInfo, nonce: &str) {
            let signer = self.key.choose_scheme(&[SignatureScheme::ED25519]);
            let signature = signer.and_then(|signer| signer.sign(nonce.as_bytes()).ok());
            connect.sig = signature.map(|signature| URL_SAFE_NO_PAD.encode(signature));
            connect.jwt.clone_from(&self.jwt);
            if self.jwt.is_none() {
                connect.nkey = Some(self.public.clone());
            }
        }
    }

    /// The content between the marks of a credentials file.
    fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let begin = text.split_once(&format!("BEGIN {name}"))?.1;
        let lines = begin.lines().skip(1).map(str::trim);
        lines.take_while(|line| !line.contains("END ")).find(|line| !line.is_empty())
    }

    /// The 32 bytes of a user's seed.
    fn seed_of(text: &str) -> Result<[u8; 32], NkeyError> {
        let bytes = decode_base32(text.trim()).ok_or(NkeyError::Seed)?;
        let (body, checksum) = bytes.split_last_chunk::<2>().ok_or(NkeyError::Seed)?;
        let (prefix, seed) = body.split_first_chunk::<2>().ok_or(NkeyError::Seed)?;
        if crc16(body) != u16::from_le_bytes(*checksum) || prefix[0] & 0xf8 != SEED {
            return Err(NkeyError::Seed);
        }
        if (prefix[0] & 7) << 5 | prefix[1] >> 3 != USER {
            return Err(NkeyError::NotUser);
        }
        seed.try_into().map_err(|_| NkeyError::Seed)
    }

    fn decode_base32(text: &str) -> Option<Vec<u8>> {
        let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len()), 0_u32, 0);
        if text.len() > SEED_CHARACTERS_MAX {
            return None;
        }
        for character in text.bytes() {
            let value = BASE32.iter().position(|other| *other == character)? as u32;
            (bits, count) = (bits << 5 | value, count + 5);
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
                bits &= (1 << count) - 1;
            }
        }
        Some(bytes)
    }

    fn encode_base32(bytes: &[u8]) -> String {
        let (mut text, mut bits, mut count) = (String::new(), 0_u32, 0);
        let character = |value: u32| char::from(BASE32[(value & 31) as usize]);
        for byte in bytes {
            (bits, count) = ((bits & 31) << 8 | u32::from(*byte), count + 8);
            while count >= 5 {
                count -= 5;
                text.push(character(bits >> count));
            }
        }
        if count > 0 {
            text.push(character(bits << (5 - count)));
        }
        text
    }

    /// CRC-16/XMODEM.
    fn crc16(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, byte| {
            (0..8).fold(
                crc ^ u16::from(*byte) << 8,
                |crc, _| {
                    if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
                },
            )
        })
    }

    const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    const SEED: u8 = 18 << 3;
    const USER: u8 = 20 << 3;
    const SEED_CHARACTERS_MAX: usize = 128;
    /// An Ed25519 key without its 32 bytes (RFC 8410 §7).
    const PKCS8: &[u8] = &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A pair from the documentation of the Go package `nkeys`.
        #[test]
        fn base32_is_its_own_inverse_and_a_damaged_seed_is_refused() {
            for length in 0..40_u8 {
                let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
                assert_eq!(decode_base32(&encode_base32(&bytes)), Some(bytes));
            }
            assert_eq!(crc16(b"123456789"), 0x31c3);
            for damaged in ["", "SU", "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBB", "su"] {
                assert!(matches!(seed_of(damaged), Err(NkeyError::Seed)), "{damaged}");
            }
        }
    }
}
