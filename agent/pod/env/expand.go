package env

import "strings"

// Expand replaces $(NAME) by the value that lookup returns and leaves unknown names unchanged; $$ is one dollar
// sign, so $$(NAME) is never replaced.
func Expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
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

// ExpandAll expands each of list with vars.
func ExpandAll(list []string, vars []Var) []string {
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	var out []string
	for _, s := range list {
		out = append(out, Expand(s, lookup))
	}
	return out
}
