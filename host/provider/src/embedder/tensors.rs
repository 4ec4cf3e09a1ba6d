//! The tensors of a model2vec model: vectors, and optionally a weight and a row per token.

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// The most numbers of one vector.
const MAX_DIMENSIONS: usize = 16_384;

/// The vectors of tokens.
#[derive(Debug)]
pub(super) struct TokenTable {
    dimensions: usize,
    rows: Vec<f32>,
    /// By token; 1 without.
    weights: Option<Vec<f32>>,
    /// The row of a token; the token itself without.
    mapping: Option<Vec<f32>>,
}

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum TensorError {
    /// The file is not in the format.
    #[error("it is not in the safetensors format: {0:?}")]
    Format(safetensors::SafeTensorError),
    #[error("tensor {name}: {problem}")]
    Tensor { name: &'static str, problem: String },
}

impl TokenTable {
    pub(super) fn parse(bytes: &[u8]) -> Result<TokenTable, TensorError> {
        let file = SafeTensors::deserialize(bytes).map_err(TensorError::Format)?;
        let name = "embeddings";
        let view = file.tensor(name).map_err(|_| {
            let found = file.names().join(", ");
            TensorError::Tensor { name, problem: format!("missing; the file has: {found}") }
        })?;
        let dimensions = match view.shape() {
            [_, dimensions @ 1..=MAX_DIMENSIONS] => *dimensions,
            shape => {
                let problem = format!(
                    "its shape is {shape:?}; it must be tokens by at most {MAX_DIMENSIONS} numbers"
                );
                return Err(TensorError::Tensor { name, problem });
            }
        };
        Ok(TokenTable {
            dimensions,
            rows: numbers(name, &view)?,
            weights: list(&file, "weights")?,
            mapping: list(&file, "mapping")?,
        })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The weighted mean of the vectors of tokens; zeros for none.
    pub(super) fn mean(&self, tokens: impl Iterator<Item = u32>) -> Vec<f32> {
        let mut sum = vec![0.0; self.dimensions];
        let mut count = 0.0;
        for token in tokens {
            let token = token as usize;
            let Some(row) = self.row(token) else { continue };
            let weights = self.weights.as_ref();
            let weight = weights.and_then(|weights| weights.get(token)).copied().unwrap_or(1.0);
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
            count += 1.0;
        }
        if count > 0.0 {
            sum.iter_mut().for_each(|sum| *sum /= count);
        }
        sum
    }

    fn row(&self, token: usize) -> Option<&[f32]> {
        let row = match &self.mapping {
            Some(mapping) => *mapping.get(token)? as usize,
            None => token,
        };
        let start = row.checked_mul(self.dimensions)?;
        self.rows.get(start..start + self.dimensions)
    }
}

/// The numbers of a tensor that a model may have.
fn list(file: &SafeTensors<'_>, name: &'static str) -> Result<Option<Vec<f32>>, TensorError> {
    file.tensor(name).ok().map(|view| numbers(name, &view)).transpose()
}

/// The numbers of a tensor. Rows are numbers as well: models have far fewer than f32 counts exactly.
fn numbers(name: &'static str, view: &TensorView<'_>) -> Result<Vec<f32>, TensorError> {
    let bytes = view.data();
    let numbers: Vec<f32> = match view.dtype() {
        Dtype::F32 => read(bytes, f32::from_le_bytes),
        Dtype::F64 => read(bytes, |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::F16 => read(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => read(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Dtype::I8 => read(bytes, |bytes| f32::from(i8::from_le_bytes(bytes))),
        Dtype::I32 => read(bytes, |bytes| i32::from_le_bytes(bytes) as f32),
        Dtype::I64 => read(bytes, |bytes| i64::from_le_bytes(bytes) as f32),
        other => {
            let problem =
                format!("its type is {other:?}; read are F16, BF16, F32, F64, I8, I32, I64");
            return Err(TensorError::Tensor { name, problem });
        }
    };
    match numbers.iter().position(|number| !number.is_finite()) {
        Some(at) => {
            Err(TensorError::Tensor { name, problem: format!("number {at} is not finite") })
        }
        None => Ok(numbers),
    }
}

fn read<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().copied().map(number).collect()
}
