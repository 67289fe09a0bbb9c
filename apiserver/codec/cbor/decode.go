package cbor

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDepth is the maximum nesting of a document; Kubernetes' own kinds need some 30 levels.
const maxDepth = 256

// ToJSON returns the JSON form of a CBOR document, with or without Prefix, of at most max bytes. As Kubernetes, it refuses what
// has no meaning in an object of the API: indefinite lengths, other tags than those of texts and times, numbers that JSON does
// not have, names that are repeated or are no texts, and texts that are not UTF-8.
func ToJSON(data []byte, max int) ([]byte, error) {
	d := decoder{in: bytes.TrimPrefix(data, Prefix), max: max}
	d.out = make([]byte, 0, len(data)+len(data)/4)
	if err := d.value(0); err != nil {
		return nil, err
	}
	if d.at < len(d.in) {
		return nil, syntax(d.at, "%d bytes follow the document", len(d.in)-d.at)
	}
	return d.out, nil
}

type decoder struct {
	in, out []byte
	at, max int
}

// head reads the first bytes of an item: its first byte, and its number.
func (d *decoder) head() (first byte, n uint64, err error) {
	if d.at >= len(d.in) {
		return 0, 0, syntax(d.at, "the document ends within a value")
	}
	first = d.in[d.at]
	d.at++
	info := first & 31
	if info < 24 {
		return first, uint64(info), nil
	}
	if info > 27 {
		return 0, 0, syntax(d.at-1, "indefinite lengths and reserved values are not supported")
	}
	size := 1 << (info - 24)
	if len(d.in)-d.at < size {
		return 0, 0, syntax(d.at, "the document ends within a value")
	}
	var number [8]byte
	copy(number[8-size:], d.in[d.at:d.at+size])
	d.at += size
	return first, binary.BigEndian.Uint64(number[:]), nil
}

func (d *decoder) value(depth int) error {
	if depth > maxDepth {
		return syntax(d.at, "must not be nested more than %d levels deep", maxDepth)
	}
	if len(d.out) > d.max {
		return ErrTooLarge
	}
	at := d.at
	first, n, err := d.head()
	if err != nil {
		return err
	}
	switch first & 0xe0 {
	case unsigned:
		d.out = strconv.AppendUint(d.out, n, 10)
	case negative:
		if n > math.MaxInt64 {
			return syntax(at, "the number is out of range")
		}
		d.out = strconv.AppendInt(d.out, -1-int64(n), 10)
	case bytesOf, textOf:
		text, err := d.bytes(n)
		if err != nil {
			return err
		}
		return d.text(text)
	case arrayOf:
		return d.array(n, depth)
	case mapOf:
		return d.object(n, depth)
	case tagged:
		return d.tagged(n, at, depth)
	default:
		return d.simple(first, n, at)
	}
	return nil
}

// bytes consumes n bytes.
func (d *decoder) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(d.in)-d.at) {
		return nil, syntax(d.at, "the document ends within a text of %d bytes", n)
	}
	out := d.in[d.at : d.at+int(n)]
	d.at += int(n)
	return out, nil
}

func (d *decoder) text(text []byte) error {
	if !utf8.Valid(text) {
		return syntax(d.at-len(text), "the text is not valid UTF-8")
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(text)); err != nil {
		return err
	}
	d.out = append(d.out, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
	return nil
}

func (d *decoder) array(n uint64, depth int) error {
	d.out = append(d.out, '[')
	for i := range n {
		if i > 0 {
			d.out = append(d.out, ',')
		}
		if err := d.value(depth + 1); err != nil {
			return err
		}
	}
	d.out = append(d.out, ']')
	return nil
}

func (d *decoder) object(n uint64, depth int) error {
	d.out = append(d.out, '{')
	seen := map[string]bool{}
	for i := range n {
		if i > 0 {
			d.out = append(d.out, ',')
		}
		at := d.at
		first, length, err := d.head()
		if err != nil {
			return err
		}
		if major := first & 0xe0; major != bytesOf && major != textOf {
			return syntax(at, "the name of a member is not a text")
		}
		name, err := d.bytes(length)
		if err != nil {
			return err
		}
		if seen[string(name)] {
			return syntax(at, "the member %q is repeated", name)
		}
		seen[string(name)] = true
		if err := d.text(name); err != nil {
			return err
		}
		d.out = append(d.out, ':')
		if err := d.value(depth + 1); err != nil {
			return err
		}
	}
	d.out = append(d.out, '}')
	return nil
}

// tagged decodes what has a tag: bytes that are a text in JSON, and times.
func (d *decoder) tagged(tag uint64, at, depth int) error {
	if tag == selfDescribed {
		return d.value(depth + 1)
	}
	if tag != timeText && tag != asBase64URL && tag != asBase64 && tag != asHex {
		return syntax(at, "the tag %d is not supported", tag)
	}
	first, n, err := d.head()
	if err != nil {
		return err
	}
	major := first & 0xe0
	if major != bytesOf && (major != textOf || tag != timeText) {
		return syntax(at, "the tag %d is not supported for this value", tag)
	}
	content, err := d.bytes(n)
	if err != nil {
		return err
	}
	switch tag {
	case asBase64URL:
		return d.text([]byte(base64.RawURLEncoding.EncodeToString(content)))
	case asBase64:
		return d.text([]byte(base64.StdEncoding.EncodeToString(content)))
	case asHex:
		return d.text([]byte(hex.EncodeToString(content)))
	}
	return d.text(content)
}

func (d *decoder) simple(first byte, n uint64, at int) error {
	var f float64
	switch first {
	case no:
		d.out = append(d.out, "false"...)
		return nil
	case yes:
		d.out = append(d.out, "true"...)
		return nil
	case null, undefined:
		d.out = append(d.out, "null"...)
		return nil
	case half:
		f = halfFloat(uint16(n))
	case single:
		f = float64(math.Float32frombits(uint32(n)))
	case double:
		f = math.Float64frombits(n)
	default:
		return syntax(at, "the simple value %d is not supported", n)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return syntax(at, "numbers that are not finite are not supported")
	}
	text, err := json.Marshal(f)
	d.out = append(d.out, text...)
	return err
}

// halfFloat returns the value of a number of 16 bits.
func halfFloat(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 31:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(fraction+1024, exponent-25)
	}
	if bits&0x8000 != 0 {
		return -f
	}
	return f
}
