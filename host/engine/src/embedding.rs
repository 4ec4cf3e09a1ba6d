//! What the host checks of an engine's request for vectors, and of the vectors.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{EmbedRequest, Embeddings, EngineError, ErrorKind, Result};

/// The most numbers of one vector; the largest known models have 8,192.
const MAX_DIMENSIONS: usize = 16_384;

/// Checks the limits of a request and redacts the secrets in its texts.
pub(super) fn prepare(mut request: EmbedRequest) -> Result<EmbedRequest> {
    let texts = request.texts.len();
    let bytes: usize = request.texts.iter().map(String::len).sum();
    let (most_texts, most_bytes) = (EmbedRequest::MAX_TEXTS, EmbedRequest::MAX_BYTES);
    if texts > most_texts || bytes > most_bytes {
        let [texts, bytes, most_texts, most_bytes] =
            [texts, bytes, most_texts, most_bytes].map(|number| group_thousands(number as u64));
        return Err(EngineError::failed(format!(
            "embed got {texts} texts of {bytes} bytes; the limits are {most_texts} and {most_bytes}"
        )));
    }
    // Endpoints refuse a whole request for one of these.
    if let Some(at) = request.texts.iter().position(|text| text.trim().is_empty()) {
        return Err(EngineError::failed(format!("embed got a blank text: number {at} of {texts}")));
    }
    for text in &mut request.texts {
        *text = ctxhost_retention::redact(text).into_owned();
    }
    Ok(request)
}

/// Passes one finite vector per text.
pub(super) fn check(vectors: Embeddings, texts: usize) -> Result<Embeddings> {
    let (dimensions, numbers) = (vectors.dimensions, vectors.values.len());
    let fail = |problem: String| {
        let message = format!("the embedder's vectors are invalid: {problem}");
        Err(EngineError::new(ErrorKind::ModelFailed, message))
    };
    if dimensions > MAX_DIMENSIONS {
        return fail(format!("{dimensions} numbers each; the limit is {MAX_DIMENSIONS}"));
    }
    if numbers != dimensions * texts || (dimensions == 0 && texts > 0) {
        return fail(format!("{numbers} numbers for {texts} vectors of {dimensions}"));
    }
    if let Some(at) = vectors.values.iter().position(|value| !value.is_finite()) {
        return fail(format!("number {at} is not finite"));
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(texts: &[&str]) -> EmbedRequest {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        EmbedRequest { texts, ..EmbedRequest::default() }
    }

    #[test]
    fn requests_beyond_a_limit_are_refused_with_the_numbers() {
        let message = |request| prepare(request).unwrap_err().message;
        let many = message(request(&["a"; 257]));
        assert_eq!(many, "embed got 257 texts of 257 bytes; the limits are 256 and 1,048,576");
        let long = "x".repeat(EmbedRequest::MAX_BYTES + 1);
        assert!(message(request(&[&long])).contains("1,048,577 bytes"));
        assert_eq!(message(request(&["a", " \n"])), "embed got a blank text: number 1 of 2");
        assert!(prepare(request(&[])).is_ok());
    }

    #[test]
    fn secrets_are_redacted() {
        let key = format!("sk-ant-api03-{}", "aB3dE5fG7h".repeat(8));
        let texts = prepare(request(&["plain", &format!("use {key} for it")])).unwrap().texts;
        assert_eq!(texts[0], "plain");
        assert!(!texts[1].contains(&key) && texts[1].contains("for it"), "{}", texts[1]);
    }

    #[test]
    fn only_one_finite_vector_per_text_passes() {
        let of = |dimensions, values: &[f32]| {
            check(Embeddings { model: "m".into(), dimensions, values: values.to_vec() }, 2)
        };
        assert!(of(2, &[1.0, 2.0, 3.0, 4.0]).is_ok());
        for (dimensions, values) in [(2, vec![1.0; 3]), (0, vec![]), (3, vec![1.0; 4])] {
            let message = of(dimensions, &values).unwrap_err().message;
            assert!(message.contains("for 2 vectors"), "{message}");
        }
        for bad in [f32::NAN, f32::INFINITY] {
            let error = of(1, &[1.0, bad]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::ModelFailed);
            assert!(error.message.contains("number 1 is not finite"), "{error}");
        }
        let wide = vec![0.0; 2 * 16_385];
        assert!(of(16_385, &wide).unwrap_err().message.contains("the limit is 16384"));
    }
}
