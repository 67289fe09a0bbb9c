package controllers

import (
	"fmt"
	"slices"
	"strings"
)

// enabled returns the controllers that the --controllers list enables. The first mention of a name decides and
// takes precedence over "*"; without "*" only named ones run. An unknown name is an error that lists the known
// ones.
func enabled(all []Entry, list []string) ([]Entry, error) {
	if list == nil {
		list = []string{"*"}
	}
	asked := map[string]bool{} // canonical name → on
	star := false
	for _, word := range list {
		if word == "*" {
			star = true
			continue
		}
		name, off := strings.CutPrefix(word, "-")
		i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == name || slices.Contains(e.Aliases, name) })
		if i < 0 {
			return nil, fmt.Errorf("--controllers: %q is not in the list of known controllers: %s", name,
				strings.Join(names(all), ", "))
		}
		if _, said := asked[all[i].Name]; !said {
			asked[all[i].Name] = !off
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		on, said := asked[e.Name]
		return said && !on || !said && (!star || e.Off)
	}), nil
}

// Off reports whether the controller of that name is disabled in this configuration. New reports an invalid
// configuration.
func (c Config) Off(name string) bool {
	on, err := enabled(All(&c), c.Controllers)
	return err == nil && !slices.ContainsFunc(on, func(e Entry) bool { return e.Name == name })
}

func names(all []Entry) []string {
	out := make([]string, len(all))
	for i, e := range all {
		out[i] = e.Name
	}
	slices.Sort(out)
	return out
}
