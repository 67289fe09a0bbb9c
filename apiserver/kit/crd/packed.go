package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/klauspost/compress/s2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// packed are the schemas of a definition: JSON, each compressed. A nil packed has none.
type packed struct{ schemas [][]byte }

func (p *packed) count() int {
	if p == nil {
		return 0
	}
	return len(p.schemas)
}

// size is that of all schemas, not compressed.
func (p *packed) size() (n int) {
	for i := range p.count() {
		size, _ := s2.DecodedLen(p.schemas[i]) // add made it
		n += size
	}
	return n
}

func (p *packed) add(raw []byte) {
	p.schemas = append(p.schemas, bytes.Clone(s2.Encode(nil, raw))) // whose result has the capacity of raw
}

// raw returns a schema encoded.
func (p *packed) raw(at int) ([]byte, error) {
	out, err := s2.Decode(nil, p.schemas[at])
	if err != nil {
		return nil, fmt.Errorf("unpack a schema of a definition: %w", err)
	}
	return out, nil
}

// decode returns the schema in whose place s is: s itself if it is not a placeholder.
func (p *packed) decode(s *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, error) {
	at := placed(s, p.count())
	if at < 0 {
		return s, nil
	}
	raw, err := p.raw(at)
	if err != nil {
		return nil, err
	}
	out := &apiextensionsv1.JSONSchemaProps{}
	return out, json.Unmarshal(raw, out)
}

// field is what a schema of a version follows. Within a text its quotes would be escaped, and no other field of a
// definition that is an object has the name, except in a schema.
var field = []byte(`"openAPIV3Schema":{`)

// token is a placeholder encoded.
func token(at int) []byte {
	return append(strconv.AppendQuote([]byte(`{"id":`), prefix+strconv.Itoa(at)), '}')
}

// tokenAt returns the number and the size of the placeholder with which text begins; -1: it begins with none.
func tokenAt(text []byte) (at, size int) {
	number, ok := bytes.CutPrefix(text, []byte(`{"id":"`+prefix))
	at, err := strconv.Atoi(string(number[:max(bytes.IndexByte(number, '"'), 0)]))
	if !ok || err != nil || !bytes.HasPrefix(text, token(at)) {
		return -1, 0
	}
	return at, len(token(at))
}

// split returns the JSON of a definition with placeholders for its schemas, and these. It does not look at anything
// else: whether these are the schemas of all versions is seen when the rest is decoded.
func split(data []byte) (light []byte, found [][]byte) {
	rest := data
	for {
		at := bytes.Index(rest, field)
		if at < 0 {
			return append(light, rest...), found
		}
		start := at + len(field) - 1
		size := objectSize(rest[start:])
		if size < 0 {
			return append(light, rest...), found
		}
		light = append(append(light, rest[:start]...), token(len(found))...)
		found = append(found, rest[start:start+size])
		rest = rest[start+size:]
	}
}

// objectSize is the length of the JSON object with which valid JSON begins; -1: it does not end.
func objectSize(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := textSize(text[i:])
			if n < 0 {
				return -1
			}
			i += n - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// textSize is the length of the JSON string with which valid JSON begins, with its quotes; -1: it does not end.
func textSize(text []byte) int {
	for end := 1; ; end++ {
		n := bytes.IndexByte(text[end:], '"')
		if n < 0 {
			return -1
		}
		end += n
		escapes := 0
		for text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// join is the inverse of split.
func (p *packed) join(light []byte) ([]byte, error) {
	out := make([]byte, 0, len(light)+p.size())
	for {
		at := bytes.Index(light, field)
		if at < 0 {
			return append(out, light...), nil
		}
		start := at + len(field) - 1
		out, light = append(out, light[:start]...), light[start:]
		if at, size := tokenAt(light); at >= 0 && at < p.count() {
			raw, err := p.raw(at)
			if err != nil {
				return nil, err
			}
			out, light = append(out, raw...), light[size:]
		}
	}
}
