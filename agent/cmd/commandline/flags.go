// Package commandline contains what monopod's commands share: flags in groups, environment variables for flags,
// the log, the version of the program.
package commandline

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	cliflag "k8s.io/component-base/cli/flag"
)

// Part is a part of the program that has flags.
type Part interface{ Flags(*pflag.FlagSet) }

// other is the subject of flags about the command line itself.
const other = "other"

// Groups are the flags of a command by subject, in the order of --help. The zero value is ready to use.
type Groups struct{ sets cliflag.NamedFlagSets }

// Group returns the flags of a subject, with those of parts added. The order of first calls is the order of
// subjects.
func (g *Groups) Group(subject string, parts ...Part) *pflag.FlagSet {
	f := g.sets.FlagSet(subject)
	for _, p := range parts {
		p.Flags(f)
	}
	return f
}

// AddTo adds all flags to cmd, and a --help that shows them by subject. Several commands may have the same Groups.
func (g *Groups) AddTo(cmd *cobra.Command) {
	for _, subject := range g.sets.Order {
		cmd.Flags().AddFlagSet(g.sets.FlagSets[subject])
	}
	if help := g.Group(other); help.Lookup("help") == nil {
		help.BoolP("help", "h", false, "Show this help.")
	}
	columns := 0 // standard output is not a terminal
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
		columns = int(size.Col)
	}
	cliflag.SetUsageAndHelpFunc(cmd, g.sets, columns)
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
