//! `tidegate completions` and `tidegate man`: completions for shells and manual pages, made of the flags.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man as Page;

/// The flags of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The flags of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write tidegate.1, tidegate-serve.1 and so on into FOLDER, which has to be there
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(options: &Completions, command: &mut Command) -> Result<(), Box<dyn Error>> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, command, "tidegate", &mut text);
    print(&text);
    Ok(())
}

pub(crate) fn man(options: &Man, mut command: Command) -> Result<(), Box<dyn Error>> {
    // Names of subcommands become `tidegate-serve`.
    command.build();
    let Some(folder) = &options.out else {
        let mut text = Vec::new();
        Page::new(command).render(&mut text)?;
        print(&text);
        return Ok(());
    };
    let subcommands = command.get_subcommands().filter(|command| command.get_name() != "help").cloned();
    for command in subcommands.chain([command.clone()]) {
        let page = Page::new(command);
        let path = folder.join(page.get_filename());
        let wrong = |error: io::Error| format!("{}: {error}", path.display());
        page.render(&mut File::create(&path).map_err(wrong)?).map_err(wrong)?;
    }
    Ok(())
}

fn print(text: &[u8]) {
    // A closed standard output is no error.
    let _ = io::stdout().write_all(text);
}
