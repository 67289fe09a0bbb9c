package commandline

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit is an error that sets the exit code of the program.
type Exit struct {
	Code int
	Err  error // nil: nothing is printed, because the user knows
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Fail prints the error of a command and returns the exit code of the program.
func Fail(stderr io.Writer, cmd *cobra.Command, err error) int {
	code := 1
	if exit := (*Exit)(nil); errors.As(err, &exit) {
		code = exit.Code
		if exit.Err == nil {
			return code
		}
	}
	fmt.Fprintln(stderr, strings.TrimSpace("monopod: "+Explain(cmd, err).Error()))
	return code
}
