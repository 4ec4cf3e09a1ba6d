//! `ctxhost ui`: prints a new link to the dashboard of each running gateway.

use std::process::{Command, ExitCode, Stdio};

use super::error::CliError;
use super::output::Output;
use ctxhost_engine::state_folder;
use ctxhost_gateway::{dashboard_folder, new_dashboard_link, running_gateways};

/// Print a link to the dashboard of the running gateway.
///
/// Each call makes a new link, and each link works once. With several gateways there is one for each.
#[derive(Debug, clap::Args)]
pub(super) struct UiArgs {
    /// Open it in the browser ($BROWSER, otherwise xdg-open).
    #[arg(long)]
    open: bool,
}

impl UiArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let folder = dashboard_folder(&state_folder());
        let gateways = running_gateways(&folder);
        if gateways.is_empty() {
            let folder = state_folder();
            let problem =
                format!("no gateway with the state folder {} is running", folder.display());
            let error = CliError::user(problem);
            return Err(error.hint("start one with `ctxhost serve`, or `ctxhost run -- AGENT`"));
        }
        for url in gateways {
            let link = format!("{url}{}", new_dashboard_link(&folder)?);
            output.print(&format!("{link}\n"))?;
            if self.open {
                open_browser(&link)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn open_browser(link: &str) -> Result<(), CliError> {
    let browser = std::env::var("BROWSER").ok().filter(|browser| !browser.is_empty());
    let browser = browser.unwrap_or_else(|| "xdg-open".to_owned());
    let mut command = Command::new(&browser);
    // Browsers print warnings, which would be taken for messages of ctxhost.
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| {
        let error = CliError::user(format!("cannot start the browser {browser}: {error}"));
        error.hint("open the link above, or set BROWSER")
    })
}
