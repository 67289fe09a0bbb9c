package bounded

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// jsonReader reads JSON without allocating. It stops at an error.
type jsonReader struct {
	data []byte
	pos  int
	cost int
	at   trail
	err  *field.Error
}

// skipped is the plan for unknown fields.
var skipped = &plan{}

// untyped is the plan for values that are decoded without a type.
var untyped = &plan{kind: anything}

// value reads one value. It returns false to stop.
func (r *jsonReader) value(p *plan) bool {
	c := r.next()
	if p.kind == pointer {
		if c != 'n' { // null
			r.cost += p.size
		}
		return r.value(p.elem)
	}
	from := r.pos
	switch c {
	case 0:
		return false
	case '{', '[':
		if r.at.depth >= MaxDepth {
			r.err = r.at.tooDeep()
			return false
		}
		if ok := r.inside(c, p); !ok {
			return false
		}
	case '"':
		s, ok := r.text()
		if !ok {
			return false
		}
		if p.kind == anything {
			r.cost += stringSize + len(s)
		}
	default:
		if !r.literal() {
			return false
		}
		if p.kind == anything {
			r.cost += boxSize
		}
	}
	if p.kind == raw || p.kind == embedded || p.kind == text {
		r.cost += r.pos - from // a copy
	}
	return true
}

func (r *jsonReader) inside(c byte, p *plan) bool {
	if p.kind == embedded || p.kind == anything {
		p = untyped
	}
	if c == '{' {
		return r.object(p)
	}
	return r.items(p)
}

func (r *jsonReader) object(p *plan) bool {
	r.pos++
	if p.kind == anything {
		r.cost += objectSize
	}
	for n := 0; ; n++ {
		if more, ok := r.more(n, '}'); !more {
			return ok
		}
		if r.next() != '"' {
			return false
		}
		quoted, ok := r.text()
		if !ok || r.next() != ':' {
			return false
		}
		r.pos++
		key := unescape(quoted)
		r.at.enter(step{key: key})
		if !r.value(r.member(p, key, n)) {
			return false
		}
		r.at.leave()
	}
}

// member adds the cost of the n-th member of an object, and returns its plan.
func (r *jsonReader) member(p *plan, key []byte, n int) *plan {
	switch p.kind {
	case anything:
		if n == 0 {
			r.cost += firstMembers
		}
		r.cost += memberSize + len(key)
		return p
	case mapping:
		r.cost += p.size + len(key)
		return p.elem
	case structure:
		if f, ok := p.fields[string(key)]; ok {
			return f
		}
	}
	return skipped
}

func (r *jsonReader) items(p *plan) bool {
	r.pos++
	elem := skipped
	switch p.kind {
	case anything:
		elem = p
		r.cost += itemSize
	case list:
		elem = p.elem
	}
	for n := 0; ; n++ {
		if more, ok := r.more(n, ']'); !more {
			return ok
		}
		if n >= MaxItems {
			r.err = r.at.tooMany(n + 1 + bytes.Count(r.data[r.pos:], []byte{','}))
			return false
		}
		switch p.kind {
		case list:
			r.cost += p.size
		case anything:
			r.cost += itemSize
		}
		r.at.enter(step{name: item})
		if !r.value(elem) {
			return false
		}
		r.at.leave()
	}
}

// more moves to the n-th element of an object or array, and reports whether there is one before its end. ok is false if
// the syntax is invalid.
func (r *jsonReader) more(n int, end byte) (more, ok bool) {
	switch c := r.next(); {
	case c == end:
		r.pos++
		return false, true
	case n == 0:
		return true, true
	case c == ',':
		r.pos++
		return true, true
	}
	return false, false
}

// next returns the next byte that is not white space without consuming it, or 0 at the end.
func (r *jsonReader) next() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\r', '\n':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// text consumes a string and returns the bytes between its quotes.
func (r *jsonReader) text() ([]byte, bool) {
	r.pos++
	for from := r.pos; r.pos < len(r.data); r.pos++ {
		switch r.data[r.pos] {
		case '"':
			r.pos++
			return r.data[from : r.pos-1], true
		case '\\':
			r.pos++
		}
	}
	return nil, false
}

// literal consumes a number, true, false or null.
func (r *jsonReader) literal() bool {
	from := r.pos
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		if c <= ' ' || c == ',' || c == '}' || c == ']' || c == ':' || c == '{' || c == '[' || c == '"' {
			break
		}
		r.pos++
	}
	return r.pos > from
}

// unescape returns a key without its escapes.
func unescape(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted
	}
	var out string
	if json.Unmarshal(append(append([]byte{'"'}, quoted...), '"'), &out) != nil {
		return quoted
	}
	return []byte(out)
}
