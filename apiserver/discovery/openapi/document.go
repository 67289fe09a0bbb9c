package openapi

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// Document is a document in one encoding. It is immutable.
type Document struct {
	Hash string // of the JSON
	Gzip []byte // the document, compressed
	Size int    // of the uncompressed document, in bytes

	// The inputs of the composition:
	resources []kind.Resource
	parts     []*aggregate.Part
}

// composed is a composed document and its pieces.
type composed struct {
	JSON []byte
	Hash string

	pieces pieces
	as     renderer
}

// packed returns the document as JSON or protobuf.
func (d *composed) packed(protobuf bool) (*Document, error) {
	text := d.JSON
	if protobuf {
		var err error
		if text, err = d.Protobuf(); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return &Document{Hash: d.Hash, Gzip: bytes.Clone(out.Bytes()), Size: len(text)}, nil
}

// Hash returns the hash of a document, as clients see it (upstream: SHA-512 in capitals).
func Hash(document []byte) string { return fmt.Sprintf("%X", sha512.Sum512(document)) }

// pieces are the parts of a document, each as JSON.
type pieces struct {
	version                        string
	paths, definitions, parameters []piece
	part                           bool // the document is one part of a larger one
}

type piece struct {
	name    string
	json    []byte
	foreign bool // another server's: if it is not valid OpenAPI, the protobuf lacks it
}

// renderer renders a version of OpenAPI.
type renderer interface {
	path(p path) object
	definition(d *definitions.Definition) ([]byte, error)
	shared() ([]piece, error) // parameters that paths refer to
	document(p pieces) ([]byte, error)
	// binary returns a document of those pieces as protobuf.
	binary(document []byte) ([]byte, error)
}

// compose composes a document from its paths, the definitions that they refer to, and the parts of other servers'
// documents.
func (c *composer) compose(paths []path, as renderer, parts ...*aggregate.Part) (*composed, error) {
	p := pieces{version: c.cfg.Version}
	var err error
	if p.paths, err = renderPaths(paths, as); err != nil {
		return nil, err
	}
	for _, def := range c.set.Closure(mentioned(paths)...) {
		text, err := as.definition(def)
		if err != nil {
			return nil, err
		}
		p.definitions = append(p.definitions, piece{name: def.Name, json: text})
	}
	if p.parameters, err = as.shared(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := p.merge(part); err != nil {
			return nil, err
		}
	}
	text, err := as.document(p)
	if err != nil {
		return nil, err
	}
	return &composed{JSON: text, Hash: Hash(text), pieces: p, as: as}, nil
}

func renderPaths(paths []path, as renderer) ([]piece, error) {
	var out []piece
	for _, p := range paths {
		text, err := json.Marshal(as.path(p))
		if err != nil {
			return nil, err
		}
		out = append(out, piece{name: p.url, json: text})
	}
	slices.SortFunc(out, func(a, b piece) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// mentioned returns the definitions in the requests and responses of the paths' operations.
func mentioned(paths []path) []string {
	var names []string
	for _, p := range paths {
		for _, op := range p.operations {
			names = append(names, op.body)
			for _, a := range op.answers {
				names = append(names, a.definition)
			}
		}
	}
	return names
}

// join returns a JSON object of the pieces.
func join(list []piece) json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, p := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			continue // a string can always be encoded
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(p.json)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// Protobuf returns the document as gnostic's protobuf. It encodes piece by piece, because the parser needs a hundred
// times the memory of its text. Concatenated protobuf messages form one message.
func (d *composed) Protobuf() ([]byte, error) {
	var out []byte
	for _, part := range d.pieces.split() {
		text, err := d.as.document(part)
		if err != nil {
			return nil, err
		}
		data, err := d.as.binary(text)
		if err != nil && part.foreign() {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, data...)
	}
	return out, nil
}

// foreign reports whether the document, which has one piece, is another server's.
func (p pieces) foreign() bool {
	for _, list := range [][]piece{p.parameters, p.paths, p.definitions} {
		for _, one := range list {
			return one.foreign
		}
	}
	return false
}

// split returns a document without pieces, followed by documents of one piece each.
func (p pieces) split() []pieces {
	parts := []pieces{{version: p.version}}
	for _, one := range p.parameters {
		parts = append(parts, pieces{version: p.version, part: true, parameters: []piece{one}})
	}
	for _, one := range p.paths {
		parts = append(parts, pieces{version: p.version, part: true, paths: []piece{one}})
	}
	for _, one := range p.definitions {
		parts = append(parts, pieces{version: p.version, part: true, definitions: []piece{one}})
	}
	return parts
}
