//! `write_file`: writes a file and creates its folders.

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking_task::run_blocking;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::{PathAccess, PathResolver};
use crate::replace::{replace, with_write_lock};
use crate::settings::ToolSettings;
use crate::{CallContext, Tool, arguments};

const NAME: &str = "write_file";

/// The `write_file` tool.
#[derive(Debug)]
pub struct WriteFileTool {
    paths: PathResolver,
}

#[derive(Debug, Deserialize)]
struct WriteFileArguments {
    path: String,
    content: String,
}

impl WriteFileTool {
    /// Creates the tool.
    pub fn new(settings: &ToolSettings) -> WriteFileTool {
        WriteFileTool { paths: PathResolver::new(settings) }
    }

    async fn write(&self, raw: &Value, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let arguments: WriteFileArguments = arguments::read(NAME, &schema(), raw)?;
        let (paths, cwd) = (self.paths.clone(), context.cwd.clone());
        run_blocking(move |cancel| {
            let path = paths.resolve(&cwd, &arguments.path, PathAccess::Write)?;
            // The last chance: a write is not interrupted halfway.
            cancel.check()?;
            let existed = with_write_lock(|| replace(&path, arguments.content.as_bytes()))?;
            let what = if existed { "replaced" } else { "new file" };
            let bytes = arguments.content.len();
            Ok(ToolOutput::text(format!("wrote {bytes} bytes to {} ({what})", path.display())))
        })
        .await
    }
}

impl Tool for WriteFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description:
                "Writes a complete text file and creates its folders. The previous content \
                          is lost; to change a part use `edit`."
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
            "content": { "type": "string", "description": "The complete new content." },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}
