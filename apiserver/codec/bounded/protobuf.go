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

// message reads the fields of a message that becomes a value of plan p; false to stop.
func (r *protobufReader) message(data []byte, p *plan) bool {
	if r.at.depth >= MaxDepth {
		r.err = r.at.tooDeep()
		return false
	}
	var items map[protowire.Number]int // of each list
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, wire, data)
		if size < 0 {
			return false
		}
		value := data[:size]
		data = data[size:]
		f, known := p.numbers[int(number)]
		if !known {
			continue
		}
		if wire == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		r.at.enter(f.name)
		if f.plan.kind == list {
			if items == nil {
				items = map[protowire.Number]int{}
			}
			if items[number]++; items[number] > MaxItems {
				r.err = r.at.tooMany(items[number])
				return false
			}
		}
		if !r.field(value, wire, f.plan) {
			return false
		}
		r.at.leave()
	}
	return true
}

// field reads one occurrence of a field.
func (r *protobufReader) field(value []byte, wire protowire.Type, p *plan) bool {
	switch p.kind {
	case pointer:
		r.cost += p.size
		return r.field(value, wire, p.elem)
	case list:
		r.cost += p.size
		if p.elem.kind == scalar && wire == protowire.BytesType { // packed
			r.cost += p.size * len(value)
			return true
		}
		return r.field(value, wire, p.elem)
	case mapping: // a message of key and value
		r.cost += p.size
		return r.message(value, p.entry())
	case text:
		r.cost += len(value)
	case embedded:
		return r.embedded(value)
	case structure, raw:
		return wire != protowire.BytesType || r.message(value, p)
	}
	return true
}

// embedded reads a message that contains JSON in its field 1.
func (r *protobufReader) embedded(value []byte) bool {
	for len(value) > 0 {
		number, wire, n := protowire.ConsumeTag(value)
		if n < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, wire, value[n:])
		if size < 0 {
			return false
		}
		if number == 1 && wire == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(value[n : n+size])
			inner := jsonReader{data: text, at: r.at}
			inner.value(whatever)
			r.cost += len(text) + inner.cost
			if r.err = inner.err; r.err != nil {
				return false
			}
		}
		value = value[n+size:]
	}
	return true
}

// entry is the plan of a mapping's entries.
func (p *plan) entry() *plan {
	return &plan{numbers: map[int]numbered{1: {plan: &plan{kind: text}}, 2: {plan: p.elem}}}
}
