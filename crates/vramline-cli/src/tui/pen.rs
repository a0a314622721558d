//! Drawing tools: styles, and lines from the top of an area down.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use crate::variables::NO_COLOR;

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) is_coloured: bool,
}

impl Paint {
    pub(super) fn of_terminal() -> Paint {
        Paint { is_coloured: std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty()) }
    }

    pub(super) fn colour(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Writes lines from the top of an area down.
pub(super) struct Pen<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) area: Rect,
    pub(super) used: u16,
}

impl<'a> Pen<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect) -> Pen<'a> {
        let area = area.intersection(buffer.area);
        Pen { buffer, area, used: 0 }
    }

    /// The number of lines that can still be written: none on a terminal without width.
    pub(super) fn left(&self) -> u16 {
        if self.area.width == 0 { 0 } else { self.area.height.saturating_sub(self.used) }
    }

    pub(super) fn line<'b>(&mut self, line: impl Into<Line<'b>>) {
        if self.left() == 0 {
            return;
        }
        let row = Rect { y: self.area.y + self.used, height: 1, ..self.area };
        line.into().render(row, self.buffer);
        self.used += 1;
    }

    /// Writes a line in a style that fills the whole width.
    pub(super) fn band<'b>(&mut self, line: impl Into<Line<'b>>, style: Style) {
        if self.left() > 0 {
            let row = Rect { y: self.area.y + self.used, height: 1, ..self.area };
            self.line(line);
            self.buffer.set_style(row, style);
        }
    }
}
