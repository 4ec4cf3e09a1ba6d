//! Tools that work on files: each call runs on a blocking thread.

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::blocking_task::{CancelFlag, run_blocking};
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::{PathAccess, PathResolver};
use crate::settings::ToolSettings;
use crate::{CallContext, Tool, arguments};

/// A tool that works on files.
pub(super) trait FileTool: Send + Sync + 'static {
    /// The arguments of a call, as the schema describes them.
    type Arguments: DeserializeOwned + Send + 'static;

    /// The tool's name.
    const NAME: &'static str;

    /// What the tool does, for the model.
    fn description() -> String;

    /// The JSON schema of the arguments.
    fn schema() -> Value;

    /// Runs a call. Long work checks `cancel`.
    fn run(
        arguments: Self::Arguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError>;
}

/// The folders of a call.
pub(super) struct CallFolders {
    paths: PathResolver,
    /// The working folder.
    pub(super) cwd: PathBuf,
}

impl CallFolders {
    /// The path to open for a path that the model wrote.
    pub(super) fn resolve(&self, written: &str, access: PathAccess) -> Result<PathBuf, ToolError> {
        self.paths.resolve(&self.cwd, written, access)
    }

    /// `path` without the working folder, if it is below it.
    pub(super) fn shorten<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.cwd).unwrap_or(path)
    }
}

/// Offers a file tool to a registry.
pub(super) fn file_tool<T: FileTool>(settings: &ToolSettings) -> Arc<dyn Tool> {
    Arc::new(RegisteredFileTool::<T> { paths: PathResolver::new(settings), tool: PhantomData })
}

struct RegisteredFileTool<T> {
    paths: PathResolver,
    tool: PhantomData<T>,
}

impl<T: FileTool> Tool for RegisteredFileTool<T> {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: T::NAME.into(), description: T::description(), input_schema: T::schema() }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let arguments = match arguments::read(T::NAME, &T::schema(), arguments) {
                Ok(arguments) => arguments,
                Err(error) => return Err(error).into(),
            };
            let folders = CallFolders { paths: self.paths.clone(), cwd: context.cwd.clone() };
            run_blocking(move |cancel| T::run(arguments, &folders, cancel)).await.into()
        })
    }
}

impl<T: FileTool> fmt::Debug for RegisteredFileTool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredFileTool").field("name", &T::NAME).finish_non_exhaustive()
    }
}
