//! A secret that requests must bear.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

/// A secret, with the file it was read from. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Where it stands.
    pub file: PathBuf,
    secret: Box<str>,
}

impl Token {
    /// Reads the secret of `file`, blanks and line ends around it left out.
    ///
    /// # Errors
    /// It cannot be read, or holds no token; the text names the file and the cure.
    pub fn read(file: &Path) -> Result<Self, String> {
        let mut text = String::new();
        let opened = fs::File::open(file);
        opened
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let secret = text.trim();
        if secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            let rule = "holds no token; write one line of visible ASCII characters";
            return Err(format!("{} {rule}", file.display()));
        }
        Ok(Self {
            file: file.into(),
            secret: secret.into(),
        })
    }

    /// How a request bears it, as the value of `authorization`.
    #[must_use]
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    /// Whether `authorization`, the value of that header, bears it. The scheme is `Bearer`, in any case.
    #[must_use]
    pub fn is_borne_by(&self, authorization: &[u8]) -> bool {
        let split = authorization.split_at_checked(SCHEME.len());
        split
            .is_some_and(|(scheme, text)| scheme.eq_ignore_ascii_case(SCHEME) && self.matches(text))
    }

    /// Whether `text` is the secret. Takes the same time wherever the two differ.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let secret = self.secret.as_bytes();
        let differences = secret.iter().zip(text).fold(0, |all, (a, b)| all | (a ^ b));
        // Opaque, or the compiler might leave the loop at the first difference.
        secret.len() == text.len() && std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

const SCHEME: &[u8] = b"Bearer ";
/// Bytes of the longest file of a token.
const MAX_FILE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_itself_alone_and_is_never_printed() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("token");
        fs::write(&file, " s3cret\n").expect("written");
        let token = Token::read(&file).expect("a token");
        assert!(token.matches(b"s3cret"));
        for other in [&b""[..], b"s3cre", b"s3crets", b"S3cret", b" s3cret"] {
            assert!(!token.matches(other), "{other:?}");
        }
        assert!(!format!("{token:?}").contains("s3cret"));
    }

    #[test]
    fn it_is_borne_with_its_scheme_in_any_case() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("token");
        fs::write(&file, "s3cret").expect("written");
        let token = Token::read(&file).expect("a token");
        for good in [token.bearer().as_str(), "bearer s3cret", "BEARER s3cret"] {
            assert!(token.is_borne_by(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Basic s3cret",
            "s3cret",
            "Bearer  s3cret",
        ] {
            assert!(!token.is_borne_by(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("token");
        assert!(Token::read(&file).is_err_and(|e| e.contains("No such file")));
        for text in ["", "\n", "two words", "line\nline", "\u{e9}"] {
            fs::write(&file, text).expect("written");
            assert!(
                Token::read(&file).is_err_and(|e| e.contains("no token")),
                "{text:?}"
            );
        }
    }
}
