package env

import (
	"fmt"
	"strings"
)

const (
	// maxLength is Linux' maximum length of an argument or a variable, in bytes (MAX_ARG_STRLEN). References could make
	// one double the other, 40 times.
	maxLength = 128 << 10
	// maxTotal is Linux' maximum length of all arguments or variables of a program.
	maxTotal = 6 << 20
)

// Expand replaces $(NAME) by the value that lookup returns, and leaves unknown names unchanged. $$ is one dollar sign,
// so $$(NAME) is never replaced. Expand returns ErrConfig if the result is too long for any program.
func Expand(s string, lookup func(name string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if out.Len() > maxLength {
			return "", fmt.Errorf("%w: the expansion of \"%.40s…\" has more than %d bytes", ErrConfig, out.String(), maxLength)
		}
		if !found {
			return out.String(), nil
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$"):
			out.WriteByte('$')
			s = s[1:]
		case strings.HasPrefix(s, "("):
			s = reference(&out, s, lookup)
		default:
			out.WriteByte('$')
		}
	}
}

// reference writes the value of the reference at the start of s, "(NAME)…", and returns the rest.
func reference(out *strings.Builder, s string, lookup func(string) (string, bool)) string {
	name, rest, closed := strings.Cut(s[1:], ")")
	if !closed {
		out.WriteByte('$')
		return s
	}
	if value, ok := lookup(name); ok {
		out.WriteString(value)
	} else {
		out.WriteString("$(" + name + ")")
	}
	return rest
}

// ExpandAll expands each string of list with vars.
func ExpandAll(list []string, vars []Var) ([]string, error) {
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	var out []string
	total := 0
	for _, s := range list {
		expanded, err := Expand(s, lookup)
		if err != nil {
			return nil, err
		}
		if total += len(expanded); total > maxTotal {
			return nil, fmt.Errorf("%w: the expanded arguments have more than %d bytes", ErrConfig, maxTotal)
		}
		out = append(out, expanded)
	}
	return out, nil
}
