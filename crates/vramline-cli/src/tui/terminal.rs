//! The terminal: takes it over, and restores it on every way out, including a panic.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// Whether the terminal is taken over. Global, because the panic hook needs it.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal, taken over until this is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            // Restored first, so that the message of the panic stays visible.
            std::panic::set_hook(Box::new(move |panic| {
                close();
                before(panic);
            }));
        });
        open()?;
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                close();
                Err(error)
            }
        }
    }

    /// Takes the terminal over again after another program used it.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        close();
        open()?;
        // A new `Terminal` redraws everything. Clearing the old one would query the cursor position, and the thread that reads keys would
        // get the answer.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Whether the terminal is still taken over. A thread that panics restores it.
    #[expect(clippy::unused_self, reason = "only a screen can be open")]
    pub(super) fn is_open(&self) -> bool {
        IS_OURS.load(Ordering::Acquire)
    }

    pub(super) fn draw(&mut self, paint: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if self.is_open() {
            self.terminal.draw(paint)?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        close();
    }
}

fn open() -> io::Result<()> {
    IS_OURS.store(true, Ordering::Release);
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All), Hide))
        .inspect_err(|_| close())
}

/// Restores the terminal, if it is taken over.
pub(super) fn close() {
    if IS_OURS.swap(false, Ordering::AcqRel) {
        // Errors do not matter: the terminal may be gone.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}
