package aggregate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/klauspost/compress/s2"
)

// MaxPart is the maximum size of a part, in bytes. The whole document may be larger.
const MaxPart = 2 << 20

// Prefixes of references in OpenAPI v2.
const (
	Definitions = "#/definitions/"
	Parameters  = "#/parameters/"
)

// Part is a part of a document: some paths, with the definitions and parameters that they need. It is compressed.
type Part struct{ packed []byte }

// Content is the decoded content of a Part: JSON by path or name.
type Content struct {
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]json.RawMessage `json:"definitions"`
	Parameters  map[string]json.RawMessage `json:"parameters"`
}

// Read returns the part of a document about the paths with the prefix, or nil if it has none.
func Read(document []byte, prefix string) (*Part, error) {
	var all Content
	if err := json.Unmarshal(document, &all); err != nil {
		return nil, err
	}
	part := Content{Definitions: map[string]json.RawMessage{}, Parameters: map[string]json.RawMessage{}}
	maps.DeleteFunc(all.Paths, func(path string, _ json.RawMessage) bool { return !strings.HasPrefix(path, prefix) })
	if len(all.Paths) == 0 {
		return nil, nil
	}
	part.Paths = all.Paths
	for path, text := range part.Paths {
		text = compact(text)
		part.Paths[path] = text
		part.need(&all, text)
	}
	data, err := json.Marshal(part)
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxPart:
		return nil, fmt.Errorf("the OpenAPI document of %s has %d bytes, limit is %d", prefix, len(data), MaxPart)
	}
	return &Part{bytes.Clone(s2.Encode(nil, data))}, nil
}

// need adds the definitions and parameters that a text refers to, directly or indirectly.
func (c *Content) need(all *Content, text json.RawMessage) {
	for todo := []json.RawMessage{text}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		Refs(next, func(prefix, name string) string {
			from, to := all.Definitions, c.Definitions
			if prefix == Parameters {
				from, to = all.Parameters, c.Parameters
			}
			if found, ok := from[name]; ok && to[name] == nil {
				to[name] = compact(found)
				todo = append(todo, to[name])
			}
			return name
		})
	}
}

// Content decodes the part. The caller may modify the maps.
func (p *Part) Content() (*Content, error) {
	data, err := s2.Decode(nil, p.packed)
	if err != nil {
		return nil, err
	}
	c := &Content{}
	return c, json.Unmarshal(data, c)
}

// Refs replaces the names in the references to definitions and parameters in text, which is compact JSON, by those that
// renamed returns.
func Refs(text json.RawMessage, renamed func(prefix, name string) string) json.RawMessage {
	const begin = `"$ref":"` // within a text its quotes would be escaped
	var out []byte
	for rest := []byte(text); ; {
		at := bytes.Index(rest, []byte(begin))
		if at < 0 {
			if out == nil {
				return text
			}
			return append(out, rest...)
		}
		out, rest = append(out, rest[:at+len(begin)]...), rest[at+len(begin):]
		for _, prefix := range []string{Definitions, Parameters} {
			if name, ok := bytes.CutPrefix(rest, []byte(prefix)); ok {
				end := max(bytes.IndexByte(name, '"'), 0)
				out = append(append(out, prefix...), renamed(prefix, string(name[:end]))...)
				rest = name[end:]
			}
		}
	}
}

// compact returns valid JSON without spaces.
func compact(text json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil {
		return text
	}
	return out.Bytes()
}
