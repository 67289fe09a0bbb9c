package encoded

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
	kjson "sigs.k8s.io/json"
)

const (
	// maxDepth is the maximum nesting of values.
	maxDepth = 100
	// maxPresets is the maximum size of the defaults that are added, in bytes.
	maxPresets = 64 << 10
	// maxKept is the maximum size of the memory that is kept for further objects, in bytes.
	maxKept = 256 << 10
	// maxDigits is the length of the longest number that is an integer in any case.
	maxDigits = 18
)

// Member is a field of an object, encoded without spaces, its fields by name.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Object is an object that matches its schema.
type Object struct {
	Kind, APIVersion json.RawMessage // nil: the object has none
	Metadata         json.RawMessage // as it was sent
	Members          []Member        // by name, with defaults
}

// reader reads one object.
type reader struct {
	data    []byte
	at      int
	out     []byte
	scratch []byte
	fields  []field // of the objects around the current value
	presets int
	depth   int
}

// field is a field of an object in out: from the quote of its name to the end of its value.
type field struct{ start, value, end int }

var readers = sync.Pool{New: func() any { return &reader{} }}

// Read returns the object that data contains. ok is false if it is not certain that the object is valid JSON, has no field twice and
// none that the schema does not have, and that all of its members are valid.
func (s *Schema) Read(data []byte) (obj Object, ok bool) {
	r := readers.Get().(*reader)
	defer r.release()
	*r = reader{data: data, out: r.out[:0], scratch: r.scratch, fields: r.fields[:0]}
	if r.space(); !r.next('{') || !r.root(&s.root, &obj) {
		return Object{}, false
	}
	r.space()
	return obj, r.at == len(r.data)
}

// release keeps the reader's memory for another object.
func (r *reader) release() {
	if r.data = nil; cap(r.out)+cap(r.scratch) <= maxKept {
		readers.Put(r)
	}
}

// root reads the fields of the object itself.
func (r *reader) root(n *node, obj *Object) bool {
	if !r.members(n, obj) || !r.complete(n, 0) || !r.sort(0) {
		return false
	}
	obj.Members = make([]Member, 0, len(r.fields))
	for _, f := range r.fields {
		name, value := r.out[f.start+1:f.value-2], r.out[f.value:f.end]
		obj.Members = append(obj.Members, Member{memberName(n, name), bytes.Clone(value)})
	}
	return true
}

// memberName returns the name of a member; those in the schema need no memory.
func memberName(n *node, name []byte) string {
	if p := n.properties[string(name)]; p != nil {
		return p.name
	}
	return string(name)
}

// members reads the fields of an object to its end. For the root it sets what is not a member in obj.
func (r *reader) members(n *node, obj *Object) bool {
	for first := true; ; first = false {
		r.space()
		if r.next('}') {
			return true
		}
		if !first && !r.next(',') {
			return false
		}
		r.space()
		start := len(r.out)
		name, ok := r.name()
		if r.space(); !ok || !r.next(':') {
			return false
		}
		r.space()
		if obj != nil && isMeta(string(name)) {
			r.out = r.out[:start]
			if !r.meta(string(name), obj) {
				return false
			}
			continue
		}
		r.out = append(r.out, ':')
		f := field{start: start, value: len(r.out)}
		if !r.value(n.of(name)) {
			return false
		}
		f.end = len(r.out)
		r.fields = append(r.fields, f)
	}
}

// of returns the schema of a field; nil: there is no such field.
func (n *node) of(name []byte) *node {
	if p := n.properties[string(name)]; p != nil {
		return p.value
	}
	return n.others
}

// meta sets kind, apiVersion or metadata.
func (r *reader) meta(name string, obj *Object) bool {
	at := map[string]*json.RawMessage{"kind": &obj.Kind, "apiVersion": &obj.APIVersion, "metadata": &obj.Metadata}[name]
	start, out := r.at, len(r.out)
	if *at != nil || !r.value(anything) {
		return false
	}
	*at, r.out = r.data[start:r.at], r.out[:out]
	return true
}

// complete adds the defaults of missing fields to the object whose fields begin at first; false if required ones are missing.
func (r *reader) complete(n *node, first int) bool {
	required, defaults := n.required, n.defaults
	if required+defaults == 0 {
		return true
	}
	for _, f := range r.fields[first:] {
		if p := n.properties[string(r.nameOf(f))]; p != nil {
			if p.required {
				required--
			}
			if p.preset != nil {
				defaults--
			}
		}
	}
	if defaults > 0 {
		for _, p := range n.properties {
			if p.preset != nil && !r.has(first, p.name) {
				r.add(p)
				if p.required {
					required--
				}
			}
		}
	}
	return required == 0 && r.presets <= maxPresets
}

