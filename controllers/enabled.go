package controllers

import (
	"fmt"
	"slices"
	"strings"
)

// enabled returns the controllers that the --controllers list enables. The first mention of a name decides and takes
// precedence over "*"; without "*" only named controllers run. The error for an unknown name lists the known ones.
func enabled(all []Entry, list []string) ([]Entry, error) {
	if list == nil {
		list = []string{"*"}
	}
	mentioned := map[string]bool{} // whether it is enabled, by canonical name
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
		if _, ok := mentioned[all[i].Name]; !ok {
			mentioned[all[i].Name] = !off
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		on, ok := mentioned[e.Name]
		return ok && !on || !ok && (!star || e.Off)
	}), nil
}

// Off reports whether c disables the controller with the name. It returns false for an invalid configuration, which New
// reports.
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
