package crd

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/klauspost/compress/s2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// raws are the schemas of a definition, encoded.
type raws [][]byte

// buffers are what packing needs for a moment: twice the size of the schemas, of hundreds of definitions when a server starts.
type buffers struct{ joined, packed []byte }

// pools keeps buffers for reuse.
var pools = sync.Pool{New: func() any { return new(buffers) }}

// pack compresses the schemas.
func (r raws) pack() *schemas {
	p := &schemas{ends: make([]int, len(r))}
	b := pools.Get().(*buffers)
	defer pools.Put(b)
	b.joined = b.joined[:0]
	for i := range r {
		b.joined = append(b.joined, r[i]...)
		p.ends[i] = len(b.joined)
	}
	if need := s2.MaxEncodedLen(len(b.joined)); cap(b.packed) < need {
		b.packed = make([]byte, need)
	}
	p.data = bytes.Clone(s2.Encode(b.packed[:cap(b.packed)], b.joined))
	return p
}

// decode returns the schema in whose place s is: s itself if it is not a placeholder.
func (r raws) decode(s *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, error) {
	at := placed(s, len(r))
	if at < 0 {
		return s, nil
	}
	out := &apiextensionsv1.JSONSchemaProps{}
	return out, json.Unmarshal(r[at], out)
}

// field is what a schema of a version follows. Within a text its quotes would be escaped, and no other field of a definition that is
// an object has the name, except in a schema.
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

// split returns the JSON of a definition with placeholders for its schemas, and these. It does not look at anything else: whether these
// are the schemas of all versions is seen when the rest is decoded.
func split(data []byte) (light []byte, found raws) {
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
func (r raws) join(light []byte) []byte {
	size := len(light)
	for _, raw := range r {
		size += len(raw)
	}
	out := make([]byte, 0, size)
	for {
		at := bytes.Index(light, field)
		if at < 0 {
			return append(out, light...)
		}
		start := at + len(field) - 1
		out, light = append(out, light[:start]...), light[start:]
		if at, size := tokenAt(light); at >= 0 && at < len(r) {
			out, light = append(out, r[at]...), light[size:]
		}
	}
}
