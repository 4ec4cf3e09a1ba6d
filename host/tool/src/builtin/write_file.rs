//! `write_file`: a whole file, with the folders above it.

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::{Access, Paths};
use crate::replace::{exclusively, replace};
use crate::settings::ToolSettings;
use crate::{CallContext, Tool, arguments};

const NAME: &str = "write_file";

/// Writes files.
#[derive(Debug)]
pub struct WriteFile {
    paths: Paths,
}

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl WriteFile {
    /// The tool.
    pub fn new(settings: &ToolSettings) -> WriteFile {
        WriteFile { paths: Paths::new(settings) }
    }

    async fn write(&self, raw: &Value, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let asked: Arguments = arguments::read(NAME, &schema(), raw)?;
        let (paths, cwd) = (self.paths.clone(), context.cwd.clone());
        blocking(move |stop| {
            let path = paths.resolve(&cwd, &asked.path, Access::Write)?;
            stop.check()?;
            let was_there = exclusively(|| replace(&path, asked.content.as_bytes()))?;
            let what = if was_there { "replaced" } else { "new file" };
            let bytes = asked.content.len();
            Ok(ToolOutput::text(format!("wrote {bytes} bytes to {} ({what})", path.display())))
        })
        .await
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description:
                "Writes a whole text file and makes the folders above it. What the file held \
                          is gone; to change a part of it use `edit`."
                    .into(),
            input_schema: schema(),
        }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.write(arguments, context).await.into() })
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "The file." },
            "content": { "type": "string", "description": "All that it shall hold." },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}
