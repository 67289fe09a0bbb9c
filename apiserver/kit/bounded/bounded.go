// Package bounded checks bodies of requests before they are decoded.
//
// A few bytes can need a lot of memory: an empty container takes two bytes in protobuf and 408 in Go, an alias in YAML
// repeats a text that was sent once, and libraries take quadratic time for nested texts. So one quick pass over the
// text limits nesting and the length of lists, and computes the memory that decoding needs (Weigher). YAMLToJSON limits
// YAML, which must be parsed first.
//
//   - quantity.go refuses quantities that take forever to parse
//   - wire.go splits protobuf messages into fields without decoding them
package bounded

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxDepth is the maximum nesting of objects and lists. Kubernetes' own types need some 30 levels, the
	// schema of a large custom resource 100.
	MaxDepth = 256
	// MaxItems is the maximum number of items of a list.
	MaxItems = 10_000
	// MaxBytes is the maximum size of an object as JSON, in bytes.
	MaxBytes = 3 << 20
)

// Check returns an error if JSON of a webhook is too large, is nested too deep or has too long a list.
func Check(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("it has %d bytes, limit is %d", len(data), MaxBytes)
	}
	if _, err := new(Weigher).JSON(data, new(any)); err != nil {
		return err
	}
	return nil
}

// Weigher computes the memory that values of Go types need. It analyzes a type when it first meets it. The zero value
// is ready to use.
type Weigher struct {
	mu    sync.Mutex // guards plans
	plans map[reflect.Type]*plan
}

// JSON returns how many bytes decoding data into a value of into's type takes. It returns an error if data is nested
// too deep or has too long a list. It accepts invalid JSON, because decoding returns the error.
func (w *Weigher) JSON(data []byte, into any) (int, *field.Error) {
	r := jsonReader{data: data}
	r.value(w.planOf(reflect.TypeOf(into)))
	return len(data) + r.cost, r.err
}

// Protobuf is JSON for a protobuf message, without its envelope.
func (w *Weigher) Protobuf(data []byte, into any) (int, *field.Error) {
	r := protobufReader{}
	r.message(data, w.planOf(reflect.TypeOf(into)))
	return len(data) + r.cost, r.err
}

// trail is the path within a document, truncated for errors.
type trail struct {
	steps [8]step
	depth int
}

// step is a name, or a key within the document, which is copied only for an error.
type step struct {
	name string
	key  []byte
}

func (t *trail) enter(s step) {
	if t.depth < len(t.steps) {
		t.steps[t.depth] = s
	}
	t.depth++
}

func (t *trail) leave() { t.depth-- }

func (t *trail) path() *field.Path {
	var out strings.Builder
	for _, s := range t.steps[:min(t.depth, len(t.steps))] {
		if out.Len() > 0 && s.name != item {
			out.WriteByte('.')
		}
		out.WriteString(s.String())
	}
	if t.depth > len(t.steps) {
		out.WriteString("…")
	}
	return field.NewPath(out.String())
}

func (t *trail) tooDeep() *field.Error {
	return field.Forbidden(t.path(), fmt.Sprintf("must not be nested more than %d levels deep", MaxDepth))
}

func (t *trail) tooMany(n int) *field.Error { return field.TooMany(t.path(), n, MaxItems) }

// item is the name of the step to an item of a list.
const item = "[]"

// String returns the step in the form that errors show.
func (s step) String() string {
	const most = 40
	if s.key == nil {
		return s.name
	}
	if len(s.key) > most {
		return strings.ToValidUTF8(string(s.key[:most]), "") + "…"
	}
	return string(s.key)
}
