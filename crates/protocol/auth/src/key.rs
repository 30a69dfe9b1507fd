//! Keys: of entities, of sessions, and of services.

use std::fmt;

use aes::Aes128;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carmine_codec::{Coded, DecodeError, Decoder, Encoder};
use carmine_types::UTime;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

use crate::{AuthError, Result};

/// Bytes of the secret that both ends of a connection share in secure mode.
pub const SESSION_SECRET_BYTES: usize = 64;
/// Bytes of the key of AES-128.
const AES128_BYTES: usize = 16;
/// What all of Ceph's AES-CBC begins with.
const IV: &[u8; 16] = b"cephsageyudagreg";
/// Encoded key without its secret: type, time, length.
const HEAD_BYTES: usize = 12;

/// What a key is for. Ceph 19 has AES-256 as type 2, which this program does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// AES-128 in CBC mode.
    Aes128,
}

impl KeyType {
    const AES128: u16 = 1;

    fn number(self) -> u16 {
        match self {
            KeyType::Aes128 => Self::AES128,
        }
    }

    /// Bytes of a secret of this type.
    fn secret_bytes(self) -> usize {
        match self {
            KeyType::Aes128 => AES128_BYTES,
        }
    }
}

/// Bytes that are wiped when they are dropped, and that no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a secret of {} bytes", self.0.len())
    }
}

impl Secret {
    /// So many random bytes.
    ///
    /// # Errors
    /// [`AuthError::NoRandom`].
    pub fn random(len: usize) -> Result<Secret> {
        let mut secret = Secret(vec![0; len]);
        getrandom::fill(&mut secret.0).map_err(|e| AuthError::NoRandom(e.to_string()))?;
        Ok(secret)
    }
}

/// A random number, not zero.
///
/// # Errors
/// [`AuthError::NoRandom`].
pub fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| AuthError::NoRandom(e.to_string()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// A key: an entity's, a session's or a service's (Ceph's `CryptoKey`).
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    kind: KeyType,
    created: UTime,
    secret: Secret,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, created {})", self.kind, self.created)
    }
}

impl Key {
    /// A new random key.
    ///
    /// # Errors
    /// [`AuthError::NoRandom`].
    pub fn random(now: UTime) -> Result<Key> {
        let kind = KeyType::Aes128;
        Ok(Key { kind, created: now, secret: Secret::random(kind.secret_bytes())? })
    }

    /// The key in the text that keyrings have.
    ///
    /// # Errors
    /// [`AuthError::BadKey`] says what is wrong with it.
    pub fn from_base64(text: &str) -> Result<Key> {
        let bytes = STANDARD.decode(text.trim()).map(Secret);
        let bytes = bytes.map_err(|e| AuthError::BadKey(format!("the key is not base64: {e}")))?;
        let key = Decoder::all(&bytes.0, "key", |d| d.get::<Key>());
        key.map_err(|e| AuthError::BadKey(format!("the key cannot be used: {e}")))
    }

    /// The text that keyrings have.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        let bytes = Secret(Encoder::collect(|e| self.put(e)));
        Zeroizing::new(STANDARD.encode(&bytes.0))
    }

    /// The secret itself, for the mode that encrypts connections and for signatures.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret.0
    }

    /// Encrypts these bytes; the result is at most 16 bytes longer.
    pub(crate) fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        let key: &[u8; AES128_BYTES] =
            self.secret.0.as_slice().try_into().expect("a key has the length of its type");
        cbc::Encryptor::<Aes128>::new(key.into(), IV.into()).encrypt_padded_vec::<Pkcs7>(plain)
    }

    /// Decrypts what [`Key::encrypt`] made; `None`: it was made with another key, or changed.
    pub(crate) fn decrypt(&self, bytes: &[u8]) -> Option<Secret> {
        let key: &[u8; AES128_BYTES] =
            self.secret.0.as_slice().try_into().expect("a key has the length of its type");
        cbc::Decryptor::<Aes128>::new(key.into(), IV.into())
            .decrypt_padded_vec::<Pkcs7>(bytes)
            .ok()
            .map(Secret)
    }

    /// HMAC-SHA256 of what a peer has sent, which it signs at the end of the handshake.
    #[must_use]
    pub fn sign(&self, bytes: &[u8]) -> [u8; 32] {
        self.mac(bytes).finalize().into_bytes().into()
    }

    /// Whether this is the signature of these bytes, compared in constant time.
    #[must_use]
    pub fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.mac(bytes).verify_slice(signature).is_ok()
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret.0).expect("any length is a key of HMAC");
        mac.update(bytes);
        mac
    }
}

/// u16 type, utime created, u16 length, bytes.
impl Coded for Key {
    const BYTES_MIN: usize = HEAD_BYTES;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u16(self.kind.number());
        e.utime(self.created);
        e.u16(self.secret.0.len() as u16);
        e.bytes(&self.secret.0);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Key> {
        let kind = match d.u16()? {
            KeyType::AES128 => KeyType::Aes128,
            other => {
                return Err(DecodeError::BadValue {
                    what: "type of a key (only 1, AES-128, is known)",
                    value: other.into(),
                });
            }
        };
        let created = d.utime()?;
        let len = d.u16()?;
        if usize::from(len) != kind.secret_bytes() {
            return Err(DecodeError::BadValue { what: "length of an AES-128 key", value: len.into() });
        }
        Ok(Key { kind, created, secret: Secret(d.bytes(len.into())?.to_vec()) })
    }
}
