//! JSON helpers for engines without a parser: read the value at an RFC 6901 pointer.

use std::ffi::c_void;

use serde_json::Value;

use super::fault::{SuccessStatus, status};
use super::memory::{give, protocol};
use super::structs::{CStatus, Str, TextSink};
use crate::error::{EngineError, Result};

fn find(json: &Str, pointer: &Str) -> Result<Option<Value>> {
    let mut value: Value = serde_json::from_str(json.text()?)
        .map_err(|error| protocol(format!("invalid JSON: {error}")))?;
    Ok(value.pointer_mut(pointer.text()?).map(Value::take))
}

/// Writes the value at a pointer if it has the requested type.
fn read<T>(
    json: &Str,
    pointer: &Str,
    out: Option<&mut T>,
    wanted: &str,
    make: impl FnOnce(&Value) -> Option<T>,
) -> CStatus {
    status(|| {
        let out = out.ok_or_else(|| protocol("the output pointer is NULL"))?;
        let Some(value) = find(json, pointer)? else { return Ok(SuccessStatus::Absent) };
        let wrong = || EngineError::failed(format!("{} is not a {wanted}", pointer.lossy()));
        *out = make(&value).ok_or_else(wrong)?;
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn integer(json: Str, pointer: Str, out: Option<&mut i64>) -> CStatus {
    read(&json, &pointer, out, "whole number", Value::as_i64)
}

pub(super) extern "C" fn number(json: Str, pointer: Str, out: Option<&mut f64>) -> CStatus {
    read(&json, &pointer, out, "number", Value::as_f64)
}

pub(super) extern "C" fn text(
    json: Str,
    pointer: Str,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        match find(&json, &pointer)? {
            Some(Value::String(text)) => give(sink, into, text.as_bytes()),
            Some(other) => give(sink, into, other.to_string().as_bytes()),
            None => return Ok(SuccessStatus::Absent),
        }
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn keys(
    json: Str,
    pointer: Str,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| match find(&json, &pointer)? {
        Some(Value::Object(members)) => {
            members.keys().for_each(|key| give(sink, into, key.as_bytes()));
            Ok(SuccessStatus::Ok)
        }
        Some(_) => Err(EngineError::failed(format!("{} is not an object", pointer.lossy()))),
        None => Ok(SuccessStatus::Absent),
    })
}

pub(super) extern "C" fn quote(text: Str, sink: TextSink, into: *mut c_void) -> CStatus {
    status(|| {
        give(sink, into, Value::from(text.text()?).to_string().as_bytes());
        Ok(SuccessStatus::Ok)
    })
}
