package commandline

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// Output is the value of --output of commands for people and programs: text or json.
type Output string

// Flags adds --output; contains is the end of the sentence about json.
func (o *Output) Flags(f *pflag.FlagSet, contains string) {
	f.StringVarP((*string)(o), "output", "o", "text", "Format: text, or json"+contains+".")
}

// Check returns an error for another value.
func (o *Output) Check() error {
	if *o != "text" && *o != "json" {
		return fmt.Errorf("--output must be text or json, got %q", string(*o))
	}
	return nil
}

// JSON reports whether the output is JSON.
func (o *Output) JSON() bool { return *o == "json" }

// PrintJSON prints a value as indented JSON.
func PrintJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
