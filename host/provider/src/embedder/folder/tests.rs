//! Tests of models in folders: what is computed, and files that are damaged.

use std::fs;

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use serde_json::json;

use super::*;

const WORDS: [&str; 4] = ["[UNK]", "cat", "feline", "car"];

/// A tokenizer of whole words.
fn tokenizer() -> String {
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        WORDS.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0 },
        "padding": null,
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    })
    .to_string()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn tensors(tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    serialize(views, None).unwrap()
}

fn table() -> (&'static str, Dtype, Vec<usize>, Vec<u8>) {
    ("embeddings", Dtype::F32, vec![4, 2], bytes(&[9.0, 9.0, 3.0, 4.0, 6.0, 8.0, -4.0, 3.0]))
}

fn folder(config: &str, model: &[u8], tokenizer: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(CONFIG), config).unwrap();
    fs::write(folder.path().join(TENSORS), model).unwrap();
    fs::write(folder.path().join(TOKENIZER), tokenizer).unwrap();
    folder
}

fn open(folder: &Path) -> std::result::Result<FolderEmbedder, EmbedderError> {
    FolderEmbedder::open(folder, 1 << 20, Handle::current())
}

async fn embed(model: &FolderEmbedder, texts: &[&str]) -> Embeddings {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    model.embed(EmbedRequest { texts, ..EmbedRequest::default() }, None).await.unwrap()
}

fn problem(config: &str, model: &[u8], tokenizer: &str) -> String {
    open(folder(config, model, tokenizer).path()).unwrap_err().to_string()
}

#[tokio::test]
async fn a_text_is_the_mean_of_its_known_tokens() {
    let plain =
        folder(r#"{"normalize": false, "seq_length": 9}"#, &tensors(&[table()]), &tokenizer());
    let model = open(plain.path()).unwrap();
    let found = embed(&model, &["Cat feline", "unheard words", "car nonsense car"]).await;
    assert_eq!(found.vectors().collect::<Vec<_>>(), [[4.5, 6.0], [0.0, 0.0], [-4.0, 3.0]]);
    assert_eq!(
        found,
        embed(&open(plain.path()).unwrap(), &["Cat feline", "unheard words", "car nonsense car"])
            .await
    );
    let normal = folder("{}", &tensors(&[table()]), &tokenizer());
    let found = embed(&open(normal.path()).unwrap(), &["feline", "car"]).await;
    for (vector, expected) in found.vectors().zip([[0.6, 0.8], [-0.8, 0.6]]) {
        assert!(
            vector.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6),
            "{vector:?}"
        );
    }
}

#[tokio::test]
async fn weights_rows_and_small_types_are_read() {
    let rows = |dtype, data: Vec<u8>| ("embeddings", dtype, vec![2, 2], data);
    let weights = ("weights", Dtype::F32, vec![4], bytes(&[1.0, 2.0, 1.0, 1.0]));
    let mapping: Vec<u8> = [0_i64, 1, 1, 0].iter().flat_map(|row| row.to_le_bytes()).collect();
    let mapping = ("mapping", Dtype::I64, vec![4], mapping);
    let half: Vec<u8> =
        [1.0, 0.0, 0.0, 1.5].iter().flat_map(|n| half::f16::from_f32(*n).to_le_bytes()).collect();
    let file = tensors(&[rows(Dtype::F16, half), weights, mapping.clone()]);
    let model = folder(r#"{"normalize": false}"#, &file, &tokenizer());
    let found = embed(&open(model.path()).unwrap(), &["cat", "feline", "car"]).await;
    assert_eq!(found.vectors().collect::<Vec<_>>(), [[0.0, 3.0], [0.0, 1.5], [1.0, 0.0]]);
    let file = tensors(&[rows(Dtype::I8, vec![1, 0, 0, 0xff]), mapping]);
    let model = folder(r#"{"normalize": false}"#, &file, &tokenizer());
    assert_eq!(embed(&open(model.path()).unwrap(), &["cat"]).await.values, [0.0, -1.0]);
}

#[tokio::test]
async fn the_name_follows_the_files() {
    let name = |folder: &Path| open(folder).unwrap().model.name.clone();
    let model = folder("{}", &tensors(&[table()]), &tokenizer());
    let first = name(model.path());
    assert_eq!(first, name(model.path()));
    let other = ("embeddings", Dtype::F32, vec![4, 2], bytes(&[0.5; 8]));
    fs::write(model.path().join(TENSORS), tensors(&[other])).unwrap();
    assert_ne!(first, name(model.path()));
}

#[tokio::test]
async fn damaged_files_are_named_with_what_is_wrong() {
    let good = tensors(&[table()]);
    let missing = tempfile::tempdir().unwrap();
    let error = open(missing.path()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("No such file"), "{error}");
    let config = problem("{", &good, &tokenizer());
    assert!(config.contains("config.json is unusable") && config.contains("line 1"), "{config}");
    let words = problem("{}", &good, "{\"model\": {\"type\": \"WordLevel\"}}");
    assert!(words.contains("tokenizer.json is unusable"), "{words}");
    let nan = ("embeddings", Dtype::F32, vec![1, 2], bytes(&[1.0, f32::NAN]));
    let flat = ("embeddings", Dtype::F32, vec![2], bytes(&[1.0, 2.0]));
    let other = ("vectors", Dtype::F32, vec![1, 2], bytes(&[1.0, 2.0]));
    let bits = ("embeddings", Dtype::U8, vec![1, 2], vec![1, 2]);
    for (model, part) in [
        (tensors(&[nan]), "tensor embeddings: number 1 is not finite"),
        (tensors(&[flat]), "its shape is [2]"),
        (tensors(&[other]), "missing; the file has: vectors"),
        (tensors(&[bits]), "its type is U8"),
        (good[..good.len() - 1].to_vec(), "not in the safetensors format"),
        (Vec::new(), "not in the safetensors format"),
    ] {
        let error = problem("{}", &model, &tokenizer());
        assert!(error.contains("model.safetensors is unusable") && error.contains(part), "{error}");
    }
    let large = folder("{}", &good, &tokenizer());
    let error = FolderEmbedder::open(large.path(), 40, Handle::current()).unwrap_err().to_string();
    assert!(error.contains("exceed the limit of 40 bytes"), "{error}");
}

/// A header that promises more than the file has must not be believed.
#[tokio::test]
async fn a_hostile_header_allocates_nothing() {
    let header = |text: &str| {
        let mut file = (text.len() as u64).to_le_bytes().to_vec();
        file.extend(text.as_bytes());
        file
    };
    let huge =
        r#"{"embeddings":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}"#;
    let far = r#"{"embeddings":{"dtype":"F32","shape":[1000000000,256],"data_offsets":[0,1024000000000]}}"#;
    let mut endless = u64::MAX.to_le_bytes().to_vec();
    endless.extend(b"{}");
    for file in [header(huge), header(far), endless] {
        let error = problem("{}", &file, &tokenizer());
        assert!(error.contains("not in the safetensors format"), "{error}");
    }
}
