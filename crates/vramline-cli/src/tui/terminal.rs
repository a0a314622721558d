//! The terminal: taken over for a while, and given back on every way out, a panic included.

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

/// Whether the terminal is ours now. There is one terminal, and a panic knows nothing of who has it.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal, ours until this is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            // The message of a panic on a screen that is about to vanish helps nobody.
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

    /// Takes it again, whoever had it meanwhile.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        close();
        open()?;
        // A new one knows nothing of what was there. Clearing the old one would ask the terminal where its cursor is, and the answer would go
        // to whoever reads keys.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Whether it is still ours: a thread that panics gives it back.
    #[expect(clippy::unused_self, reason = "whoever asks has a screen")]
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

/// Gives it back as it was; nothing where it is not ours.
pub(super) fn close() {
    if IS_OURS.swap(false, Ordering::AcqRel) {
        // A terminal that is gone cannot be given back.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}
