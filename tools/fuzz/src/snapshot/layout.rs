//! The bytes of a snapshot file with the eyes of somebody who changes them (`docs/internals/format.md` shows them as tables): taking
//! one apart and putting it together with the right lengths and checksums. It asks for no more than it needs for that;
//! what a snapshot file has to be is the node's business.

/// The part of a header that always has the same length, without the checksum behind it.
const FIXED_HEADER_BYTES: usize = 80;
/// Where the header says how long it is.
const HEADER_LENGTH_AT: usize = 12;
/// A checksum.
pub(super) const CRC_BYTES: usize = 4;
/// Length and checksum before each part.
pub(super) const FRAME_BYTES: usize = 8;
const FOOTER_BYTES: usize = 32;
/// Where the footer has the last part's checksum, and where its own.
const FOOTER_CHAIN_AT: usize = 24;
const FOOTER_CRC_AT: usize = 28;

/// A snapshot file in its pieces.
pub struct Layout {
    /// Without its checksum.
    pub header: Vec<u8>,
    /// Without their frames.
    pub parts: Vec<Vec<u8>>,
}

impl Layout {
    /// Takes a file apart. Bytes behind the last part that fits are not looked at, nor are checksums.
    pub fn of(file: &[u8]) -> Option<Self> {
        let (header_end, end) = bounds(file)?;
        let mut parts = Vec::new();
        let mut at = header_end;
        while let Some(part_end) = part_end(file, at, end) {
            parts.push(file[at + FRAME_BYTES..part_end].to_vec());
            at = part_end;
        }
        Some(Self {
            header: file[..header_end - CRC_BYTES].to_vec(),
            parts,
        })
    }

    /// The whole file, every length and checksum as it should be.
    pub fn file(&self) -> Vec<u8> {
        let mut file = self.header.clone();
        file.resize(file.len() + CRC_BYTES, 0);
        let header_bytes = file.len() as u32;
        if let Some(length) = file.get_mut(HEADER_LENGTH_AT..HEADER_LENGTH_AT + 4) {
            length.copy_from_slice(&header_bytes.to_le_bytes());
        }
        for part in &self.parts {
            file.extend((part.len() as u32).to_le_bytes());
            file.extend([0; CRC_BYTES]);
            file.extend(part);
        }
        file.extend(b"SNAPDONE");
        file.extend((self.parts.len() as u64).to_le_bytes());
        file.extend(
            self.parts
                .iter()
                .map(|part| part.len() as u64)
                .sum::<u64>()
                .to_le_bytes(),
        );
        file.extend([0; 2 * CRC_BYTES]);
        put_checksums(&mut file, header_bytes as usize);
        file
    }
}

/// The file with its checksums put right, and nothing else; `None` if one cannot see where they would be.
pub fn repair(file: &[u8]) -> Option<Vec<u8>> {
    let (header_end, _) = bounds(file)?;
    let mut repaired = file.to_vec();
    put_checksums(&mut repaired, header_end);
    Some(repaired)
}

/// Where the header and where the parts end.
fn bounds(file: &[u8]) -> Option<(usize, usize)> {
    let end = file.len().checked_sub(FOOTER_BYTES)?;
    let header_end = u32_at(file, HEADER_LENGTH_AT)?;
    (FIXED_HEADER_BYTES + CRC_BYTES..=end)
        .contains(&header_end)
        .then_some((header_end, end))
}

/// Where the part ends whose frame is at `at`, if it fits.
fn part_end(file: &[u8], at: usize, end: usize) -> Option<usize> {
    let part_end = at.checked_add(FRAME_BYTES)?.checked_add(u32_at(file, at)?)?;
    (part_end <= end).then_some(part_end)
}

/// Each checksum covers the one before it, so they are put from the first on.
fn put_checksums(file: &mut [u8], header_end: usize) {
    let end = file.len() - FOOTER_BYTES;
    let mut chain = crc32c::crc32c(&file[..header_end - CRC_BYTES]);
    put(file, header_end - CRC_BYTES, chain);
    let mut at = header_end;
    while let Some(part_end) = part_end(file, at, end) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&chain.to_le_bytes()), &file[at..at + 4]);
        chain = crc32c::crc32c_append(crc, &file[at + FRAME_BYTES..part_end]);
        put(file, at + CRC_BYTES, chain);
        at = part_end;
    }
    put(file, end + FOOTER_CHAIN_AT, chain);
    let crc = crc32c::crc32c(&file[end..end + FOOTER_CRC_AT]);
    put(file, end + FOOTER_CRC_AT, crc);
}

fn put(file: &mut [u8], at: usize, crc: u32) {
    file[at..at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

fn u32_at(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}
