package addon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// object is an object of a manifest and where it is from.
type object struct {
	unstructured.Unstructured
	file string
	node *yamlv3.Node // nil: the position is not known
}

// Read reads the manifests of an addon from files, folders or, as "-", from in.
func Read(name string, paths []string, in io.Reader) (Set, error) {
	set := Set{Name: name}
	var sources []string
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return set, err
		}
		for _, file := range files {
			data, err := read(file, in)
			if err != nil {
				return set, err
			}
			objects, err := parse(file, data)
			if err != nil {
				return set, err
			}
			set.objects = append(set.objects, objects...)
		}
		source := filepath.Base(path)
		if path == "-" {
			source = "standard input"
		}
		sources = append(sources, source)
	}
	set.Source = strings.Join(sources, ", ")
	if len(set.objects) == 0 {
		return set, fmt.Errorf("%s contains no objects", set.Source)
	}
	set.Version = versionOf(set.objects)
	return set, checkName(name)
}

// filesOf returns the manifests in a folder, in the order of their names, or the file itself.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if path == "-" || err == nil && !info.IsDir() {
		return []string{path}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) && !entry.IsDir() {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s contains no .yaml, .yml or .json files; name a folder with manifests", path)
	}
	return files, nil
}

func read(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}

// separator matches the mark before a document, which may begin on the same line.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

// parse returns the objects of a manifest. Errors name the file and the line.
func parse(file string, data []byte) (all []object, err error) {
	for from := 0; from <= len(data); {
		to, next := len(data), len(data)+1
		if at := separator.FindIndex(data[from:]); at != nil {
			to, next = from+at[0], from+at[0]+len("---")
		}
		// With the lines before the document, the parsers count lines as the file does.
		before := bytes.Count(data[:from], []byte("\n"))
		objects, err := document(file, append(bytes.Repeat([]byte("\n"), before), data[from:to]...))
		if err != nil {
			return nil, err
		}
		all, from = append(all, objects...), next
	}
	return all, nil
}

// document returns the objects of one document: none, one, or the items of a list.
func document(file string, text []byte) ([]object, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if root.Kind != yamlv3.DocumentNode || root.Content[0].Tag == "!!null" {
		return nil, nil // only comments
	}
	o := object{file: file, node: root.Content[0]}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err) // which contains the line
	}
	if o.node.Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("%s: an object is expected", o.at(""))
	}
	if err := yaml.Unmarshal(data, &o.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", o.at(""), err)
	}
	if !o.IsList() {
		return []object{o}, o.check()
	}
	var all []object
	items, _, _ := unstructured.NestedSlice(o.Object, "items")
	for i, item := range items {
		content, ok := item.(map[string]any)
		of := object{Unstructured: unstructured.Unstructured{Object: content}, file: file,
			node: o.find(fmt.Sprintf("items[%d]", i))}
		if !ok {
			return nil, fmt.Errorf("%s: an object is expected", of.at(""))
		}
		if err := of.check(); err != nil {
			return nil, err
		}
		all = append(all, of)
	}
	return all, nil
}

// check returns an error for an object that nothing identifies.
func (o object) check() error {
	switch {
	case o.GetAPIVersion() == "" || o.GetKind() == "":
		return fmt.Errorf("%s: an object needs apiVersion and kind", o.at(""))
	case o.GetName() == "":
		return fmt.Errorf("%s: the %s needs a metadata.name", o.at("metadata"), o.GetKind())
	}
	if _, err := schema.ParseGroupVersion(o.GetAPIVersion()); err != nil {
		return fmt.Errorf("%s: %w", o.at("apiVersion"), err)
	}
	return nil
}

// step matches one step of the path of a field: .name, [index] or [key].
var step = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// find returns the node of a field, such as spec.ports[0].name, or the deepest one that contains it.
func (o object) find(field string) *yamlv3.Node {
	node := o.node
	for _, name := range step.FindAllString(field, -1) {
		name = strings.Trim(name, "[]")
		var next *yamlv3.Node
		switch {
		case node == nil:
			return nil
		case node.Kind == yamlv3.SequenceNode:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
				next = node.Content[i]
			}
		case node.Kind == yamlv3.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == name {
					next = node.Content[i+1]
				}
			}
		}
		if next == nil {
			return node
		}
		node = next
	}
	return node
}

// at returns FILE:LINE of a field.
func (o object) at(field string) string {
	if node := o.find(field); node != nil {
		return fmt.Sprintf("%s:%d", o.file, node.Line)
	}
	return o.file
}

// String returns the kind and the name.
func (o object) String() string { return describe(o.GetKind(), o.GetNamespace(), o.GetName()) }

func describe(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// named matches the field in errors without causes: of strict decoding, and of values that do not have the type of the
// schema.
var named = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"|: \.(\S+): expected `)

// failed returns an error of the server about the object, with the line of the field.
func (o object) failed(err error) error {
	field := ""
	if found := named.FindStringSubmatch(err.Error()); found != nil {
		field = found[1] + found[2]
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if d := status.Status().Details; d != nil && len(d.Causes) > 0 && field == "" {
			field = d.Causes[0].Field
		}
	}
	if apierrors.IsConflict(err) {
		err = fmt.Errorf("%w; --force takes these fields over", err)
	}
	return fmt.Errorf("%s: %v: %w", o.at(field), o, err)
}

// versionOf returns the version that the objects of a manifest state.
func versionOf(objects []object) string {
	for _, o := range objects {
		if v := o.GetLabels()["app.kubernetes.io/version"]; v != "" {
			return v
		}
		for name, v := range o.GetAnnotations() {
			if strings.HasSuffix(name, "/bundle-version") {
				return v
			}
		}
	}
	return ""
}