func (r *reader) nameOf(f field) []byte { return r.out[f.start+1 : f.value-2] }

func (r *reader) has(first int, name string) bool {
	return slices.ContainsFunc(r.fields[first:], func(f field) bool { return string(r.nameOf(f)) == name })
}

// add adds a field with its default.
func (r *reader) add(p *property) {
	start := len(r.out)
	name, _ := json.Marshal(p.name) // a string can always be encoded
	r.out = append(append(r.out, name...), ':')
	f := field{start: start, value: len(r.out)}
	r.out = append(r.out, p.preset...)
	f.end = len(r.out)
	r.presets += f.end - f.start
	r.fields = append(r.fields, f)
}

// sort sorts the fields from first on by name; false if there are two of a name.
func (r *reader) sort(first int) bool {
	all := r.fields[first:]
	byName := func(a, b field) int { return bytes.Compare(r.nameOf(a), r.nameOf(b)) }
	if !slices.IsSortedFunc(all, byName) {
		slices.SortFunc(all, byName)
	}
	for i := 1; i < len(all); i++ {
		if byName(all[i-1], all[i]) == 0 {
			return false
		}
	}
	return true
}

// value reads a value, without spaces, into out; false if it is not certain that it is valid.
func (r *reader) value(n *node) bool {
	if n == nil || n.form == unsupported || r.at >= len(r.data) || r.depth > maxDepth {
		return false
	}
	start := len(r.out)
	ok := false
	switch c := r.data[r.at]; {
	case c == '{':
		ok = (n.form == object || n.form == free) && r.object(n)
	case c == '[':
		ok = (n.form == array || n.form == free) && r.list(n)
	case c == '"':
		ok = (n.form == text || n.form == intOrText || n.form == free) && r.text(n)
	case c == '-' || c >= '0' && c <= '9':
		ok = r.number(n)
	case c == 't':
		ok = (n.form == boolean || n.form == free) && r.word("true")
	case c == 'f':
		ok = (n.form == boolean || n.form == free) && r.word("false")
	case c == 'n': // elsewhere a null may be removed, or be a default
		ok = n.form == free && r.word("null")
	}
	return ok && (len(n.enum) == 0 || slices.Contains(n.enum, string(r.out[start:])))
}

func (r *reader) object(n *node) bool {
	r.at++
	r.depth++
	first, start := len(r.fields), len(r.out)
	within := n
	if n.form == free {
		within = open
	}
	if !r.members(within, nil) || !r.complete(within, first) || !inRange(int64(len(r.fields)-first), n) || !r.sort(first) {
		return false
	}
	r.join(first, start)
	r.fields = r.fields[:first]
	r.depth--
	return true
}

// open is the schema of an object with any fields.
var open = &node{form: object, others: anything}

// join puts the fields from first on, whose text begins at start, into one object.
func (r *reader) join(first, start int) {
	r.scratch = append(r.scratch[:0], '{')
	for i, f := range r.fields[first:] {
		if i > 0 {
			r.scratch = append(r.scratch, ',')
		}
		r.scratch = append(r.scratch, r.out[f.start:f.end]...)
	}
	r.out = append(append(r.out[:start], r.scratch...), '}')
}

func (r *reader) list(n *node) bool {
	r.at++
	r.depth++
	r.out = append(r.out, '[')
	items := n.items
	if n.form == free {
		items = anything
	}
	var known map[string]bool
	count := int64(0)
	for {
		r.space()
		if r.next(']') {
			break
		}
		if count > 0 {
			if !r.next(',') {
				return false
			}
			r.out = append(r.out, ',')
			r.space()
		}
		start := len(r.out)
		if !r.value(items) {
			return false
		}
		if count++; n.unique || n.keys != nil {
			key, ok := keyOf(n, r.out[start:])
			if !ok || known[key] {
				return false
			}
			if known == nil {
				known = map[string]bool{}
			}
			known[key] = true
		}
	}
	r.out = append(r.out, ']')
	r.depth--
	return inRange(count, n)
}

