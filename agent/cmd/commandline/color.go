package commandline

import (
	"io"
	"os"
)

// Color is a color of a terminal.
type Color string

// The colors that the commands use.
const (
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"
	Red    Color = "\x1b[31m"
)

// plain ends a color.
const plain = "\x1b[0m"

// Painter colors text, if it is for a terminal whose user wants it: NO_COLOR is not set, and TERM is not dumb.
type Painter bool

// NewPainter returns the painter for what is written to out.
func NewPainter(out io.Writer) Painter {
	return Painter(ToTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// ToTerminal reports whether out is a terminal.
func ToTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && isTerminal(f)
}

// Paint returns the text in a color.
func (p Painter) Paint(c Color, text string) string {
	if !p {
		return text
	}
	return string(c) + text + plain
}
