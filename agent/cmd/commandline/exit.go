package commandline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit is an error that sets the exit code of the program.
type Exit struct {
	Code int
	Err  error // nil: Fail prints nothing
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
	fmt.Fprintln(stderr, "monopod: "+readable(Explain(cmd, err).Error())+usage(cmd, err)+remedy(err))
	return code
}

var (
	// suggestions matches the lines with similar commands in cobra's errors.
	suggestions = regexp.MustCompile(`\n+Did you mean this\?\n((?:\t.*\n?)+)`)
	// strconvPrefix matches the part of strconv's errors that does not help users.
	strconvPrefix = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)
)

// readable returns a text on one line, unless it is a list, without repetitions and without Go's prefixes.
func readable(text string) string {
	text = suggestions.ReplaceAllStringFunc(text, func(s string) string {
		return "; did you mean " + strings.Join(strings.Fields(suggestions.FindStringSubmatch(s)[1]), " or ") + "?"
	})
	var lines []string
	for line := range strings.Lines(strconvPrefix.ReplaceAllString(text, "")) {
		if line = strings.TrimRight(line, " \n"); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 && strings.HasSuffix(lines[0], ":") {
		return strings.Join(lines, "\n")
	}
	return strings.Join(lines, "; ")
}

// remedies are system errors of any command, and what to do about them. words is a regular expression that matches
// errors which already say what to do.
var remedies = []struct {
	err           error
	words, remedy string
}{
	{syscall.ENOSPC, "free space|another", "free space there, or choose another disk"},
	{syscall.EDQUOT, "free space|another", "free space there, or choose another disk"},
	{syscall.EROFS, "choose|another",
		"the file system is mounted read-only: choose another folder, or mount it for writing"},
	{fs.ErrPermission, "root|owner|choose|another", "run it as root, or as the owner of the file"},
	{fs.ErrNotExist, "choose|another|name |check |lists|start |shows|install", "check the path"},
	{syscall.ENOTDIR, "choose|another|name |check ", "check the path"},
	{syscall.EISDIR, "choose|another|name |check ", "name a file"},
}

// remedy returns what to do about a system error, unless the error already says it.
func remedy(err error) string {
	for _, r := range remedies {
		if errors.Is(err, r.err) && !regexp.MustCompile(r.words).MatchString(err.Error()) {
			return "; " + r.remedy
		}
	}
	return ""
}

// usageErrors are the prefixes of cobra's and pflag's errors about a command line.
var usageErrors = []string{
	"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires at least",
	"flag needs an argument", "invalid argument",
}

// usage returns how to use the command, for an error about the command line.
func usage(cmd *cobra.Command, err error) string {
	for _, prefix := range usageErrors {
		if strings.HasPrefix(err.Error(), prefix) {
			use := cmd.UseLine()
			if cmd.HasParent() && cmd.HasSubCommands() {
				use = cmd.CommandPath() + " COMMAND"
			}
			return fmt.Sprintf("; usage: %s; see %s --help", use, cmd.CommandPath())
		}
	}
	return ""
}

// RefuseUnknown makes groups of commands fail for unknown subcommands. Cobra does that only for root: for others it
// prints the help and succeeds.
func RefuseUnknown(root *cobra.Command) {
	if !root.HasParent() {
		root.InitDefaultCompletionCmd()
		root.InitDefaultHelpCmd()
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.PreRunE = func(_ *cobra.Command, args []string) error {
				if _, _, err := root.Find(args); err != nil {
					return err
				}
				return nil
			}
		}
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