// keyOf returns what identifies an item of a list: the item itself, or the fields that are its keys.
func keyOf(n *node, item []byte) (string, bool) {
	if n.unique {
		return string(item), true
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(item, &fields) != nil {
		return "", false
	}
	var key []byte
	for _, name := range n.keys {
		key = append(append(key, fields[name]...), 0)
	}
	return string(key), true
}

func inRange(length int64, n *node) bool {
	return (n.least == nil || length >= *n.least) && (n.most == nil || length <= *n.most)
}

// name reads the name of a field with its quotes into out. Names that are not plain are left to others.
func (r *reader) name() ([]byte, bool) {
	start := r.at
	if !r.next('"') {
		return nil, false
	}
	for r.at < len(r.data) && isPlain(r.data[r.at]) {
		r.at++
	}
	end := r.at
	if !r.next('"') {
		return nil, false
	}
	r.out = append(r.out, r.data[start:r.at]...)
	return r.data[start+1 : end], true
}

// isPlain reports whether a character of a text is encoded as it is, and does not end the text.
func isPlain(c byte) bool {
	return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func (r *reader) text(n *node) bool {
	start := r.at
	for r.at++; r.at < len(r.data) && isPlain(r.data[r.at]); {
		r.at++
	}
	if r.next('"') {
		r.out = append(r.out, r.data[start:r.at]...)
		return n.form == free || matches(r.data[start+1:r.at-1], n)
	}
	for escaped := false; r.at < len(r.data); r.at++ {
		if c := r.data[r.at]; c == '"' && !escaped {
			break
		} else {
			escaped = c == '\\' && !escaped
		}
	}
	if !r.next('"') {
		return false
	}
	var value string
	if json.Unmarshal(r.data[start:r.at], &value) != nil {
		return false
	}
	encoded, err := json.Marshal(value)
	r.out = append(r.out, encoded...)
	return err == nil && (n.form == free || matches([]byte(value), n))
}

// matches reports whether a text is valid.
func matches(value []byte, n *node) bool {
	if (n.least != nil || n.most != nil) && !inRange(int64(utf8.RuneCount(value)), n) {
		return false
	}
	if n.pattern != nil {
		if p := n.pattern(); p == nil || !p.Match(value) {
			return false
		}
	}
	return n.format == "" || strfmt.Default.Validates(n.format, string(value))
}

func (r *reader) number(n *node) bool {
	start := r.at
	for r.at < len(r.data) && isNumber(r.data[r.at]) {
		r.at++
	}
	digits := r.data[start:r.at]
	if whole, ok := integral(digits); ok {
		r.out = append(r.out, digits...)
		return n.form == free || n.form >= integer && n.form != boolean && between(float64(whole), n) && (!n.int32 || int64(int32(whole)) == whole)
	}
	if n.form != free && n.form != number || n.int32 {
		return false
	}
	var value any
	if kjson.UnmarshalCaseSensitivePreserveInts(digits, &value) != nil {
		return false
	}
	encoded, err := json.Marshal(value)
	r.out = append(r.out, encoded...)
	f, isFloat := value.(float64)
	return err == nil && (n.form == free || isFloat && between(f, n))
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// integral returns the integer that the text is, if it is written as the server writes it.
func integral(digits []byte) (int64, bool) {
	unsigned := bytes.TrimPrefix(digits, []byte{'-'})
	if len(unsigned) == 0 || len(unsigned) > maxDigits || unsigned[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	whole, err := strconv.ParseInt(string(digits), 10, 64)
	return whole, err == nil
}

// between reports whether a number is within limits. Upstream compares an integer with limits without their fractions, so these are
// left to it.
func between(value float64, n *node) bool {
	if limit := n.minimum; limit != nil && (*limit != float64(int64(*limit)) || value < *limit || n.overMin && value == *limit) {
		return false
	}
	limit := n.maximum
	return limit == nil || *limit == float64(int64(*limit)) && value <= *limit && !(n.underMax && value == *limit)
}

func (r *reader) word(word string) bool {
	if !bytes.HasPrefix(r.data[r.at:], []byte(word)) {
		return false
	}
	r.at += len(word)
	r.out = append(r.out, word...)
	return true
}

func (r *reader) next(c byte) bool {
	if r.at >= len(r.data) || r.data[r.at] != c {
		return false
	}
	r.at++
	return true
}

func (r *reader) space() {
	for r.at < len(r.data) && (r.data[r.at] == ' ' || r.data[r.at] == '\n' || r.data[r.at] == '\r' || r.data[r.at] == '\t') {
		r.at++
	}
}
