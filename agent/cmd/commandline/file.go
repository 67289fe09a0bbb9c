package commandline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
	yaml "go.yaml.in/yaml/v3"
)

const (
	// FileFlag names the file that FromFile reads.
	FileFlag = "config"
	// fromFile marks flags that the file has set.
	fromFile = "monopod_file"
	// maxFile is the maximum size of the file, in bytes.
	maxFile = 1 << 20
)

// FromFile sets the flags that neither the command line nor the environment sets from a YAML file: a mapping of
// sections, each a mapping of flags, as Print writes it. An empty path means no file. The error lists all errors
// in the file with their lines; flags before the first error may be set.
func (g *Groups) FromFile(path string) error {
	if path == "" {
		return nil
	}
	if err := g.fromFile(path); err != nil {
		if strings.Contains(err.Error(), "monopod config") {
			return fmt.Errorf("--%s: %s: %w", FileFlag, path, err)
		}
		return fmt.Errorf("--%s: %s: %w; monopod config prints a whole file", FileFlag, path, err)
	}
	return nil
}

func (g *Groups) fromFile(path string) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil // only comments
	} else if err != nil {
		return err
	}
	if dec.Decode(new(yaml.Node)) == nil {
		return errors.New("it contains several documents, one is expected")
	}
	return pairs(doc.Content[0], "the file", func(key, value *yaml.Node) error {
		set := g.sets.FlagSets[g.subject(key.Value)]
		if set == nil {
			return fmt.Errorf("line %d: unknown section %q; known: %s", key.Line, key.Value, strings.Join(g.sections(), ", "))
		}
		return pairs(value, "section "+key.Value, func(key, value *yaml.Node) error { return g.setFlag(set, key, value) })
	})
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the caller adds the path
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return data, err
}

// pairs calls each for the keys and values of a mapping; null is an empty mapping.
func pairs(n *yaml.Node, what string, each func(key, value *yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s must be a mapping", n.Line, what)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			errs = append(errs, fmt.Errorf("line %d: %q is set twice", key.Line, key.Value))
			continue
		}
		seen[key.Value] = true
		errs = append(errs, each(key, value))
	}
	return errors.Join(errs...)
}

func (g *Groups) setFlag(set *pflag.FlagSet, key, value *yaml.Node) error {
	f := set.Lookup(key.Value)
	if f == nil || !inFile(f) {
		return fmt.Errorf("line %d: unknown key %q%s", key.Line, key.Value, g.sectionHint(key.Value))
	}
	text, err := scalar(value)
	if err != nil {
		return fmt.Errorf("line %d: %s: %w", value.Line, key.Value, err)
	}
	switch {
	case f.Changed: // by the command line or the environment
		return nil
	case text == f.Value.String():
		return nil
	case value.Kind == yaml.MappingNode && text == "": // not every flag accepts an empty value
		return nil
	}
	if err := set.Set(f.Name, text); err != nil {
		return fmt.Errorf("line %d: %w", value.Line, err)
	}
	f.Annotations = map[string][]string{fromFile: nil}
	return nil
}

// sectionHint returns the section that contains the flag, as the end of an error.
func (g *Groups) sectionHint(name string) string {
	for _, subject := range g.sets.Order {
		if f := g.sets.FlagSets[subject].Lookup(name); f != nil && inFile(f) {
			return fmt.Sprintf("; it belongs to section %q", section(subject))
		}
	}
	return "; monopod config prints all of them"
}

// scalar returns a value in the form of a flag: lists joined by commas, mappings as key=value.
func scalar(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", nil
		}
		return n.Value, nil
	case yaml.SequenceNode:
		var items []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
				return "", errors.New("an item of the list must be a plain value without a comma")
			}
			items = append(items, item.Value)
		}
		return strings.Join(items, ","), nil
	case yaml.MappingNode:
		var items []string
		err := pairs(n, "the value", func(key, value *yaml.Node) error {
			if value.Kind != yaml.ScalarNode || strings.Contains(value.Value, ",") {
				return fmt.Errorf("line %d: %s must be a plain value without a comma", value.Line, key.Value)
			}
			items = append(items, key.Value+"="+value.Value)
			return nil
		})
		return strings.Join(items, ","), err
	}
	return "", errors.New("aliases are not allowed here")
}

// Print writes all flags with their current values and descriptions, in the form that FromFile reads.
func (g *Groups) Print(w io.Writer) error {
	var out bytes.Buffer
	out.WriteString("# Settings of monopod serve, for --" + FileFlag +
		". Flags and environment variables take precedence.\n")
	for _, subject := range g.sets.Order {
		begun := false
		var err error
		g.sets.FlagSets[subject].VisitAll(func(f *pflag.Flag) {
			if !inFile(f) || f.Hidden || err != nil {
				return
			}
			if !begun {
				begun = true
				fmt.Fprintf(&out, "\n%s:\n", section(subject))
			}
			var value []byte
			if value, err = yaml.Marshal(setting(f)); err == nil {
				for line := range strings.Lines(wrapped(f.Usage)) {
					out.WriteString("  # " + line)
				}
				fmt.Fprintf(&out, "\n  %s:%s", f.Name, indented(string(value)))
			}
		})
		if err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// setting returns a flag's value for YAML.
func setting(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return append([]string{}, list.GetSlice()...)
	}
	text := f.Value.String()
	switch f.Value.Type() {
	case "stringToString":
		values := map[string]string{}
		for _, pair := range strings.Split(strings.Trim(text, "[]"), ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				values[key] = value
			}
		}
		return values
	case "bool", "int", "int32", "int64", "uint", "uint32", "uint64", "float32", "float64":
		var n yaml.Node
		n.Kind, n.Value = yaml.ScalarNode, text
		return &n
	}
	return text
}

// indented returns a value after its key: on the same line, or on several below.
func indented(value string) string {
	if strings.Count(value, "\n") == 1 && !strings.HasPrefix(value, "- ") && !strings.Contains(value, ": ") {
		return " " + value
	}
	var out strings.Builder
	out.WriteByte('\n')
	for line := range strings.Lines(value) {
		out.WriteString("    " + line)
	}
	return out.String()
}

// wrapped wraps a text into lines of at most 100 characters.
func wrapped(text string) string {
	const maxLine = 100
	var out strings.Builder
	n := 0
	for _, word := range strings.Fields(text) {
		switch {
		case n > 0 && n+1+len(word) > maxLine:
			out.WriteByte('\n')
			n = 0
		case n > 0:
			out.WriteByte(' ')
			n++
		}
		out.WriteString(word)
		n += len(word)
	}
	return out.String()
}

// inFile reports whether a file can set the flag: all but --config itself.
func inFile(f *pflag.Flag) bool { return !builtIn(f) && f.Name != FileFlag }

// section returns the name of a subject in a file: API server is api-server.
func section(subject string) string {
	words := strings.FieldsFunc(subject, func(r rune) bool { return !unicode.IsLetter(r) })
	return strings.ToLower(strings.Join(words, "-"))
}

// subject returns the subject of a section; empty if there is none.
func (g *Groups) subject(name string) string {
	for _, s := range g.sets.Order {
		if section(s) == name && s != other {
			return s
		}
	}
	return ""
}

func (g *Groups) sections() (names []string) {
	for _, s := range g.sets.Order {
		if s != other {
			names = append(names, section(s))
		}
	}
	slices.Sort(names)
	return names
}
