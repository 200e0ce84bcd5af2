//! A number that stands for some bytes, the same in every process, release and machine.

use std::net::{IpAddr, SocketAddr};

/// The 64-bit FNV-1a hash, with its bits mixed at the end so that each depends on every byte.
///
/// For versions, checksums against accidents and fair shares; whoever chooses the bytes can choose
/// the number too.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// With these bytes too.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    /// With this text and its end, so that `ab`, `c` differs from `a`, `bc`.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        // No byte of UTF-8.
        self.bytes(text.as_bytes()).bytes(&[0xff])
    }

    /// With this address.
    #[must_use]
    pub fn address(self, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(v4) => self.bytes(&v4.octets()),
            IpAddr::V6(v6) => self.bytes(&v6.octets()),
        };
        ip.bytes(&address.port().to_be_bytes())
    }

    /// The number. (The mixing is the last step of SplitMix64.)
    #[must_use]
    pub const fn finish(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_for_ever_and_ends_of_texts_count() {
        assert_eq!(Digest::new().bytes(b"foobar").0, 0x8594_4171_f739_67e8);
        let of = |texts: &[&str]| texts.iter().fold(Digest::new(), |d, t| d.text(t)).finish();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        let port = |port: u16| Digest::new().address(([10, 0, 0, 1], port).into()).finish();
        assert!((port(1) ^ port(2)).count_ones() > 16);
    }
}
