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
	fmt.Fprintln(stderr, strings.TrimSpace("monopod: "+Explain(cmd, err).Error()+usage(cmd, err)))
	return code
}

// misused are the beginnings of cobra's and pflag's errors about a command line.
var misused = []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires at least", "flag needs an argument", "invalid argument"}

// usage completes an error about the command line: how the command is used.
func usage(cmd *cobra.Command, err error) string {
	for _, begin := range misused {
		if strings.HasPrefix(err.Error(), begin) {
			use := cmd.UseLine()
			if cmd.HasParent() && cmd.HasSubCommands() {
				use = cmd.CommandPath() + " COMMAND"
			}
			return fmt.Sprintf("; usage: %s; see %s --help", use, cmd.CommandPath())
		}
	}
	return ""
}

// RefuseUnknown makes the commands below root that only group others fail for a word that is no command, which cobra
// does for root alone: elsewhere it prints the help and succeeds.
func RefuseUnknown(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return cmd.Help()
				}
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
		}
		RefuseUnknown(cmd)
	}
}
