//! Files of any size that come from a seed, their digests, and a folder that goes away.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::scope;

const BLOCK: usize = 256 * 1024;

/// A folder in memory that is removed with all it holds.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch> {
        let path = scope::scratch_root().join(scope::unique());
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Scratch { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes `len` bytes that follow from `seed` and returns their digest.
    pub(crate) fn generate(&self, name: &str, len: u64, seed: u64) -> Result<String> {
        let path = self.file(name);
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let mut out = BufWriter::with_capacity(BLOCK, file);
        let mut hash = Sha256::new();
        let mut source = Noise::new(seed);
        let mut left = len;
        let mut block = vec![0; BLOCK];
        while left > 0 {
            let take = usize::try_from(left.min(BLOCK as u64)).context("a block fits")?;
            source.fill(&mut block[..take]);
            hash.update(&block[..take]);
            out.write_all(&block[..take]).context("writing a generated file")?;
            left -= take as u64;
        }
        out.flush().context("writing a generated file")?;
        Ok(hex(&hash.finalize()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Bytes that follow from a seed and never change: SplitMix64.
pub(crate) struct Noise {
    state: u64,
}

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for word in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }
}

/// A file of any length that nobody stores: noise, with the number of each block in front of it, so
/// that no two blocks are equal.
pub(crate) struct Blocks {
    block: Vec<u8>,
    number: u64,
    left: u64,
}

impl Blocks {
    pub(crate) fn new(len: u64) -> Blocks {
        let mut block = vec![0; BLOCK];
        Noise::new(len).fill(&mut block);
        Blocks { block, number: 0, left: len }
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let len = self.left.min(BLOCK as u64);
        self.block[..8].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        self.left -= len;
        (len > 0).then(|| &self.block[..len as usize])
    }

    /// The SHA-256 digest of a whole file.
    pub(crate) fn digest(len: u64) -> String {
        let mut hash = Sha256::new();
        let mut blocks = Blocks::new(len);
        while let Some(block) = blocks.next() {
            hash.update(block);
        }
        hex(&hash.finalize())
    }
}

/// The SHA-256 digest of a file.
pub(crate) fn digest(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    digest_of(file)
}

/// The SHA-256 digest of all that can be read.
pub(crate) fn digest_of(mut from: impl Read) -> Result<String> {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let n = from.read(&mut block).context("reading what is to be digested")?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&block[..n]);
    }
}

/// Wants the file at `path` to have this digest.
pub(crate) fn expect_digest(path: &Path, expected: &str) -> Result<()> {
    let found = digest(path)?;
    let len = fs::metadata(path).map(|m| m.len()).unwrap_or(0);
    ensure!(found == expected, "{} ({len} bytes) differs: {found}", path.display());
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_for_the_same_seed() {
        let mut a = [0; 20];
        let mut b = [0; 20];
        Noise::new(7).fill(&mut a);
        Noise::new(7).fill(&mut b);
        assert_eq!(a, b);
        Noise::new(8).fill(&mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn no_two_blocks_are_equal_and_the_last_is_short() {
        let mut blocks = Blocks::new(2 * BLOCK as u64 + 1);
        let first = blocks.next().unwrap().to_vec();
        assert_ne!(blocks.next().unwrap(), first);
        assert_eq!(blocks.next().unwrap(), [2]);
        assert!(blocks.next().is_none());
        assert_eq!(Blocks::digest(100), Blocks::digest(100));
        assert_ne!(Blocks::digest(100), Blocks::digest(101));
    }

    #[test]
    fn generated_file_has_the_digest_it_says() {
        let scratch = Scratch::new().unwrap();
        let expected = scratch.generate("x", 300_001, 1).unwrap();
        assert_eq!(fs::metadata(scratch.file("x")).unwrap().len(), 300_001);
        expect_digest(&scratch.file("x"), &expected).unwrap();
        assert!(expect_digest(&scratch.file("x"), "00").is_err());
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!path.exists());
    }
}
