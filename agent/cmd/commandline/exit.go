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
	fmt.Fprintln(stderr, "monopod: "+readable(Explain(cmd, err).Error())+usage(cmd, err)+next(err))
	return code
}

var (
	// suggested is how cobra shows commands with similar names, on lines of their own.
	suggested = regexp.MustCompile(`\n+Did you mean this\?\n((?:\t.*\n?)+)`)
	// parser is the beginning of strconv's errors, in which only the end says something to a user.
	parser = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)
)

// readable is a text on one line, unless that announces a list, without repetitions and without what only a programmer
// knows.
func readable(text string) string {
	text = suggested.ReplaceAllStringFunc(text, func(s string) string {
		return "; did you mean " + strings.Join(strings.Fields(suggested.FindStringSubmatch(s)[1]), " or ") + "?"
	})
	var lines []string
	for line := range strings.Lines(parser.ReplaceAllString(text, "")) {
		if line = strings.TrimRight(line, " \n"); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 && strings.HasSuffix(lines[0], ":") {
		return strings.Join(lines, "\n")
	}
	return strings.Join(lines, "; ")
}

// remedies are the errors of the machine that every command may meet, and what to do about them. words are those of
// an error that says it already.
var remedies = []struct {
	err         error
	words, next string
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

// next is what to do about an error of the machine that does not say it.
func next(err error) string {
	for _, r := range remedies {
		if errors.Is(err, r.err) && !regexp.MustCompile(r.words).MatchString(err.Error()) {
			return "; " + r.next
		}
	}
	return ""
}

// misused are the beginnings of cobra's and pflag's errors about a command line.
var misused = []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires at least",
	"flag needs an argument", "invalid argument"}

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
