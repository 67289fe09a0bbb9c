package bounded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	yamlv3 "go.yaml.in/yaml/v3"
)

const (
	// maxExpanded is the maximum length of a document after its aliases are expanded, in bytes, and maxNodes its
	// maximum number of values.
	maxExpanded = 10 << 20
	maxNodes    = 200_000
	// nodeSize is the memory for a value of a document while it is converted, in bytes.
	nodeSize = 320
	// escaped is the maximum memory for a byte of a text in JSON, with its copies, in bytes.
	escaped = 16
)

// WeighYAML returns the maximum number of bytes that converting a document takes.
func WeighYAML(data []byte) int { return escaped*len(data) + nodeSize*nodes(data) }

// nodes returns the maximum number of values in a document: each value follows one of the counted characters.
func nodes(data []byte) int {
	n := 1
	for i, c := range data {
		switch c {
		case '{':
			n += 3 // the value itself, a key and a value
		case '[', ',', ':', '?':
			n += 2
		case '-':
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// YAMLToJSON converts the only document in data that is not empty. It returns an error if data is not YAML, has several
// documents or none, is nested too deep, or has aliases that expand to too much.
func YAMLToJSON(data []byte) ([]byte, error) {
	doc, err := document(data)
	if err != nil {
		return nil, err
	}
	if err := checkAliases(doc); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(doc)
}

// Duplicates returns an error with the duplicate keys of a document, or nil for a document that YAMLToJSON refuses.
func Duplicates(data []byte) error {
	doc, err := document(data)
	if err != nil || checkAliases(doc) != nil {
		return nil
	}
	if err := yaml.UnmarshalStrict(doc, &map[string]any{}); err != nil {
		return err
	}
	return nil
}

// document returns the only document that is not empty.
func document(data []byte) ([]byte, error) {
	var found []byte
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := docs.Read()
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			return nil, errors.New("the document is empty")
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		case blank(doc):
		case found != nil:
			return nil, errors.New("found several documents, one object is expected")
		default:
			found = doc
		}
	}
}

// blank reports whether a document contains only comments.
func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("---")))
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// checkAliases returns an error for a document whose aliases expand to too much.
func checkAliases(doc []byte) error {
	if bytes.IndexByte(doc, '&') < 0 {
		return nil
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(doc, &root); err != nil {
		return err
	}
	if nodes, size := expanded(&root, map[*yamlv3.Node][2]int{}); nodes > maxNodes || size > maxExpanded {
		return fmt.Errorf("the aliases expand to more than %d values or %d bytes: "+
			"send smaller objects without aliases", maxNodes, maxExpanded)
	}
	return nil
}

// expanded returns the number of values and bytes of a node after expansion; if they exceed the limits, some
// value above them. known contains those of anchors.
func expanded(n *yamlv3.Node, known map[*yamlv3.Node][2]int) (nodes, size int) {
	if n.Kind == yamlv3.AliasNode {
		if k, ok := known[n.Alias]; ok {
			return k[0], k[1]
		}
		known[n.Alias] = [2]int{maxNodes + 1, 0} // an anchor inside itself never ends
		return expanded(n.Alias, known)
	}
	nodes, size = 1, len(n.Value)+2
	for _, c := range n.Content {
		more, bytes := expanded(c, known)
		nodes, size = min(nodes+more, maxNodes+1), min(size+bytes, maxExpanded+1)
	}
	if n.Anchor != "" {
		known[n] = [2]int{nodes, size}
	}
	return nodes, size
}
