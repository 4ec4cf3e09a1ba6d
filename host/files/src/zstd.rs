//! Decompresses zstd data: all of its frames, with their checksums, or an error in plain words.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a frame.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The first bytes of a frame that decoders skip, without the lower half of the first byte.
const SKIPPED_MAGIC: [u8; 4] = [0x50, 0x2A, 0x4D, 0x18];

/// Whether data begins like zstd data.
#[must_use]
pub fn is_zstd(bytes: &[u8]) -> bool {
    let Some([first, rest @ ..]) = bytes.first_chunk::<4>() else { return false };
    let is_skipped = [first & 0xF0, rest[0], rest[1], rest[2]] == SKIPPED_MAGIC;
    is_skipped || bytes.starts_with(&FRAME_MAGIC)
}

/// The content of zstd data.
///
/// Data may be several frames (RFC 8878, 3.1): `cat` of two files, or the output of parallel compressors. A small input
/// can have any amount of content, so callers limit what they read.
pub struct ZstdReader<'a> {
    /// What is not decoded yet.
    rest: &'a [u8],
    decoder: FrameDecoder,
    /// Whether a frame is open.
    is_open: bool,
    /// Bytes of content so far.
    read_bytes: u64,
}

impl fmt::Debug for ZstdReader<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ZstdReader");
        shown.field("rest_bytes", &self.rest.len()).field("read_bytes", &self.read_bytes);
        shown.finish_non_exhaustive()
    }
}

impl<'a> ZstdReader<'a> {
    /// A reader of whole data.
    #[must_use]
    pub fn new(data: &'a [u8]) -> ZstdReader<'a> {
        ZstdReader { rest: data, decoder: FrameDecoder::new(), is_open: false, read_bytes: 0 }
    }

    /// Opens the next frame. Returns whether there is one.
    fn open_frame(&mut self) -> io::Result<bool> {
        while !self.rest.is_empty() {
            if !is_zstd(self.rest) {
                return Err(self.foreign());
            }
            match self.decoder.init(&mut self.rest) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let after = usize::try_from(length).ok().and_then(|at| self.rest.get(at..));
                    self.rest = after.ok_or_else(|| self.cut_off())?;
                }
                Err(error) => return Err(self.explain(&error)),
            }
        }
        Ok(false)
    }

    /// Closes a frame whose content was read.
    fn close_frame(&mut self) -> io::Result<()> {
        self.is_open = false;
        let expected = self.decoder.get_checksum_from_data();
        if expected.is_some() && expected != self.decoder.get_calculated_checksum() {
            let reason = format!(
                "the compressed data is damaged: the checksum after {} bytes of content is wrong; get the file again",
                self.read_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(())
    }

    /// An error of the decoder in plain words, since its own texts are for its developers.
    fn explain(&self, error: &FrameDecoderError) -> io::Error {
        let reason = match error {
            _ if is_early_end(error) => return self.cut_off(),
            FrameDecoderError::DictNotProvided { .. } => {
                "the data was compressed with a dictionary; decompress it with `zstd -d -D DICTIONARY FILE` first".into()
            }
            FrameDecoderError::WindowSizeTooBig { .. } => {
                "the data was compressed with a window of more than 100 MiB; decompress it with `zstd -d --long=31 FILE` first".into()
            }
            _ => format!(
                "the compressed data is damaged after {} bytes of content; get the file again",
                self.read_bytes
            ),
        };
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    fn cut_off(&self) -> io::Error {
        let reason = format!(
            "the compressed data ends early, after {} bytes of content; get the whole file, or read what is there with `zstd -dc FILE`",
            self.read_bytes
        );
        io::Error::new(io::ErrorKind::UnexpectedEof, reason)
    }

    fn foreign(&self) -> io::Error {
        // Less than the beginning of a frame may be one that was cut off.
        let reason = format!(
            "the {} bytes after {} bytes of content are not zstd data; get the file again, or read what is before them with `zstd -dc FILE`",
            self.rest.len(),
            self.read_bytes
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}

/// Whether an error is that the data ended.
fn is_early_end(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let io_error = cause.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        next = cause.source();
    }
    false
}

impl Read for ZstdReader<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        while self.is_open || self.open_frame()? {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.rest, one);
                decoded.map_err(|error| self.explain(&error))?;
            }
            let read = self.decoder.read(target)?;
            self.read_bytes += read as u64;
            if read > 0 {
                return Ok(read);
            }
            self.close_frame()?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn compressed(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn read(data: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        ZstdReader::new(data).read_to_string(&mut text)?;
        Ok(text)
    }

    fn error(data: &[u8]) -> String {
        read(data).unwrap_err().to_string()
    }

    /// A frame that decoders skip.
    fn skipped() -> Vec<u8> {
        [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0][..], b"any"].concat()
    }

    #[test]
    fn all_frames_are_read() {
        let [one, two] = ["one\n".repeat(9_000), "two\n".repeat(90_000)];
        let both = [skipped(), compressed(&one), skipped(), compressed(""), compressed(&two)];
        let both = [both.concat(), skipped()].concat();
        assert!(is_zstd(&both) && is_zstd(&compressed("")));
        assert_eq!(read(&both).unwrap(), one + &two);
        assert_eq!(read(b"").unwrap(), "");
        assert!(!is_zstd(b"") && !is_zstd(b"PK\x03\x04") && !is_zstd(b"{\"a\":1}"));
    }

    #[test]
    fn damage_is_an_error_in_plain_words() {
        let whole = compressed(&"one two three\n".repeat(900));
        let two = [&whole[..], &whole[..]].concat();
        for cut in 1..whole.len() {
            for data in [&whole[..cut], &two[..whole.len() + cut]] {
                let error = error(data);
                assert!(error.contains("get the"), "{cut}: {error}");
                assert!(!error.contains("Error") && !error.contains('{'), "{cut}: {error}");
            }
        }
        assert!(error(&whole[..whole.len() / 2]).contains("ends early, after 0 bytes"));
        let behind = error(&[&whole[..], b"\0\0\0\0\0"].concat());
        assert!(behind.starts_with("the 5 bytes after 12600 bytes of content are not"), "{behind}");
        let mut wrong = whole.clone();
        *wrong.last_mut().unwrap() ^= 1;
        assert!(error(&wrong).contains("checksum after 12600 bytes"), "{}", error(&wrong));
        assert!(error(&skipped()[..9]).contains("ends early"));
    }
}
