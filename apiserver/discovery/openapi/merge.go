package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"monopod/apiserver/aggregate"
)

// merge adds the part of another server's document, as upstream: a definition or parameter that both have under one
// name is shared if it is equal, otherwise the other server's gets a new name.
func (p *pieces) merge(part *aggregate.Part) error {
	theirs, err := part.Content()
	if err != nil {
		return err
	}
	renames := map[string]string{}
	definitions := addNames(p.definitions, theirs.Definitions, aggregate.Definitions, renames)
	parameters := addNames(p.parameters, theirs.Parameters, aggregate.Parameters, renames)
	renamed := func(prefix, name string) string {
		if to, ok := renames[prefix+name]; ok {
			return to
		}
		return name
	}
	add := func(list *[]piece, more map[string]json.RawMessage) {
		for _, name := range slices.Sorted(maps.Keys(more)) {
			*list = append(*list, piece{name: name, json: aggregate.Refs(more[name], renamed), foreign: true})
		}
	}
	add(&p.definitions, definitions)
	add(&p.parameters, parameters)
	for _, ours := range p.paths {
		delete(theirs.Paths, ours.name)
	}
	add(&p.paths, theirs.Paths)
	return nil
}

// addNames returns the definitions or parameters of theirs that are not in list, by their new names. It adds the new
// names to renames, and the kinds of shared definitions to list.
func addNames(list []piece, theirs map[string]json.RawMessage, prefix string,
	renames map[string]string) map[string]json.RawMessage {
	places := make(map[string]int, len(list))
	for i, ours := range list {
		places[ours.name] = i
	}
	more := map[string]json.RawMessage{}
	for name, text := range theirs {
		to, shared := place(list, places, theirs, name, text)
		if renames[prefix+name] = to; !shared {
			more[to] = text
		}
	}
	return more
}

// place returns the new name of a definition or parameter: its own, or else with the first free suffix. shared reports
// whether it is equal to ours of that name.
func place(list []piece, places map[string]int, theirs map[string]json.RawMessage, name string,
	text json.RawMessage) (to string, shared bool) {
	to = name
	for n := 2; ; n++ { // upstream counts from 2
		at, taken := places[to]
		if taken && share(&list[at], text) {
			return to, true
		}
		if _, wanted := theirs[to]; !taken && (to == name || !wanted) {
			return to, false
		}
		to = fmt.Sprintf("%s_v%d", name, n)
	}
}

// share reports whether ours is equal to text, except for its kinds. If so, it sets the kinds of both.
func share(ours *piece, text json.RawMessage) bool {
	var a, b map[string]any
	if json.Unmarshal(ours.json, &a) != nil || json.Unmarshal(text, &b) != nil {
		return false
	}
	kinds, _ := a[kindExtension].([]any)
	more, _ := b[kindExtension].([]any)
	delete(a, kindExtension)
	delete(b, kindExtension)
	if !reflect.DeepEqual(a, b) {
		return false
	}
	all := slices.Clone(kinds)
	for _, kind := range more {
		if !slices.ContainsFunc(all, func(k any) bool { return reflect.DeepEqual(k, kind) }) {
			all = append(all, kind)
		}
	}
	if len(all) == len(kinds) {
		return true
	}
	a[kindExtension] = all
	merged, err := json.Marshal(a)
	if err == nil {
		ours.json = merged
	}
	return err == nil
}
