package bounded

import (
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// protobufReader reads a protobuf message without allocating. It stops at an error.
type protobufReader struct {
	cost int
	at   trail
	err  *field.Error
}

// message reads the fields of a message that becomes a value of plan p. It returns false to stop.
func (r *protobufReader) message(data []byte, p *plan) bool {
	if r.at.depth >= MaxDepth {
		r.err = r.at.tooDeep()
		return false
	}
	var items map[protowire.Number]int // of each list
	for len(data) > 0 {
		got, rest, ok := NextField(data)
		if !ok {
			return false
		}
		data = rest
		number := got.Number
		f, known := p.numbers[int(number)]
		if !known {
			continue
		}
		r.at.enter(step{name: f.name})
		if f.plan.kind == list {
			if items == nil {
				items = map[protowire.Number]int{}
			}
			if items[number]++; items[number] > MaxItems {
				r.err = r.at.tooMany(items[number])
				return false
			}
		}
		if !r.field(got.Value, got.Type, f.plan) {
			return false
		}
		r.at.leave()
	}
	return true
}

// field reads one occurrence of a field.
func (r *protobufReader) field(value []byte, typ protowire.Type, p *plan) bool {
	switch p.kind {
	case pointer:
		r.cost += p.size
		return r.field(value, typ, p.elem)
	case list:
		r.cost += p.size
		if p.elem.kind == scalar && typ == protowire.BytesType { // packed
			r.cost += p.size * len(value)
			return true
		}
		return r.field(value, typ, p.elem)
	case mapping: // a message of key and value
		r.cost += p.size
		return r.message(value, p.entry())
	case text:
		r.cost += len(value)
	case embedded:
		return r.embedded(value)
	case structure, raw:
		return typ != protowire.BytesType || r.message(value, p)
	}
	return true
}

// embedded reads a message that contains JSON in its field 1.
func (r *protobufReader) embedded(value []byte) bool {
	for len(value) > 0 {
		got, rest, ok := NextField(value)
		if !ok {
			return false
		}
		if got.Number == 1 && got.Type == protowire.BytesType {
			inner := jsonReader{data: got.Value, at: r.at}
			inner.value(untyped)
			r.cost += len(got.Value) + inner.cost
			if r.err = inner.err; r.err != nil {
				return false
			}
		}
		value = rest
	}
	return true
}

// entry returns the plan of a mapping's entries.
func (p *plan) entry() *plan {
	return &plan{numbers: map[int]numbered{1: {plan: &plan{kind: text}}, 2: {plan: p.elem}}}
}
