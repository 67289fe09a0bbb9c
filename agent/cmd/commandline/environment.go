package commandline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// prefix is the prefix of environment variables for flags.
const prefix = "MONOPOD_"

// fromEnvironment marks flags that an environment variable has set.
const fromEnvironment = "monopod_environment"

// Variable returns the environment variable of a flag: MONOPOD_DATA_DIR for --data-dir.
func Variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnvironment sets the flags of cmd that the command line does not set from their environment variables.
// environ has the form of os.Environ.
func FromEnvironment(cmd *cobra.Command, environ []string) error {
	values := variables(environ)
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := values[Variable(f.Name)]
		if !ok || f.Changed || builtIn(f) {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", Variable(f.Name), err))
			return
		}
		f.Annotations = map[string][]string{fromEnvironment: nil}
	})
	return errors.Join(errs...)
}

// Explain adds to an error about flags of cmd the environment variables or the file that have set them.
func Explain(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	var from []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !mentions(err.Error(), f.Name) {
			return
		}
		if _, ok := f.Annotations[fromEnvironment]; ok {
			from = append(from, fmt.Sprintf("environment variable %s sets --%s", Variable(f.Name), f.Name))
		}
		if _, ok := f.Annotations[fromFile]; ok {
			from = append(from, fmt.Sprintf("the file of --%s sets --%s", FileFlag, f.Name))
		}
	})
	if len(from) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))
}

// mentions reports whether text contains the flag, and not only as the prefix of another one.
func mentions(text, flag string) bool {
	for _, after := range strings.Split(text, "--"+flag)[1:] {
		if after == "" || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", rune(after[0])) {
			return true
		}
	}
	return false
}

// Unknown returns the variables of environ with the prefix that match no flag of any command of the program.
func Unknown(cmd *cobra.Command, environ []string) []string {
	values := variables(environ)
	removeKnown(cmd.Root(), values)
	var unknown []string
	for name := range values {
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}

// removeKnown removes the variables of cmd's flags, and of its subcommands', from values.
func removeKnown(cmd *cobra.Command, values map[string]string) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { delete(values, Variable(f.Name)) })
	for _, sub := range cmd.Commands() {
		removeKnown(sub, values)
	}
}

// builtIn reports whether a flag is --help or --version.
func builtIn(f *pflag.Flag) bool { return f.Name == "help" || f.Name == "version" }

// variables returns the variables of environ that begin with prefix.
func variables(environ []string) map[string]string {
	values := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, prefix) {
			values[name] = value
		}
	}
	return values
}
