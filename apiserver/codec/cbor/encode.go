package cbor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
)

// FromJSON appends the CBOR form of a JSON document, without Prefix.
func FromJSON(dst, data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	e := encoder{out: dst, d: d}
	if err := e.value(); err != nil {
		return dst, err
	}
	if _, err := d.Token(); err != io.EOF {
		return dst, syntax(int(d.InputOffset()), "more than one JSON document")
	}
	return e.out, nil
}

type encoder struct {
	out []byte
	d   *json.Decoder
}

func (e *encoder) value() error {
	token, err := e.d.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return e.container(mapOf, 2)
		}
		return e.container(arrayOf, 1)
	case string:
		e.text(v)
	case json.Number:
		e.number(v)
	case bool:
		e.out = append(e.out, no)
		if v {
			e.out[len(e.out)-1] = yes
		}
	default:
		e.out = append(e.out, null)
	}
	return nil
}

// container encodes what is within a list or, with two values for each entry, an object. Its head has the number of entries,
// which is known at its end, so it is inserted then.
func (e *encoder) container(major byte, each int) error {
	at, n := len(e.out), 0
	for e.d.More() {
		for range each {
			if err := e.value(); err != nil {
				return err
			}
		}
		n++
	}
	if _, err := e.d.Token(); err != nil {
		return err
	}
	e.out = slices.Insert(e.out, at, head(nil, major, uint64(n))...)
	return nil
}

func (e *encoder) text(s string) {
	e.out = append(head(e.out, bytesOf, uint64(len(s))), s...)
}

func (e *encoder) number(n json.Number) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		if i < 0 {
			e.out = head(e.out, negative, uint64(-1-i))
		} else {
			e.out = head(e.out, unsigned, uint64(i))
		}
		return
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		e.out = head(e.out, unsigned, u)
		return
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil { // beyond all floats; JSON of other servers cannot be decoded by clients either
		f = math.Copysign(math.MaxFloat64, f)
	}
	e.out = binary.BigEndian.AppendUint64(append(e.out, double), math.Float64bits(f))
}

// List appends the beginning of a list of n items, which follow.
func List(dst []byte, n int) []byte { return head(dst, arrayOf, uint64(n)) }

// head appends the first bytes of an item, in the shortest form.
func head(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}
